"""Marian's own models: an archive of numpy (.npz) with the options of the model in it, and vocabularies beside it.

OPUS-MT publishes folders of them with a ``decoder.yml`` that names everything; ``marian train`` leaves such a file beside
each model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import yaml

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.data.imported_vocabularies import is_sentencepiece, read_marian_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.segmentation import sentencepiece_of, tokenizer_of
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.sentencepiece_list import is_language_token
from nmt.data.vocabulary import PAD
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats import Format, PortableModel, formats
from nmt.formats.layers import count_of, number_of
from nmt.formats.order import Order, in_our_order
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    FeedForward,
    LayerWeights,
    Linear,
    Norm,
    StackWeights,
    TransformerWeights,
)
from nmt.search.config import LengthPenalty, StopRule
from nmt.storage.npz import read_npz
from nmt.storage.run_folder import split_paths

_OPTIONS = "special:model.yml"
_DECODER = "decoder.yml"
_EPSILON = 1e-6
_UNK, _EOS = "<unk>", "</s>"
_FACTORED = ".fsv"
_BEAM, _WIDEST_BEAM, _HIGHEST_PENALTY = 12, 1000, 10.0
_LONGEST, _HIGHEST_FACTOR = 3.0, 100.0  # of a translation, in lengths of the source
_ACTIVATIONS = {"relu": Activation.relu, "swish": Activation.swish}
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Options of the model, and the values with which ours has it too.
_HELD: dict[str, tuple[object, ...]] = {
    "type": ("transformer",),
    "input-types": ([], None),
    "right-left": (False,),
    "ulr": (False,),
    "lemma-dim-emb": (0,),
    "transformer-pool": (False,),
    "transformer-no-projection": (False,),
    "transformer-no-affine": (False,),
    "transformer-rnn-projection": (False,),
    "transformer-tied-layers": ([], None),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-attention-mask": ("default",),
    "transformer-disable-position-embeddings": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": tuple(_ACTIVATIONS),
    "transformer-postprocess-emb": ("", "d"),
}


@formats.register("marian", make_dataclass("MarianConfig", ()))
class Marian(Format):
    """Reads what ``marian train`` wrote; several models are an ensemble."""

    name = "marian"

    def read(self, given: ImportConfig) -> list[PortableModel]:
        found = _Files.of(given)
        for path in found.vocabularies:
            if path.suffix == _FACTORED:
                raise DataError(f"{path} is a vocabulary of factors, which no model of ours has")
        vocabularies = [read_marian_vocabulary(path) for path in found.vocabularies]
        models = [_read_model(path, [len(symbols) for symbols in vocabularies]) for path in found.models]
        sizes = {(len(one.source.embedding), len(one.target.embedding)) for one in models}
        if len(sizes) > 1:
            raise UsageError(f"{given.path}: the models have different vocabularies, and cannot be an ensemble")
        orders = [_order(symbols[:size], path) for symbols, size, path in zip(vocabularies, *sizes, found.vocabularies)]
        same = orders[0] == orders[1]
        pair = found.pair(orders, same=same)
        orders = [orders[0], orders[0]] if same else orders
        return [PortableModel(in_our_order(one, *orders), pair, {}, found.search()) for one in models]


def _order(symbols: list[str], path: Path) -> Order:
    for special in (_UNK, _EOS):
        if special not in symbols:
            raise DataError(f"{path} has no piece {special}, and every vocabulary of Marian has one")
    bos = symbols.index("<s>") if "<s>" in symbols else None
    return Order.of(symbols, (None, symbols.index(_UNK), bos, symbols.index(_EOS)), str(path))


@dataclass(frozen=True)
class _Files:
    """What belongs to a model, by the command line and by Marian's own list of it."""

    given: ImportConfig
    models: Sequence[Path]
    vocabularies: Sequence[Path]  # of source and target
    listed: Mapping[str, Any]  # the options that Marian decodes with

    @classmethod
    def of(cls, given: ImportConfig) -> _Files:
        """``given.path``: models, a folder with a decoder.yml, or such a file."""
        if not (given.source_lang and given.target_lang):
            raise UsageError("name the languages of the model: --source-lang en --target-lang de")
        paths = [Path(path) for path in split_paths(given.path)]
        list_of = paths[0] / _DECODER if paths[0].is_dir() else paths[0]
        if list_of.suffix not in (".yml", ".yaml"):
            list_of = paths[0].with_name(f"{paths[0].name}.{_DECODER}")
        elif len(paths) > 1:
            raise UsageError(f"{given.path} names several lists of models; name one, or the models (.npz) themselves")
        elif not list_of.is_file():
            raise MissingInputError(f"{list_of} is missing; name the model itself: --path {paths[0] / 'model.npz'}")
        else:
            paths = []
        listed = _yaml(list_of.read_bytes(), str(list_of)) if list_of.is_file() else {}
        models = paths or _listed(listed, "models", list_of)
        if given.tgtdict and not given.srcdict:
            raise UsageError(f"--tgtdict {given.tgtdict} names the vocabulary of the targets alone; give --srcdict too")
        vocabularies = [Path(path) for path in (given.srcdict, given.tgtdict or given.srcdict) if path]
        if not vocabularies:
            if "vocabs" not in listed:
                raise UsageError(
                    f"name the vocabularies of {given.path}: --srcdict FILE, and --tgtdict FILE if the targets have another"
                )
            vocabularies = _listed(listed, "vocabs", list_of)
        if len(vocabularies) != 2:
            raise DataError(f"{list_of} names {len(vocabularies)} vocabularies, and a model of ours has two")
        return cls(given, models, vocabularies, listed)

    def pair(self, orders: Sequence[Order], *, same: bool) -> LanguagePair:
        source, target = (self._tokenizer(number, order) for number, order in enumerate(orders))
        return LanguagePair(self.given.source_lang, self.given.target_lang, source, target, same)

    def _tokenizer(self, number: int, order: Order) -> Tokenizer:
        """Of source (0) or target (1)."""
        if self.given.bpe is Segmentation.none and self.given.bpe_model is None and not self.given.moses:
            if is_sentencepiece(self.vocabularies[number]):
                return sentencepiece_of(self.vocabularies[number], order.pieces)
            beside = self.models[0].parent / ("source.spm", "target.spm")[number]  # as OPUS-MT has it
            if beside.is_file():
                tagged = any(map(is_language_token, order.pieces))
                return sentencepiece_of(beside, order.pieces, language_tokens=tagged)
        return tokenizer_of(self.given, order.pieces, target=number == 1)

    def search(self) -> dict[str, Any]:
        """As Marian would search by default."""
        beam = round(number_of(self.listed, "beam-size", default=0, highest=_WIDEST_BEAM))
        return {
            "beam_size": beam or _BEAM,
            "length_penalty": LengthPenalty.power,
            "lenpen": number_of(self.listed, "normalize", default=0.0, highest=_HIGHEST_PENALTY),
            "stop": StopRule.shrink,
            "max_len_a": number_of(self.listed, "max-length-factor", default=_LONGEST, highest=_HIGHEST_FACTOR),
            "forbid_unknown": self.listed.get("allow-unk") is not True,
        }


def _listed(listed: Mapping[str, Any], name: str, list_of: Path) -> list[Path]:
    """Files that a list names: from its folder or from here, as it says; beside it, if they are not there any more."""
    names = listed.get(name)
    if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
        raise DataError(f"{list_of} names no {name}; name them on the command line")
    folder = list_of.parent if listed.get("relative-paths") else Path()
    paths = [folder / one for one in names]
    return [path if path.is_file() else list_of.parent / path.name for path in paths]


def _yaml(content: bytes, origin: str) -> dict[str, Any]:
    try:
        tree = yaml.load(content.rstrip(b"\0").decode("utf-8"), _LOADER)  # text, numbers, lists and mappings only
    except (yaml.YAMLError, ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise DataError(f"{origin} is damaged: it is no list of options in YAML")
    return tree


def _read_model(path: Path, pieces: Sequence[int]) -> TransformerWeights:
    """``pieces``: how many the vocabularies have; a model may know the first of them only."""
    arrays = read_npz(path)
    if _OPTIONS not in arrays:
        raise DataError(f"{path} holds no options ({_OPTIONS}): it is no model that marian train wrote")
    options = _yaml(arrays.pop(_OPTIONS).tobytes(), f"{path}: {_OPTIONS}")
    _require(options, str(path))
    tensors = Tensors(arrays, str(path))
    weights = _Reader(tensors, options).model()
    tensors.require_all_read()
    for stack, there, side in zip((weights.source, weights.target), pieces, ("source", "target")):
        if len(stack.embedding) > there:
            raise DataError(
                f"{path} has {len(stack.embedding)} {side} pieces, but the vocabulary has {there}; give the vocabularies "
                f"that it was trained with (--srcdict, --tgtdict)"
            )
    return weights


def _require(options: Mapping[str, Any], path: str) -> None:
    """Refuse what ours is not."""
    for name, values in _HELD.items():
        if name in options and options[name] not in values:
            reads = " or ".join(str(value) or "nothing" for value in values if value is not None)
            raise DataError(f"{path} was trained with {name}={options[name]}; what can be read has {reads}")
    inner = [options.get("transformer-dim-ffn"), options.get("transformer-decoder-dim-ffn")]
    if inner[1] and inner[1] != inner[0]:
        raise DataError(
            f"{path} has inner widths of {inner[0]} in its encoder and {inner[1]} in its decoder; in ours they are the same"
        )


@dataclass
class _Reader:
    tensors: Tensors
    options: Mapping[str, Any]

    def model(self) -> TransformerWeights:
        heads = self._count("transformer-heads")
        if self._width % heads or self._width % 2:
            raise DataError(
                f"{self.tensors.origin} has dim-emb={self._width} and transformer-heads={heads}: the width must be even, "
                f"and a multiple of the heads"
            )
        source, target = (self._embedding(side) for side in ("encoder", "decoder"))
        output = target
        if "decoder_ff_logit_out_Wt" in self.tensors:
            output = self.tensors.take("decoder_ff_logit_out_Wt", len(target), self._width)
        elif "decoder_ff_logit_out_W" in self.tensors:  # of older versions
            output = self.tensors.take("decoder_ff_logit_out_W", self._width, len(target)).T
        bias = self._row("decoder_ff_logit_out_b", len(target))
        stacks = self._stack("encoder", source), self._stack("decoder", target)
        start = PAD  # which has no row there, so a row of zeros here: Marian's decoder begins with zeros
        return TransformerWeights(*stacks, Linear(output, bias), heads, start)

    @property
    def _width(self) -> int:
        return self._count("dim-emb")

    def _count(self, name: str) -> int:
        found = count_of(self.options, name, self.tensors.origin)
        if found is None:
            raise DataError(f"{self.tensors.origin} does not say {name}")
        return found

    def _embedding(self, side: str) -> Array:
        name = "Wemb" if "Wemb" in self.tensors else f"{side}_Wemb"
        return self.tensors.take(name, None, self._width)

    def _stack(self, side: str, embedding: Array) -> StackWeights:
        norm_first = self._norm_first()
        count = self._count(f"{side[:3]}-depth")
        return StackWeights(
            embedding,
            math.sqrt(self._width),
            Sinusoids(self._width, SinusoidLayout.halves, Wavelengths.tensor2tensor),
            tuple(self._layer(f"{side}_l{number}", side == "decoder") for number in range(1, count + 1)),
            self._norm(f"{side}_top", "") if norm_first else None,
            norm_first,
        )

    def _norm_first(self) -> bool:
        """Marian spells what happens before and after each sublayer, and after the last: d dropout, a add, n normalise, r
        the same by the root of the mean square. Dropout means nothing here."""
        names = [f"transformer-{place}" for place in ("preprocess", "postprocess", "postprocess-top")]
        before, after, top = (str(self.options.get(name) or "").replace("d", "").replace("r", "n") for name in names)
        if (before, after, top) not in (("n", "a", "n"), ("", "an", "")):
            given = ", ".join(f"{name}={self.options.get(name) or ''}" for name in names)
            raise DataError(
                f"{self.tensors.origin} has {given}; what can be read has norms after each sublayer (dan), or before it "
                f"and at the top (n, da, n)"
            )
        return bool(before)

    def _layer(self, name: str, reads: bool) -> LayerWeights:
        return LayerWeights(
            self._attention(f"{name}_self"),
            self._sublayer_norm(f"{name}_self_Wo"),
            self._attention(f"{name}_context") if reads else None,
            self._sublayer_norm(f"{name}_context_Wo") if reads else None,
            self._feed_forward(f"{name}_ffn"),
            self._sublayer_norm(f"{name}_ffn_ffn"),
        )

    def _sublayer_norm(self, name: str) -> Norm:
        return self._norm(name, "_pre" if self._norm_first() else "")

    def _norm(self, name: str, ending: str) -> Norm:
        if f"{name}_rms_scale{ending}" in self.tensors:
            weight = self.tensors.take(f"{name}_rms_scale{ending}", 1, self._width)
            return Norm(weight.reshape(-1), None, _EPSILON)
        weight, bias = (self.tensors.take(f"{name}_ln_{part}{ending}", 1, self._width) for part in ("scale", "bias"))
        return Norm(weight.reshape(-1), bias.reshape(-1), _EPSILON)

    def _attention(self, name: str) -> Attention:
        width = self._width
        query, key, value, output = (self._linear(name, part, width, width) for part in "qkvo")
        return Attention(query, key, value, output, (width // self._count("transformer-heads")) ** -0.5)

    def _feed_forward(self, name: str) -> FeedForward:
        inner = self._linear(name, "1", self._width, None)
        outer = self._linear(name, "2", len(inner.weight), self._width)
        return FeedForward(inner, outer, _ACTIVATIONS[str(self.options.get("transformer-ffn-activation", "swish"))])

    def _linear(self, name: str, part: str, inputs: int, outputs: int | None) -> Linear:
        """Matrices stand transposed there."""
        weight = self.tensors.take(f"{name}_W{part}", inputs, outputs)
        return Linear(weight.T, self._row(f"{name}_b{part}", weight.shape[1]))

    def _row(self, name: str, size: int) -> Array | None:
        row = self.tensors.optional(name, 1, size)
        return None if row is None else row.reshape(-1)
