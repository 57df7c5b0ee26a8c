"""Our own format: a Transformer as arrays under plain names, and a JSON file with its other properties.

    model.safetensors    source.embedding, source.layers.0.self_attention.query.weight, ..., output.weight
    description.json     heads, activation, order of norms, positions, scales; which names stand for the same array
    tokenizer/           as in every model folder

``nmt.models.transformer.weights`` says what each name means.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt import REPOSITORY
from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.config.plain import component_from_plain, from_plain, to_plain
from nmt.data.imported.tokenizers import stored_pair
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import DataError, UsageError, shown
from nmt.formats import Format, PortableModel, formats
from nmt.formats.layout import ArrayTable, FormatLayout, LayoutReader, Positions
from nmt.formats.model_card import TEXT, cut_by_sentencepiece, example, pieces_for
from nmt.formats.stored_options import DROPOUTS, number_of
from nmt.formats.tensors import Tensors
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Buckets,
    Distances,
    PositionsInHeads,
    Recurrence,
    StackWeights,
    TransformerWeights,
    arrays_of,
)
from nmt.search.config import BeamConfig
from nmt.storage.files import write_json
from nmt.storage.reading import read_json
from nmt.storage.run_folder import split_paths
from nmt.storage.tensor_file import mapped_tensors

# The names are those of the plain description, so ``arrays_of`` writes the file without a table.
LAYOUT = FormatLayout(
    layer="{side}.layers.{number}.",
    self_attention={f"self_attention.{part}.*": part for part in ("query", "key", "value", "output")},
    cross_attention={f"cross_attention.{part}.*": part for part in ("query", "key", "value", "output")},
    feed_forward={f"feed_forward.{part}.*": part for part in ("inner", "gate", "outer")},
    norms=("self_norm.*", "cross_norm.*", "feed_forward_norm.*"),
    final_norm="{side}.norm.*",
    embeddings=("source.embedding", "target.embedding"),
    output="output",
    positions="{side}.positions",
    embedding_norm="{side}.embedding_norm.*",
    sides=("source", "target"),
    any_head_size=True,
)
_RECURRENCE = {"self_attention.forget.*": "forget", "self_attention.input.*": "input"}
_FORMAT = 1
_ARRAYS, _DESCRIPTION, _TOKENIZER = "model.safetensors", "description.json", "tokenizer"


@dataclass(frozen=True)
class StackSettings:
    """What an encoder or a decoder has besides arrays."""

    scale: float  # of the embeddings
    norm_first: bool
    positions: Sinusoids | PositionsInHeads | None  # None: learned, in the array "positions"
    bucket_distance: int | None = None  # of buckets, in the array "positions.table"


@dataclass(frozen=True)
class Description:
    """What a model has besides arrays."""

    format: int
    num_heads: int
    start: int  # id of the first token that the decoder reads
    activation: Activation
    attention_scale: float
    norm_epsilon: float
    source: StackSettings
    target: StackSettings
    same: Any  # for each array stored under another name: that name
    training: Any  # dropout rates
    search: Any = None  # options of the validation


@formats.register("safetensors", make_dataclass("SafetensorsConfig", ()))
class Safetensors(Format):
    """Stores every Transformer that has a plain description."""

    name = "safetensors"
    has_tokenizers = True

    def recognizes(self, folder: Path) -> bool:
        return (folder / _DESCRIPTION).is_file()

    def read(self, options: ImportConfig) -> list[PortableModel]:
        return [_read(Path(path), options) for path in split_paths(options.path)]

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        from safetensors.numpy import save

        stored, same = _each_once(model.weights)
        (folder / _ARRAYS).write_bytes(save(stored))
        write_json(folder / _DESCRIPTION, to_plain(_described(model, same)))
        model.pair.save(folder / _TOKENIZER)

    def usage(self, model: PortableModel) -> str:
        return example(_NEEDS + _USAGE, text=TEXT if cut_by_sentencepiece(model) else " ".join(pieces_for(model)))


_NEEDS = f"""The example needs nmt: {REPOSITORY}. Other programs read the named arrays in `model.safetensors` and
everything else in `description.json`; matrices map their second axis to their first.
"""
_USAGE = """
import json
import nmt
from safetensors.numpy import load_file

folder = "."  # the folder of this file
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
        source=_stack_settings(weights.source),
        target=_stack_settings(weights.target),
        same=same,
        training=dict(model.training),
        search=BeamConfig(**model.search) if model.search else None,
    )


def _stack_settings(stack: StackWeights) -> StackSettings:
    positions = stack.positions
    if isinstance(positions, Buckets):
        return StackSettings(stack.scale, stack.norm_first, None, positions.reach)
    return StackSettings(stack.scale, stack.norm_first, None if isinstance(positions, np.ndarray) else positions)


def _read(folder: Path, options: ImportConfig) -> PortableModel:
    path = folder / _DESCRIPTION
    tree = read_json(path)
    if isinstance(tree, dict) and tree.get("format") != _FORMAT:
        raise DataError(f"{path} has format {shown(tree.get('format'))}; this version reads format {_FORMAT}")
    try:
        description = from_plain(Description, tree, origin=str(path))
    except TypeError as error:  # of the dataclass: a field is missing
        raise DataError(f"{path} is damaged: {error}") from None
    _require_sense(description, path)
    stored: dict[str, Array] = {name: np.asarray(tensor) for name, tensor in mapped_tensors(folder / _ARRAYS).items()}
    for name, first in description.same.items():
        if first not in stored or name in stored:
            raise DataError(f"{path}: {name!r} is an invalid alias of {first!r}")
    tensors = Tensors(stored | {name: stored[first] for name, first in description.same.items()}, str(folder / _ARRAYS))
    weights = _read_weights(tensors, description)
    tensors.require_all_read()
    stored_dropouts = description.training
    training = {
        name: number_of(stored_dropouts, name, default=0.0, highest=0.99)
        for name in DROPOUTS
        if name in stored_dropouts
    }
    return PortableModel(weights, stored_pair(folder / _TOKENIZER, options), training, _search(description, path))


def _require_sense(description: Description, path: Path) -> None:
    names = {"num_heads": description.num_heads, "norm_epsilon": description.norm_epsilon}
    names |= {"attention_scale": description.attention_scale}
    for name, number in names.items():
        if not 0 < number < math.inf:
            raise DataError(f"{path}: {name}={number:g} must be above zero")
    if description.start not in (PAD, BOS, EOS):
        raise DataError(f"{path}: start={description.start} must be {PAD}, {BOS} or {EOS}: padding, beginning or end")
    for name, mapping in (("same", description.same), ("training", description.training)):
        if not isinstance(mapping, dict) or (
            name == "same" and not all(isinstance(value, str) for value in mapping.values())
        ):
            raise DataError(f"{path}: {name}={shown(mapping)} must be a mapping of names")


def _search(description: Description, path: Path) -> Mapping[str, Any]:
    if description.search is None:
        return {}
    try:
        search = component_from_plain("search", description.search, origin=str(path))
    except UsageError as error:  # said of options, which here are the file's
        raise DataError(f"{path}: {error}") from None
    return vars(search) if type(search) is BeamConfig else {}


def _read_weights(tensors: Tensors, description: Description) -> TransformerWeights:
    source = tensors.take(LAYOUT.embeddings[0], None, None)
    width = source.shape[1]
    target = tensors.take(LAYOUT.embeddings[1], None, width)
    output = tensors.linear(LAYOUT.output, len(target), width)
    has_bias = LAYOUT.layer_name("source", 0) + "self_norm.bias" in tensors
    layout = LAYOUT if has_bias else replace(LAYOUT, norm_names=("weight", ""))
    reader = _SafetensorsLayers(
        tensors,
        layout,
        width,
        description.num_heads,
        description.activation,
        description.norm_epsilon,
        description.attention_scale,
    )
    stacks = (
        reader.described_stack("source", source, description.source),
        reader.described_stack("target", target, description.target),
    )
    return TransformerWeights(*stacks, output, description.num_heads, description.start)


@dataclass
class _SafetensorsLayers(LayoutReader):
    attention_scale: float

    def described_stack(self, side: str, embedding: Array, settings: StackSettings) -> StackWeights:
        positions: Positions | None = settings.positions
        if isinstance(positions, Sinusoids) and positions.width != self.width:
            raise DataError(
                f"{self.tensors.origin} has the width {self.width}, but its description has positions of width "
                f"{positions.width}"
            )
        name = self.layout.positions.format(side=side)
        if settings.bucket_distance is not None:
            positions = Buckets(self.tensors.take(f"{name}.table", self.heads, None), settings.bucket_distance)
        if positions is None:
            positions = self.tensors.take(name, None, self.width)
        return self.stack(side, embedding, settings.scale, positions, norm_first=settings.norm_first)

    def self_attention(self, layer: str, *, is_decoder: bool) -> Attention | Recurrence:
        if is_decoder and f"{layer}self_attention.forget.weight" in self.tensors:
            return Recurrence(**self.linears(layer, _RECURRENCE, {}))
        return self.attention(layer, self.layout.self_attention)

    def attention(self, layer: str, table: ArrayTable) -> Attention:
        attention, scale = super().attention(layer, table), self.attention_scale
        if scale not in (1.0, attention.scale):
            raise DataError(
                f"{self.tensors.origin} has attention_scale={scale:g}; nmt supports only {attention.scale:g} and 1"
            )
        name = f"{layer}{next(iter(table)).partition('.')[0]}.distances"
        keys, distances = self.tensors.optional(f"{name}.keys", None, None, None), None
        if keys is not None:
            distances = Distances(keys, self.tensors.take(f"{name}.values", *keys.shape[:2], None))
        return replace(attention, scale=scale, distances=distances)
