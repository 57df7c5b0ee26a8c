"""Folders of CTranslate2: what an export of ours wrote, and what its own converters make of models of other toolkits."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.data.imported_vocabularies import read_ctranslate2_vocabulary
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.segmentation import pair_of, stored_pair
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS
from nmt.errors import DataError
from nmt.formats import PortableModel
from nmt.formats.ctranslate2_file import ModelFile, read_model_file
from nmt.formats.order import Order, in_our_order
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Distances,
    FeedForward,
    LayerWeights,
    Linear,
    Norm,
    PositionsInHeads,
    StackWeights,
    TransformerWeights,
)
from nmt.storage.files import read_json

_KIND, _REVISION = "TransformerSpec", 7
ACTIVATIONS = {0: Activation.relu, 2: Activation.swish, 3: Activation.gelu, 6: Activation.sigmoid}
_PADDING = ("<pad>", "<blank>")  # Hugging Face's name and ours, and OpenNMT's
_ALIKE, _ALIKE_IN_BFLOAT16 = 1e-3, 4e-3  # between sinusoids as they are stored and by their formula
_LOOKED_AT = 16  # rows that tell most formulas apart
_FIRST_POSITIONS = (0, 1, 2)  # the paper's, tensor2tensor's, fairseq's
_ROTARY_BASE = 10000.0
# What changes nothing in models of ours: how several embeddings are joined, which heads align, how slopes are scaled.
_WITHOUT_MEANING = (
    "encoder.embeddings_merge decoder.alignment_layer decoder.alignment_heads decoder.alibi_use_positive_positions "
    "decoder.scale_alibi"
).split()


@dataclass
class Folder:
    """A folder for ``ctranslate2.Translator``."""

    path: Path
    given: ImportConfig

    def model(self) -> PortableModel:
        config = self._config()
        file = read_model_file(self.path / "model.bin")
        if (file.kind, file.revision) != (_KIND, _REVISION):
            raise DataError(
                f"{self.path / 'model.bin'} holds a {file.kind} of revision {file.revision}; of CTranslate2's models a "
                f"{_KIND} of revision {_REVISION} can be read, which translates"
            )
        symbols = self._symbols()
        specials = [_specials(config, some, self.path) for some in symbols]
        orders = [Order.of(some, own, str(self.path)) for some, own in zip(symbols, specials)]
        weights = _Reader(file, str(self.path / "model.bin"), config).model()
        start = self._start(config, symbols[-1], specials[-1], weights)
        for stack, some in ((weights.source, symbols[0]), (weights.target, symbols[-1])):
            if len(stack.embedding) != len(some):
                raise DataError(
                    f"{self.path} has {len(stack.embedding)} embeddings, but its vocabulary has {len(some)} pieces"
                )
        ordered = in_our_order(weights, orders[0], orders[-1])
        return PortableModel(dataclasses.replace(ordered, start=start), self._pair(orders))

    def _config(self) -> dict[str, Any]:
        path = self.path / "config.json"
        config = read_json(path)
        if not isinstance(config, dict):
            raise DataError(f"{path} is damaged: it should be a mapping")
        for name in ("unk_token", "bos_token", "eos_token", "decoder_start_token"):
            if not isinstance(config.get(name), str):
                raise DataError(f"{path}: {name}={config.get(name)!r} should be a piece of the vocabulary")
        if config.get("add_source_bos"):
            raise DataError(f"{path}: add_source_bos is true, and a source of ours begins with its first piece")
        if not config.get("add_source_eos"):
            raise DataError(
                f"{path}: add_source_eos is not true, and a source of ours ends in {config['eos_token']}; if what cuts text "
                f"for this model adds it, as tokenizers of Hugging Face do, set it to true there"
            )
        epsilon = config.get("layer_norm_epsilon")
        if epsilon is not None and (type(epsilon) is not float or not 0 < epsilon < 1):
            raise DataError(f"{path}: layer_norm_epsilon={epsilon!r} should be a number between 0 and 1")
        return config

    def _symbols(self) -> list[list[str]]:
        """The pieces of both sides in the order of their ids; a single list if they are one."""
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
        """Our id of what the decoder reads first."""
        pad, token = specials[PAD], config["decoder_start_token"]
        if weights.start == PAD:  # zeros, as Marian does: what padding has, or would have
            if pad is not None and weights.target.embedding[pad].any():
                raise DataError(
                    f"{self.path} begins translations with an embedding of zeros, and that of {symbols[pad]} is not"
                )
            return PAD
        if token not in symbols:
            raise DataError(f"{self.path / 'config.json'}: decoder_start_token={token!r} is no piece of the vocabulary")
        return {pad: PAD, specials[EOS]: EOS}.get(symbols.index(token), BOS)

    def _pair(self, orders: Sequence[Order]) -> LanguagePair:
        """By the tokenizer that an export of ours put there, or by what the options say."""
        source, target, given = orders[0], orders[-1], self.given
        stored = find_pair(self.path / "tokenizer")
        if stored is None or given.bpe is not Segmentation.none:
            return pair_of(given, source.pieces, target.pieces, shared=source == target)
        pair = stored_pair(stored, given)
        for order, side in ((source, pair.source), (target, pair.target)):
            if side.vocabulary.pieces[len(SPECIALS) :] != order.pieces:
                raise DataError(
                    f"{stored} has other pieces than the vocabulary of {self.path}; move it away, and say what cuts the "
                    f"text: --bpe"
                )
        return pair


def _specials(config: Mapping[str, Any], symbols: Sequence[str], folder: Path) -> list[int | None]:
    """Where pad, unk, bos and eos stand in one of the vocabularies. Of bos takes the place what begins translations, if that
    is neither of the others."""
    places = {symbol: number for number, symbol in enumerate(symbols)}
    unk, bos, eos, start = (places.get(config[f"{name}_token"]) for name in ("unk", "bos", "eos", "decoder_start"))
    pad = next((places[name] for name in _PADDING if name in places), None)
    if eos is None:
        raise DataError(f"{folder / 'config.json'}: eos_token={config['eos_token']!r} is no piece of the vocabulary")
    if start is not None and start not in (pad, eos):
        bos = start
    return [pad, unk, None if bos in (pad, unk, eos) else bos, eos]


@dataclass
class _Reader:
    file: ModelFile
    origin: str  # for messages
    config: Mapping[str, Any]
    width: int = 0
    heads: int = 0
    used: set[str] = field(default_factory=set)  # settings

    def __post_init__(self) -> None:
        self.tensors = Tensors(self.file.arrays, self.origin)

    def model(self) -> TransformerWeights:
        """In the order of its own vocabularies. ``start`` is PAD where translations begin with zeros, else it is still to be
        found."""
        source = self.tensors.take("encoder.embeddings_0.weight", None, None)
        self.width, self.heads = source.shape[1], self._whole("encoder.num_heads")
        others = self._whole("decoder.num_heads")
        if others != self.heads or self.heads < 1 or self.width % self.heads:
            raise DataError(
                f"{self.origin} has the width {self.width} and {self.heads} and {others} heads; in ours both sides have the "
                f"same number, and the width is a multiple of it"
            )
        target = _one_if_equal(self.tensors.take("decoder.embeddings.weight", None, self.width), source)
        output = self.tensors.linear("decoder.projection", len(target), self.width)
        weight = _one_if_equal(_one_if_equal(output.weight, target), source)
        stacks = self._stack("encoder", source), self._stack("decoder", target)
        start = PAD if self._whole("decoder.start_from_zero_embedding") else BOS
        self._require_all_known()
        return TransformerWeights(*stacks, Linear(weight, output.bias), self.heads, start)

    def _stack(self, side: str, embedding: Array) -> StackWeights:
        count = 1 + max((int(number) for number in self.tensors.numbers(rf"{side}\.layer_(\d{{1,4}})\.")), default=0)
        norm_first = bool(self._number(f"{side}.pre_norm"))
        return StackWeights(
            embedding,
            self._scale(f"{side}.scale_embeddings"),
            self._positions(side),
            tuple(self._layer(side, f"{side}.layer_{number}") for number in range(count)),
            self._norm(f"{side}.layer_norm") if norm_first else None,
            norm_first,
        )

    def _scale(self, name: str) -> float:
        """A factor, or a flag: whether it is the root of the width."""
        value, root = self._number(name), math.sqrt(self.width)
        if isinstance(value, np.integer):
            return root if value else 1.0
        return root if math.isclose(value, root, rel_tol=1e-6) else float(value)

    def _positions(self, side: str) -> Array | Sinusoids | PositionsInHeads:
        first = f"{side}.layer_0.self_attention"
        if f"{first}.relative_position_keys" in self.tensors:
            return PositionsInHeads.relative
        if f"{first}.rotary_dim" in self.file.settings:
            return PositionsInHeads.rotary
        table = self.tensors.optional(f"{side}.position_encodings.encodings", None, self.width)
        if table is None:
            return Sinusoids(self.width, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=1)
        return table if self.width % 2 else self._formula(table)

    def _formula(self, table: Array) -> Array | Sinusoids:
        """That of a table which follows one; otherwise the table."""
        alike = _ALIKE_IN_BFLOAT16 if self.file.in_bfloat16 else _ALIKE
        for layout, wavelengths, offset in itertools.product(SinusoidLayout, Wavelengths, _FIRST_POSITIONS):
            formula = Sinusoids(self.width, layout, wavelengths, offset=offset)
            if all(
                np.allclose(part, formula.table(len(part)), atol=alike, rtol=0) for part in (table[:_LOOKED_AT], table)
            ):
                return formula
        return table

    def _layer(self, side: str, name: str) -> LayerWeights:
        reads = side == "decoder"
        return LayerWeights(
            self._self_attention(f"{name}.self_attention", ahead=not reads),
            self._norm(f"{name}.self_attention.layer_norm"),
            self._cross_attention(f"{name}.attention") if reads else None,
            self._norm(f"{name}.attention.layer_norm") if reads else None,
            self._feed_forward(f"{name}.ffn", self._activation(side)),
            self._norm(f"{name}.ffn.layer_norm"),
        )

    def _self_attention(self, name: str, *, ahead: bool) -> Attention:
        self._require_rotation(name)
        query, key, value = _parts(self.tensors.linear(f"{name}.linear_0", 3 * self.width, self.width), 3)
        output = self.tensors.linear(f"{name}.linear_1", self.width, self.width)
        return Attention(query, key, value, output, self._scale_of_scores(name), self._distances(name, ahead=ahead))

    def _cross_attention(self, name: str) -> Attention:
        query = self.tensors.linear(f"{name}.linear_0", self.width, self.width)
        key, value = _parts(self.tensors.linear(f"{name}.linear_1", 2 * self.width, self.width), 2)
        output = self.tensors.linear(f"{name}.linear_2", self.width, self.width)
        return Attention(query, key, value, output, self._scale_of_scores(name))

    def _scale_of_scores(self, name: str) -> float:
        usual = 1 / math.sqrt(self.width // self.heads)
        scale = float(self._number(f"{name}.queries_scale", usual))
        if math.isclose(scale, usual, rel_tol=1e-6):
            return usual
        if scale != 1.0:
            raise DataError(f"{self.origin} has {name}.queries_scale={scale:g}; ours are {usual:g} or 1")
        return scale

    def _require_rotation(self, name: str) -> None:
        """That of pairs of neighbours, over whole heads."""
        size, whole = self._number(f"{name}.rotary_dim", None), self.width // self.heads
        pairs = self._number(f"{name}.rotary_interleave", 1)
        base = self._number(f"{name}.rotary_base", _ROTARY_BASE)
        if size is not None and (size not in (0, whole) or not pairs or base != _ROTARY_BASE):
            raise DataError(
                f"{self.origin} turns {size} of {whole} numbers of a head, {'in pairs' if pairs else 'in halves'} and with "
                f"base {base:g}; ours turn all, in pairs and with base {_ROTARY_BASE:g}"
            )

    def _distances(self, name: str, *, ahead: bool) -> Distances | None:
        """A decoder sees nothing ahead, for which there are vectors nevertheless. Ours have some for each head."""
        size = self.width // self.heads
        keys = self.tensors.optional(f"{name}.relative_position_keys", None, size)
        if keys is None:
            return None
        values = self.tensors.take(f"{name}.relative_position_values", len(keys), size)
        seen = len(keys) if ahead else len(keys) // 2 + 1
        return Distances(*(np.repeat(one[None, :seen], self.heads, axis=0) for one in (keys, values)))

    def _feed_forward(self, name: str, activation: Activation) -> FeedForward:
        inner = self.tensors.linear(f"{name}.linear_0", None, self.width)
        gate = None
        if f"{name}.linear_0_noact.weight" in self.tensors:
            gate = self.tensors.linear(f"{name}.linear_0_noact", len(inner.weight), self.width)
        outer = self.tensors.linear(f"{name}.linear_1", self.width, len(inner.weight))
        return FeedForward(inner, outer, activation, gate)

    def _activation(self, side: str) -> Activation:
        number = self._whole(f"{side}.activation")
        if number not in ACTIVATIONS:
            raise DataError(
                f"{self.origin} has {side}.activation={number}, an approximation of gelu or tanh; ours are relu, gelu "
                f"by the error function, swish and sigmoid"
            )
        return ACTIVATIONS[number]

    def _norm(self, name: str) -> Norm:
        weight, bias = self.tensors.take(f"{name}.gamma", self.width), self.tensors.optional(f"{name}.beta", self.width)
        usual = 1e-6 if bias is None else 1e-5
        return Norm(weight, bias, self.config.get("layer_norm_epsilon") or usual)

    def _number(self, name: str, *usual: Any) -> Any:
        """A setting, or what is usual where there is none."""
        self.used.add(name)
        if name not in self.file.settings and not usual:
            raise DataError(f"{self.origin} does not say {name}: it is damaged, or a model of another kind")
        return self.file.settings.get(name, *usual)

    def _whole(self, name: str) -> int:
        return int(self._number(name, 0))

    def _require_all_known(self) -> None:
        """Zero is no in most settings, and those of models that have none of it are written as well."""
        self.tensors.require_all_read()
        for name, value in self.file.settings.items():
            if value and name not in self.used and name not in _WITHOUT_MEANING:
                raise DataError(f"{self.origin} has {name}={value:g}, which no model of ours has")


def _one_if_equal(array: Array, other: Array) -> Array:
    """Shared matrices are one array."""
    return other if array is other or np.array_equal(array, other) else array


def _parts(linear: Linear, count: int) -> list[Linear]:
    """The maps of D that stand one below the other in a joint matrix."""
    biases = [None] * count if linear.bias is None else np.split(linear.bias, count)
    return [Linear(*some) for some in zip(np.split(linear.weight, count), biases)]
