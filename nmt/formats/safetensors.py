"""Our own description of a Transformer in two files: its arrays under plain names, and beside them all that is no array.

    model.safetensors    source.embedding, source.layers.0.self_attention.query.weight, ..., output.weight
    description.json     heads, activation, order of norms, positions, scales; which names stand for the same array
    tokenizer/           what cuts text, as in every model folder

``nmt.models.transformer.weights`` says what each name means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.config.plain import component_from_plain, from_plain, to_plain
from nmt.data.segmentation import stored_pair
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import DataError, UsageError
from nmt.formats import Format, PortableModel, formats
from nmt.formats.layers import DROPOUTS, number_of
from nmt.formats.model_card import TEXT, cut_by_sentencepiece, example, pieces_for
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Distances,
    FeedForward,
    LayerWeights,
    Norm,
    PositionsInHeads,
    Recurrence,
    StackWeights,
    TransformerWeights,
    arrays_of,
)
from nmt.search.config import BeamConfig
from nmt.storage.checkpoints import mapped_tensors
from nmt.storage.files import read_json, write_json
from nmt.storage.run_folder import split_paths

_FORMAT = 1
_ARRAYS, _DESCRIPTION, _TOKENIZER = "model.safetensors", "description.json", "tokenizer"


@dataclass(frozen=True)
class Stack:
    """What an encoder or a decoder has besides arrays."""

    scale: float  # of the embeddings
    norm_first: bool
    positions: Sinusoids | PositionsInHeads | None  # None: learned, in the array "positions"


@dataclass(frozen=True)
class Description:
    """What a model has besides arrays."""

    format: int
    num_heads: int
    start: int  # id of what the decoder reads first
    activation: Activation
    attention_scale: float
    norm_epsilon: float
    source: Stack
    target: Stack
    same: Any  # names of arrays that are one, and the name that this one is stored under
    training: Any  # its dropouts
    search: Any = None  # that it was validated with


@formats.register("safetensors", make_dataclass("SafetensorsConfig", ()))
class Safetensors(Format):
    """Holds every Transformer that can be described."""

    name = "safetensors"
    whole = True

    def read(self, given: ImportConfig) -> list[PortableModel]:
        return [_read(Path(path), given) for path in split_paths(given.path)]

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        from safetensors.numpy import save

        stored, same = _each_once(model.weights)
        (folder / _ARRAYS).write_bytes(save(stored))
        write_json(folder / _DESCRIPTION, to_plain(_described(model, same)))
        model.pair.save(folder / _TOKENIZER)

    def usage(self, model: PortableModel) -> str:
        return example(_USAGE, text=TEXT if cut_by_sentencepiece(model) else " ".join(pieces_for(model)))


_USAGE = """It translates in nmt (`pip install nmt-toolkit`). Others find the arrays under plain names in `model.safetensors`
and all else in `description.json`; matrices map their second axis to their first.

import json
import nmt
from safetensors.numpy import load_file

folder = "."  # where this file stands
with open(f"{folder}/description.json", encoding="utf-8") as file:
    description = json.load(file)
arrays = load_file(f"{folder}/model.safetensors")
arrays |= {name: arrays[other] for name, other in description["same"].items()}
print(description["num_heads"], "heads,", arrays["source.embedding"].shape[1], "numbers")

(imported,) = nmt.import_model(folder, "imported", from_format="safetensors")
print(nmt.load(imported).translate(["$text"])[0])
"""


def _each_once(weights: TransformerWeights) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays by their first names, and what else they are called."""
    names: dict[int, str] = {}
    stored, same = dict[str, Array](), dict[str, str]()
    for name, array in arrays_of(weights):
        if names.setdefault(id(array), name) == name:
            stored[name] = np.ascontiguousarray(array, dtype=np.float32)
        else:
            same[name] = names[id(array)]
    return stored, same


def _described(model: PortableModel, same: dict[str, str]) -> Description:
    weights, first = model.weights, model.weights.source.layers[0]
    return Description(
        format=_FORMAT,
        num_heads=weights.num_heads,
        start=weights.start,
        activation=first.feed_forward.activation,
        attention_scale=first.attention.scale,
        norm_epsilon=first.self_norm.epsilon,
        source=_stack(weights.source),
        target=_stack(weights.target),
        same=same,
        training=dict(model.training),
        search=BeamConfig(**model.search) if model.search else None,
    )


def _stack(stack: StackWeights) -> Stack:
    positions = stack.positions
    return Stack(stack.scale, stack.norm_first, None if isinstance(positions, np.ndarray) else positions)


def _read(folder: Path, given: ImportConfig) -> PortableModel:
    path = folder / _DESCRIPTION
    tree = read_json(path)
    if isinstance(tree, dict) and tree.get("format") != _FORMAT:
        raise DataError(f"{path} has format {tree.get('format')!r}; this version reads format {_FORMAT}")
    try:
        description = from_plain(Description, tree, origin=str(path))
    except TypeError as error:  # of the dataclass: a field is missing
        raise DataError(f"{path} is damaged: {error}") from None
    _require_sense(description, path)
    stored: dict[str, Array] = {name: np.asarray(one) for name, one in mapped_tensors(folder / _ARRAYS).items()}
    for name, first in description.same.items():
        if first not in stored or name in stored:
            raise DataError(f"{path}: {name!r} is to be the same as {first!r}, which cannot be")
    tensors = Tensors(stored | {name: stored[first] for name, first in description.same.items()}, str(folder / _ARRAYS))
    weights = _Reader(tensors, description).model()
    tensors.require_all_read()
    options = description.training
    training = {name: number_of(options, name, default=0.0, highest=0.99) for name in DROPOUTS if name in options}
    return PortableModel(weights, stored_pair(folder / _TOKENIZER, given), training, _search(description, path))


def _require_sense(description: Description, path: Path) -> None:
    names = {"num_heads": description.num_heads, "norm_epsilon": description.norm_epsilon}
    names |= {"attention_scale": description.attention_scale}
    for name, number in names.items():
        if not 0 < number < math.inf:
            raise DataError(f"{path}: {name}={number:g} should be above zero")
    if description.start not in (PAD, BOS, EOS):
        raise DataError(f"{path}: start={description.start} should be {PAD}, {BOS} or {EOS}: padding, beginning or end")
    for name, mapping in (("same", description.same), ("training", description.training)):
        if not isinstance(mapping, dict) or (
            name == "same" and not all(isinstance(one, str) for one in mapping.values())
        ):
            raise DataError(f"{path}: {name}={mapping!r} should be a mapping of names")


def _search(description: Description, path: Path) -> Mapping[str, Any]:
    if description.search is None:
        return {}
    try:
        search = component_from_plain("search", description.search, origin=str(path))
    except UsageError as error:  # said of options, which here are the file's
        raise DataError(f"{path}: {error}") from None
    return vars(search) if type(search) is BeamConfig else {}


@dataclass
class _Reader:
    tensors: Tensors
    description: Description
    width: int = 0

    def model(self) -> TransformerWeights:
        embeddings = [self.tensors.take(f"{side}.embedding", None, self.width or None) for side in ("source", "target")]
        self.width = embeddings[0].shape[1]
        output = self.tensors.linear("output", len(embeddings[1]), self.width)
        stacks = [
            self._stack(side, embedding, stack)
            for side, embedding, stack in zip(
                ("source", "target"), embeddings, (self.description.source, self.description.target)
            )
        ]
        return TransformerWeights(stacks[0], stacks[1], output, self.description.num_heads, self.description.start)

    def _stack(self, side: str, embedding: Array, stack: Stack) -> StackWeights:
        count = 1 + max((int(number) for number in self.tensors.numbers(rf"{side}\.layers\.(\d{{1,4}})\.")), default=0)
        positions = stack.positions
        if isinstance(positions, Sinusoids) and positions.width != self.width:
            raise DataError(
                f"{self.tensors.origin} has the width {self.width}, and its description positions of {positions.width}"
            )
        return StackWeights(
            embedding,
            stack.scale,
            self.tensors.take(f"{side}.positions", None, self.width) if positions is None else positions,
            tuple(self._layer(f"{side}.layers.{number}", reads=side == "target") for number in range(count)),
            self._norm(f"{side}.norm") if stack.norm_first else None,
            stack.norm_first,
        )

    def _layer(self, name: str, *, reads: bool) -> LayerWeights:
        return LayerWeights(
            self._look(f"{name}.self_attention", reads=reads),
            self._norm(f"{name}.self_norm"),
            self._attention(f"{name}.cross_attention") if reads else None,
            self._norm(f"{name}.cross_norm") if reads else None,
            self._feed_forward(f"{name}.feed_forward"),
            self._norm(f"{name}.feed_forward_norm"),
        )

    def _look(self, name: str, *, reads: bool) -> Attention | Recurrence:
        if not reads or f"{name}.forget.weight" not in self.tensors:
            return self._attention(name)
        forget, written = (
            self.tensors.linear(f"{name}.{part}", self.width, self.width) for part in ("forget", "input")
        )
        return Recurrence(forget, written)

    def _attention(self, name: str) -> Attention:
        query = self.tensors.linear(f"{name}.query", None, self.width)
        key = self.tensors.linear(f"{name}.key", len(query.weight), self.width)
        value = self.tensors.linear(f"{name}.value", None, self.width)
        output = self.tensors.linear(f"{name}.output", self.width, len(value.weight))
        scale, usual = self.description.attention_scale, (len(query.weight) // self.description.num_heads) ** -0.5
        if scale not in (1.0, usual):
            raise DataError(f"{self.tensors.origin} has attention_scale={scale:g}; ours are {usual:g} or 1")
        keys, distances = self.tensors.optional(f"{name}.distances.keys", None, None, None), None
        if keys is not None:
            distances = Distances(keys, self.tensors.take(f"{name}.distances.values", *keys.shape[:2], None))
        return Attention(query, key, value, output, scale, distances)

    def _feed_forward(self, name: str) -> FeedForward:
        inner, gate = self.tensors.linear(f"{name}.inner", None, self.width), None
        if f"{name}.gate.weight" in self.tensors:
            gate = self.tensors.linear(f"{name}.gate", len(inner.weight), self.width)
        outer = self.tensors.linear(f"{name}.outer", self.width, len(inner.weight))
        return FeedForward(inner, outer, self.description.activation, gate)

    def _norm(self, name: str) -> Norm:
        weight = self.tensors.take(f"{name}.weight", self.width)
        return Norm(weight, self.tensors.optional(f"{name}.bias", self.width), self.description.norm_epsilon)
