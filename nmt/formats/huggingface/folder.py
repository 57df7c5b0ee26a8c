"""Reads folders that ``save_pretrained`` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.exchange import ImportConfig
from nmt.data.imported.tokenizers import require_languages, sentencepiece_of
from nmt.data.imported.vocabularies import read_huggingface_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, WordEnds
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece_list import is_language_token
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS
from nmt.errors import DataError, MissingInputError, shown, unquoted
from nmt.formats import PortableModel
from nmt.formats.huggingface.multilingual import MULTILINGUAL, MultilingualTokenizer
from nmt.formats.huggingface.t5 import T5Folder
from nmt.formats.huggingface.tensor_files import stored_tensors
from nmt.formats.huggingface.weights import ACTIVATIONS, NORM_FIRST, read_weights
from nmt.formats.stored_options import dropouts_of, languages_of, number_of, require_same_sides, required_count
from nmt.formats.tensors import Tensors
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order, require_vocabulary_sizes
from nmt.search.config import MOST_PIECES, WIDEST_BEAM, LengthPenalty, StopRule
from nmt.storage.reading import read_file, read_json, read_mapping

LANGUAGES = "nmt_languages"  # of nmt-export, for models that were trained with language tokens
_BEAM, _HIGHEST_PENALTY = 5, 10.0
# Why similar models cannot be imported.
_MISSING = {
    "nllb-moe": "it has layers of experts, which nmt cannot import; NLLB's dense models can be imported",
    "bart": "it cuts text into bytes, which nmt does not support",
}


@dataclass
class HuggingFaceFolder:
    """A folder of ``save_pretrained``."""

    path: Path
    options: ImportConfig

    def model(self) -> PortableModel:
        config = read_mapping(self.path / "config.json")
        kind = str(config.get("model_type"))
        search = self._generation(config)
        if kind == "t5":
            return T5Folder(self.path, config, self.options).model(_search(search, 2))
        if kind not in NORM_FIRST:
            what = _MISSING.get(kind, f"nmt reads only {', '.join(NORM_FIRST)}, t5")
            raise DataError(f"{self.path} is a model of the type {unquoted(kind)}: {what}")
        _require(config, self.path)
        multilingual = MultilingualTokenizer.read(self.path, config) if kind in MULTILINGUAL else None
        symbols = [multilingual.symbols] if multilingual else self._symbols(kind, config)
        specials = [self._specials(kind, config, some) for some in symbols]
        orders = [VocabularyOrder.of(some, own, str(self.path)) for some, own in zip(symbols, specials)]
        tensors = Tensors(stored_tensors(self.path), str(self.path))
        weights = read_weights(tensors, config, _start_of(config, specials[-1]))
        source, target = orders[0], orders[-1]
        if multilingual:
            multilingual.require_rows(weights)
            pair = multilingual.pair(source.pieces, self.options, search.get("forced_bos_token_id"))
        else:
            require_vocabulary_sizes(weights, (source, target), str(self.path))
            pair = self._pair(kind, config, orders)
        options = _search(search, 3 if multilingual else 2)
        return PortableModel(in_our_order(weights, source, target), pair, dropouts_of(config), options)

    def _symbols(self, kind: str, config: Mapping[str, Any]) -> list[list[str]]:
        """Return the vocabularies of source and target; one list if they are shared."""
        if kind == "fsmt":
            lists = [read_huggingface_vocabulary(self.path / f"vocab-{side}.json") for side in ("src", "tgt")]
            return lists[:1] if lists[0] == lists[1] else lists
        source = read_huggingface_vocabulary(self.path / "vocab.json")
        if config.get("share_encoder_decoder_embeddings", True) or not (self.path / "target_vocab.json").is_file():
            return [source]
        return [source, read_huggingface_vocabulary(self.path / "target_vocab.json")]

    def _specials(self, kind: str, config: Mapping[str, Any], symbols: list[str]) -> list[int | None]:
        """Return the ids of pad, unk, bos and eos in a vocabulary."""
        places = {symbol: number for number, symbol in enumerate(symbols)}
        if kind == "fsmt":
            return [places.get(special) for special in SPECIALS]
        pad, eos, start = (config.get(f"{name}_token_id") for name in ("pad", "eos", "decoder_start"))
        for name, number in (("pad", pad), ("eos", eos), ("decoder_start", eos if start is None else start)):
            if type(number) is not int or not 0 <= number < len(symbols):
                raise DataError(
                    f"{self.path / 'config.json'}: {name}_token_id={shown(number)} is not an id of the vocabulary"
                )
        bos = places.get("<s>") if start in (None, pad, eos) else start
        return [pad, places.get("<unk>"), bos, eos]

    def _pair(self, kind: str, config: Mapping[str, Any], orders: Sequence[VocabularyOrder]) -> LanguagePair:
        languages = languages_of(self.path, config, self.options)
        require_languages(*languages)
        source = self._tokenizer(kind, "source", orders[0], languages[0])
        target = self._tokenizer(kind, "target", orders[-1], languages[1])
        try:
            tokens = LanguageTokens.of_plain(config[LANGUAGES]) if LANGUAGES in config else None
        except ValueError as error:
            raise DataError(f"{self.path / 'config.json'}: {LANGUAGES}: {error}") from None
        return LanguagePair(languages[0], languages[1], source, target, len(orders) == 1, tokens).checked()

    def _tokenizer(self, kind: str, side: str, order: VocabularyOrder, language: str) -> Tokenizer:
        if kind == "fsmt":
            codes = self.path / "merges.txt"
            if not codes.is_file():
                raise MissingInputError(f"{codes} is missing; it holds the BPE merges")
            config = BpeCodesConfig(WordEnds.end_of_word, moses=True, language=language, normalize_punctuation=True)
            return BpeCodes(config, read_file(codes), order.pieces)
        model = self.path / f"{side}.spm"
        if not model.is_file():
            return WordTokenizer(WordsConfig(), order.pieces)
        return sentencepiece_of(model, order.pieces, language_tokens=any(map(is_language_token, order.pieces)))

    def _generation(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that ``generate`` uses by default."""
        path = self.path / "generation_config.json"
        more = read_json(path) if path.is_file() else {}
        return dict(config) | (more if isinstance(more, dict) else {})


# The option of ``generate`` for each stop rule; its default is False.
EARLY_STOPPING = {StopRule.first: True, StopRule.bound: "never", StopRule.estimate: False}


def _search(generation: Mapping[str, Any], others: int) -> dict[str, Any]:
    """Return the search options. ``others``: tokens of the maximum length there that are not text, such as eos."""
    longest = number_of(generation, "max_length", default=0, highest=MOST_PIECES) - others
    early = generation.get("early_stopping", False)
    return {
        "beam_size": round(number_of(generation, "num_beams", default=0, highest=WIDEST_BEAM)) or _BEAM,
        "length_penalty": LengthPenalty.power,
        "lenpen": number_of(generation, "length_penalty", default=1.0, highest=_HIGHEST_PENALTY),
        "stop": next((stop for stop, value in EARLY_STOPPING.items() if value == early), StopRule.estimate),
    } | ({"max_len_a": 0.0, "max_len_b": longest} if longest >= 1 else {})


def _require(config: Mapping[str, Any], path: Path) -> None:
    """Refuse options that our Transformer lacks."""
    activation = config.get("activation_function", "relu")
    if str(activation) not in ACTIVATIONS:
        raise DataError(f"{path} has the activation {unquoted(activation)}; nmt supports relu, gelu or swish")
    origin = str(path / "config.json")
    require_same_sides(config, ("attention_heads", "ffn_dim"), origin)
    for name in ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads"):
        required_count(config, name, origin)


def _start_of(config: Mapping[str, Any], specials: Sequence[int | None]) -> int:
    """Return our id of the first token that the decoder reads."""
    start = config.get("decoder_start_token_id")
    if start is not None and type(start) is not int:
        raise DataError(f"config.json: decoder_start_token_id={shown(start)} is not an id")
    ours = {specials[PAD]: PAD, specials[EOS]: EOS}
    return ours.get(start, BOS) if start is not None else EOS
