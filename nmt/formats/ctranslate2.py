"""CTranslate2: a fast translator in C++ for models that are trained (https://opennmt.net/CTranslate2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.errors import UsageError
from nmt.formats import Format, PortableModel, Written, formats
from nmt.formats.ctranslate2_reader import Folder
from nmt.formats.model_card import TEXT, about_length_penalty, cut_by_sentencepiece, example, pieces_for
from nmt.formats.packages import need
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    FeedForward,
    LayerWeights,
    Linear,
    Norm,
    PositionsInHeads,
    map_arrays,
)
from nmt.storage.run_folder import split_paths

_EXTRA = "ctranslate2"
_ACTIVATIONS = {
    Activation.relu: "RELU",
    Activation.gelu: "GELU",
    Activation.swish: "SWISH",
    Activation.sigmoid: "Sigmoid",
}

_OF_TEXT = """sentencepiece cuts text into them and joins them (`pip install ctranslate2 sentencepiece`).

import ctranslate2
import sentencepiece

folder = "."  # where this file stands
source = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer/$source.model")
target = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer/$target.model")
translator = ctranslate2.Translator(folder)
pieces = source.encode(["$text"], out_type=str)
for found in translator.translate_batch(pieces, beam_size=5, suppress_sequences=[["<pad>"], ["<s>"]]):
    print(target.decode(found.hypotheses[0]))
"""
_OF_PIECES = """Text has to be cut as it was for training; what nmt cuts it with is in `tokenizer/`.

import ctranslate2

folder = "."  # where this file stands
translator = ctranslate2.Translator(folder)
for found in translator.translate_batch([$pieces], beam_size=5, suppress_sequences=[["<pad>"], ["<s>"]]):
    print(" ".join(found.hypotheses[0]))
"""


@formats.register("ctranslate2", make_dataclass("CTranslate2Config", ()))
class CTranslate2(Format):
    """Reads and writes folders for ``ctranslate2.Translator``."""

    name = "ctranslate2"
    library = "ctranslate2"
    quantizes = True

    def read(self, given: ImportConfig) -> list[PortableModel]:
        return [Folder(Path(path), given).model() for path in split_paths(given.path)]

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        need("ctranslate2", _EXTRA)
        from ctranslate2.converters import Converter

        spec = _specification(model, options.longest)

        class Given(Converter):  # type: ignore[misc]
            def _load(self) -> Any:
                return spec

        quantization = None if options.quantization is Quantization.float32 else options.quantization.value
        Given().convert(str(folder), quantization=quantization, force=True)
        model.pair.save(folder / "tokenizer")

    def written(self, folder: Path) -> Written:
        return _Translator(folder)

    def usage(self, model: PortableModel) -> str:
        stems = ["joint"] * 2 if model.pair.one_tokenizer else ["source", "target"]
        how = example(_OF_TEXT, text=TEXT, source=stems[0], target=stems[1])
        if not cut_by_sentencepiece(model):
            how = example(_OF_PIECES, pieces=pieces_for(model))
        return f"It is given pieces, not text. {how}\n\n{about_length_penalty(model, 'CTranslate2')}"


class _Translator(Written):
    def __init__(self, folder: Path) -> None:
        import ctranslate2

        self._translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="default", inter_threads=1)

    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        given = [list(one) for one in sources], [list(one) for one in targets]
        return [float(sum(one.log_probs)) for one in self._translator.score_batch(*given)]

    def translate(self, sources: Sequence[Sequence[str]], longest: int) -> list[list[str]]:
        never = [["<pad>"], ["<s>"]]  # what no search of ours writes
        found = self._translator.translate_batch(
            [list(one) for one in sources], beam_size=1, max_decoding_length=longest, suppress_sequences=never
        )
        return [list(one.hypotheses[0]) for one in found]


def _specification(model: PortableModel, longest: int) -> Any:
    from ctranslate2.specs import common_spec, transformer_spec

    weights = map_arrays(np.array, model.weights)  # copies: quantisation writes into them
    first, positions = weights.source.layers[0], weights.source.positions
    if weights.is_recurrent:
        raise UsageError("CTranslate2 knows no SSRUs (model.decoder=ssru); export to safetensors")
    if positions is PositionsInHeads.alibi:
        raise UsageError("CTranslate2 knows positions by slopes (alibi) in decoders alone; export to another format")
    if weights.head_size * weights.num_heads != weights.width:
        raise UsageError(
            f"CTranslate2 has heads of d_model / num_heads = {weights.width // weights.num_heads} numbers, and the model's "
            f"have {weights.head_size}; export to another format"
        )
    common: dict[str, Any] = {
        "activation": getattr(common_spec.Activation, _ACTIVATIONS[first.feed_forward.activation]),
        "ffn_glu": first.feed_forward.gate is not None,
        "rms_norm": first.self_norm.bias is None,
        "relative_position": positions is PositionsInHeads.relative,
        "rotary_dim": weights.head_size if positions is PositionsInHeads.rotary else None,
    }
    distances = first.attention.distances
    reach = 0 if distances is None else distances.keys.shape[1] // 2  # of the encoder's, in both directions
    encoder, decoder = (
        kind(len(stack.layers), weights.num_heads, pre_norm=stack.norm_first, **common)
        for kind, stack in (
            (transformer_spec.TransformerEncoderSpec, weights.source),
            (transformer_spec.TransformerDecoderSpec, weights.target),
        )
    )
    spec = transformer_spec.TransformerSpec(encoder, decoder)
    for side, given in ((encoder, weights.source), (decoder, weights.target)):
        side.scale_embeddings = given.scale
        if isinstance(given.positions, Sinusoids):
            side.position_encodings.encodings = given.positions.table(longest)
        elif isinstance(given.positions, np.ndarray):
            side.position_encodings.encodings = given.positions
        if given.norm is not None:
            _norm(side.layer_norm, given.norm)
        for layer, own in zip(side.layer, given.layers):
            _layer(layer, own, weights.head_size, reach)
    encoder.embeddings[0].weight, decoder.embeddings.weight = weights.source.embedding, weights.target.embedding
    _linear(decoder.projection, weights.output)
    _vocabulary(spec, model)
    return spec


def _vocabulary(spec: Any, model: PortableModel) -> None:
    source, target = (list(side.vocabulary.pieces) for side in (model.pair.source, model.pair.target))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = target[model.weights.start]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = model.weights.source.layers[0].self_norm.epsilon


def _layer(layer: Any, given: LayerWeights, head_size: int, reach: int) -> None:
    look = given.attention
    _attention(layer.self_attention, look, [[look.query, look.key, look.value], [look.output]], head_size, reach)
    _norm(layer.self_attention.layer_norm, given.self_norm)
    if given.cross_attention is not None and given.cross_norm is not None:
        read = given.cross_attention
        _attention(layer.attention, read, [[read.query], [read.key, read.value], [read.output]], head_size, reach)
        _norm(layer.attention.layer_norm, given.cross_norm)
    _feed_forward(layer.ffn, given.feed_forward)
    _norm(layer.ffn.layer_norm, given.feed_forward_norm)


def _attention(there: Any, given: Attention, parts: list[list[Linear]], head_size: int, reach: int) -> None:
    """``parts``: the linear maps that are one there; ``reach``: of relative positions."""
    if not math.isclose(given.scale, head_size**-0.5):
        there.queries_scale = np.float32(given.scale)
    for linear, some in zip(there.linear, parts):
        linear.weight = np.concatenate([one.weight for one in some])
        if any(one.bias is not None for one in some):
            biases = [np.zeros(len(one.weight), dtype=np.float32) if one.bias is None else one.bias for one in some]
            linear.bias = np.concatenate(biases)
    if given.distances is not None:
        there.relative_position_keys = _distances(given.distances.keys, reach)
        there.relative_position_values = _distances(given.distances.values, reach)


def _distances(vectors: Array, reach: int) -> Array:
    """[H, R, d] -> [2 reach + 1, d]: a decoder has none for what stands ahead, and there they are, never used."""
    if bool((vectors != vectors[:1]).any()):
        raise UsageError(
            "CTranslate2 has the vectors of relative positions once for all heads, and the model has them for each; use "
            "another format"
        )
    whole = np.zeros((2 * reach + 1, vectors.shape[2]), dtype=np.float32)
    whole[: vectors.shape[1]] = vectors[0]
    return whole


def _feed_forward(there: Any, given: FeedForward) -> None:
    for linear, one in ((there.linear_0, given.inner), (there.linear_1, given.outer)):
        _linear(linear, one)
    if given.gate is not None:
        _linear(there.linear_0_noact, given.gate)


def _linear(there: Any, given: Linear) -> None:
    there.weight = given.weight
    if given.bias is not None:
        there.bias = given.bias


def _norm(there: Any, given: Norm) -> None:
    there.gamma = given.weight
    if given.bias is not None:
        there.beta = given.bias
