"""Reads folders of CTranslate2, written by nmt-export or by CTranslate2's own converters."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.data.imported.tokenizers import pair_of, stored_pair
from nmt.data.imported.vocabularies import read_ctranslate2_vocabulary
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS
from nmt.errors import DataError, shown
from nmt.formats import PortableModel
from nmt.formats.ctranslate2.model_file import read_model_file
from nmt.formats.ctranslate2.weights import read_weights
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order, require_vocabulary_sizes
from nmt.models.transformer.weights import TransformerWeights
from nmt.storage.reading import read_mapping

_KIND, _REVISION = "TransformerSpec", 7
_PADDING = ("<pad>", "<blank>")  # Hugging Face's name and ours, and OpenNMT's


@dataclass
class CTranslate2Folder:
    """A folder for ``ctranslate2.Translator``."""

    path: Path
    options: ImportConfig

    def model(self) -> PortableModel:
        config = self._config()
        file = read_model_file(self.path / "model.bin")
        if (file.kind, file.revision) != (_KIND, _REVISION):
            raise DataError(
                f"{self.path / 'model.bin'} holds a {file.kind} of revision {file.revision}; nmt reads only "
                f"translation models: {_KIND}, revision {_REVISION}"
            )
        symbols = self._symbols()
        specials = [_specials(config, some, self.path) for some in symbols]
        orders = [VocabularyOrder.of(some, own, str(self.path)) for some, own in zip(symbols, specials)]
        weights = read_weights(file, str(self.path / "model.bin"), config.get("layer_norm_epsilon"))
        require_vocabulary_sizes(weights, (orders[0], orders[-1]), str(self.path))
        start = self._start(config, symbols[-1], specials[-1], weights)
        ordered = in_our_order(weights, orders[0], orders[-1])
        return PortableModel(dataclasses.replace(ordered, start=start), self._pair(orders))

    def _config(self) -> dict[str, Any]:
        path = self.path / "config.json"
        config = read_mapping(path)
        for name in ("unk_token", "bos_token", "eos_token", "decoder_start_token"):
            if not isinstance(config.get(name), str):
                raise DataError(f"{path}: {name}={shown(config.get(name))} must be a token of the vocabulary")
        if config.get("add_source_bos"):
            raise DataError(f"{path}: add_source_bos is true, but nmt puts no token before a source")
        if not config.get("add_source_eos"):
            raise DataError(
                f"{path}: add_source_eos is not true, but nmt ends each source with {config['eos_token']}; if the "
                f"model's tokenizer adds it, as those of Hugging Face do, set it to true"
            )
        epsilon = config.get("layer_norm_epsilon")
        if epsilon is not None and (type(epsilon) is not float or not 0 < epsilon < 1):
            raise DataError(f"{path}: layer_norm_epsilon={shown(epsilon)} must be a number between 0 and 1")
        return config

    def _symbols(self) -> list[list[str]]:
        """Return the vocabularies of source and target; one list if they are shared."""
        shared = self.path / "shared_vocabulary.json"
        names = ["source_vocabulary.json", "target_vocabulary.json"]
        paths = [shared] if shared.is_file() else [self.path / name for name in names]
        return [read_ctranslate2_vocabulary(path) for path in paths]

    def _start(
        self,
        config: Mapping[str, Any],
        symbols: Sequence[str],
        specials: Sequence[int | None],
        weights: TransformerWeights,
    ) -> int:
        """Return our id of the first token that the decoder reads."""
        pad, token = specials[PAD], config["decoder_start_token"]
        if weights.start == PAD:  # an embedding of zeros, as Marian's; padding has the same
            if pad is not None and weights.target.embedding[pad].any():
                raise DataError(
                    f"{self.path} begins translations with a zero embedding, but the embedding of {symbols[pad]} is "
                    "not zero; import the model from the toolkit that trained it"
                )
            return PAD
        if token not in symbols:
            raise DataError(
                f"{self.path / 'config.json'}: decoder_start_token={token!r} is not a token of the vocabulary"
            )
        return {pad: PAD, specials[EOS]: EOS}.get(symbols.index(token), BOS)

    def _pair(self, orders: Sequence[VocabularyOrder]) -> LanguagePair:
        """Return the tokenizers that nmt-export stored there, or those of the options."""
        source, target, options = orders[0], orders[-1], self.options
        stored = find_pair(self.path / "tokenizer")
        if stored is None or options.bpe is not Segmentation.none:
            return pair_of(options, source.pieces, target.pieces, shared=source == target)
        pair = stored_pair(stored, options)
        for order, side in ((source, pair.source), (target, pair.target)):
            if side.vocabulary.pieces[len(SPECIALS) :] != order.pieces:
                raise DataError(
                    f"{stored} does not match the vocabulary of {self.path}; move it away, and name the tokenizer "
                    f"with --bpe"
                )
        return pair


def _specials(config: Mapping[str, Any], symbols: Sequence[str], folder: Path) -> list[int | None]:
    """Return the ids of pad, unk, bos and eos in a vocabulary.

    The first token of the decoder replaces bos, unless it is pad or eos.
    """
    places = {symbol: number for number, symbol in enumerate(symbols)}
    unk, bos, eos, start = (places.get(config[f"{name}_token"]) for name in ("unk", "bos", "eos", "decoder_start"))
    pad = next((places[name] for name in _PADDING if name in places), None)
    if eos is None:
        raise DataError(f"{folder / 'config.json'}: eos_token={config['eos_token']!r} is not a token of the vocabulary")
    if start is not None and start not in (pad, eos):
        bos = start
    return [pad, unk, None if bos in (pad, unk, eos) else bos, eos]
