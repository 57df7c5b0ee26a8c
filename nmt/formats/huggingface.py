"""Models of Hugging Face's transformers: Marian and Pegasus folders in and out, FSMT folders in.

Marian (OPUS-MT) has norms after each sublayer, Pegasus before it; both have sinusoids in halves. FSMT is fairseq's
Transformer with two vocabularies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.data.imported_vocabularies import read_huggingface_vocabulary
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, WordEnds
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats import Foreign, Format, Written, formats
from nmt.formats.order import Order, in_our_order
from nmt.formats.segmentation import sentencepiece_of
from nmt.formats.stream import ORIGINAL_LAYOUT, interleaved, without_zero_biases
from nmt.formats.tensors import Tensors, as_formula_if_alike
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
from nmt.search.config import LengthPenalty
from nmt.storage.checkpoints import mapped_tensors
from nmt.storage.files import read_json
from nmt.storage.run_folder import split_paths
from nmt.storage.torch_file import read_torch_file

_FIRST_POSITION_OF_FSMT = 2
_EPSILON = 1e-5  # torch's, which these models leave as it is
_ACTIVATIONS = {"relu": Activation.relu, "gelu": Activation.gelu, "swish": Activation.swish, "silu": Activation.swish}
_DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
_NORM_FIRST = {"marian": False, "pegasus": True, "fsmt": False}
# What is missing for models that look as if they could be read.
_MISSING = {
    "m2m_100": "its sentences begin with tokens of their languages, and a model of ours has one direction",
    "nllb-moe": "its sentences begin with tokens of their languages, and a model of ours has one direction",
    "mbart": "it has a norm of its embeddings, which no model of ours has",
    "bart": "it has a norm of its embeddings, which no model of ours has",
    "t5": "its relative positions are of a kind that no model of ours has",
}


@formats.register("huggingface", make_dataclass("HuggingFaceConfig", ()))
class HuggingFace(Format):
    """Reads and writes folders of ``save_pretrained``."""

    name = "huggingface"

    def read(self, given: ImportConfig) -> list[Foreign]:
        found = [_Folder(Path(path), given).model() for path in split_paths(given.path)]
        for other in found[1:]:
            if other.pair.digest() != found[0].pair.digest():
                raise UsageError(f"{given.path}: the models have different vocabularies, and cannot be an ensemble")
        return found

    def write(self, model: Foreign, folder: Path, options: ExportConfig) -> None:
        from nmt.formats.huggingface_writer import write

        write(model, folder, options)

    def written(self, folder: Path) -> Written:
        from nmt.formats.huggingface_writer import WrittenModel

        return WrittenModel(folder)


@dataclass
class _Folder:
    """A folder as ``save_pretrained`` leaves it."""

    path: Path
    given: ImportConfig

    def model(self) -> Foreign:
        config = self._config()
        kind = str(config.get("model_type"))
        if kind not in _NORM_FIRST:
            what = _MISSING.get(kind, f"of these models {', '.join(_NORM_FIRST)} can be read")
            raise UsageError(f"{self.path} is a model of the type {kind}: {what}")
        _require(config, self.path)
        symbols = self._symbols(kind, config)
        specials = self._specials(kind, config, symbols)
        orders = [Order.of(some, specials, str(self.path)) for some in symbols]
        tensors = Tensors(self._tensors(), str(self.path))
        weights = _Reader(tensors, config, kind, start_of(config, specials)).model()
        tensors.require_all_read()
        if config.get(ORIGINAL_LAYOUT) == SinusoidLayout.interleaved.value:  # of a model of ours
            weights = interleaved(weights)
        for stack, some in ((weights.source, symbols[0]), (weights.target, symbols[-1])):
            if len(stack.embedding) != len(some):
                raise DataError(
                    f"{self.path} has {len(stack.embedding)} embeddings, but its vocabulary has {len(some)} pieces"
                )
        pair = self._pair(kind, config, orders)
        source, target = orders[0], orders[-1]
        training = {name: float(config[name]) for name in _DROPOUTS if config.get(name)}
        return Foreign(in_our_order(weights, source, target), pair, training, self._search(config))

    def _config(self) -> dict[str, Any]:
        config = read_json(self.path / "config.json")
        if not isinstance(config, dict):
            raise DataError(f"{self.path / 'config.json'} is damaged: it should be a mapping")
        return config

    def _symbols(self, kind: str, config: Mapping[str, Any]) -> list[list[str]]:
        """The pieces of both sides in the order of their ids; a single list if they are one."""
        if kind == "fsmt":
            lists = [read_huggingface_vocabulary(self.path / f"vocab-{side}.json") for side in ("src", "tgt")]
            return lists[:1] if lists[0] == lists[1] else lists
        source = read_huggingface_vocabulary(self.path / "vocab.json")
        if config.get("share_encoder_decoder_embeddings", True) or not (self.path / "target_vocab.json").is_file():
            return [source]
        return [source, read_huggingface_vocabulary(self.path / "target_vocab.json")]

    def _specials(self, kind: str, config: Mapping[str, Any], symbols: list[list[str]]) -> list[int | None]:
        """Where pad, unk, bos and eos stand."""
        if kind == "fsmt":
            return [1, 3, 0, 2]
        pad, eos, start = (config.get(f"{name}_token_id") for name in ("pad", "eos", "decoder_start"))
        unknown = symbols[0].index("<unk>") if "<unk>" in symbols[0] else None
        bos = start if start not in (pad, eos) else symbols[0].index("<s>") if "<s>" in symbols[0] else None
        for name, number in (("pad", pad), ("eos", eos)):
            if not isinstance(number, int) or not 0 <= number < len(symbols[0]):
                raise DataError(f"{self.path / 'config.json'}: {name}_token_id={number!r} is no id of the vocabulary")
        return [pad, unknown, bos, eos]

    def _tensors(self) -> dict[str, Any]:
        if (self.path / "model.safetensors").is_file():
            return dict(mapped_tensors(self.path / "model.safetensors"))
        if (self.path / "pytorch_model.bin").is_file():
            found = read_torch_file(self.path / "pytorch_model.bin")
            if isinstance(found, dict):
                return found
        raise MissingInputError(f"{self.path} holds neither model.safetensors nor pytorch_model.bin")

    def _pair(self, kind: str, config: Mapping[str, Any], orders: Sequence[Order]) -> LanguagePair:
        languages = [self.given.source_lang, self.given.target_lang]
        if kind == "fsmt":
            languages = [given or str(own) for given, own in zip(languages, config.get("langs") or ["", ""])]
        if not all(languages):
            raise UsageError("name the languages of the model: --source-lang en --target-lang de")
        source = self._tokenizer(kind, "source", orders[0], languages[0])
        target = self._tokenizer(kind, "target", orders[-1], languages[1])
        return LanguagePair(languages[0], languages[1], source, target, len(orders) == 1)

    def _tokenizer(self, kind: str, side: str, order: Order, language: str) -> Tokenizer:
        if kind == "fsmt":
            codes = self.path / "merges.txt"
            if not codes.is_file():
                raise MissingInputError(f"{codes} is missing: it says how words are cut")
            config = BpeCodesConfig(WordEnds.end_of_word, moses=True, language=language, normalize_punctuation=True)
            return BpeCodes(config, codes.read_bytes(), order.pieces)
        model = self.path / f"{side}.spm"
        if not model.is_file():
            return WordTokenizer(WordsConfig(), order.pieces)
        return sentencepiece_of(model, model.read_bytes(), order.pieces)

    def _search(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """As ``generate`` would search by default."""
        path = self.path / "generation_config.json"
        used = dict(config) | (read_json(path) if path.is_file() else {})
        beams, penalty = used.get("num_beams"), used.get("length_penalty")
        lenpen = float(1.0 if penalty is None else penalty)
        return {"beam_size": int(beams or 5), "length_penalty": LengthPenalty.power, "lenpen": lenpen}


def _require(config: Mapping[str, Any], path: Path) -> None:
    """Refuse what ours are not."""
    activation = config.get("activation_function", "relu")
    if activation not in _ACTIVATIONS:
        raise UsageError(f"{path} has the activation {activation}; ours have relu, gelu or swish")
    for name in ("attention_heads", "ffn_dim"):
        one, other = (config.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if one != other:
            raise UsageError(f"{path} has encoder_{name}={one} and decoder_{name}={other}; in ours they are the same")
    for name in ("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads"):
        if not isinstance(config.get(name), int):
            raise DataError(f"{path / 'config.json'}: {name}={config.get(name)!r} should be a number")


def start_of(config: Mapping[str, Any], specials: Sequence[int | None]) -> int:
    """Our id of what the decoder reads first."""
    start = config.get("decoder_start_token_id")
    ours = {specials[PAD]: PAD, specials[EOS]: EOS}
    return ours.get(start, BOS) if start is not None else EOS


@dataclass
class _Reader:
    tensors: Tensors
    config: Mapping[str, Any]
    kind: str
    start: int

    def model(self) -> TransformerWeights:
        tensors, heads = self.tensors, int(self.config["encoder_attention_heads"])
        shared = tensors.optional("model.shared.weight")
        source, target = (self._embedding(side, shared) for side in ("encoder", "decoder"))
        output = target
        for name in ("lm_head.weight", "model.decoder.output_projection.weight"):
            if name in tensors:
                own = tensors.take(name)
                output = target if np.array_equal(own, target) else own
        bias = tensors.optional("final_logits_bias")
        bias = None if bias is None or not bias.any() else bias.reshape(-1)
        stacks = self._stack("encoder", source, heads), self._stack("decoder", target, heads)
        return without_zero_biases(TransformerWeights(*stacks, Linear(output, bias), heads, self.start))

    def _embedding(self, side: str, shared: Array | None) -> Array:
        own = self.tensors.optional(f"model.{side}.embed_tokens.weight")
        if own is None:
            if shared is None:
                return self.tensors.take(f"model.{side}.embed_tokens.weight")
            return shared
        return shared if shared is not None and np.array_equal(own, shared) else own

    def _stack(self, side: str, embedding: Array, heads: int) -> StackWeights:
        width, norm_first = int(self.config["d_model"]), _NORM_FIRST[self.kind]
        stored = self.tensors.optional(f"model.{side}.embed_positions.weight")
        layers = tuple(
            self._layer(f"model.{side}.layers.{number}", side == "decoder", width // heads)
            for number in range(int(self.config[f"{side}_layers"]))
        )
        positions = Sinusoids(width, SinusoidLayout.halves)
        if self.kind == "fsmt":
            positions = replace(positions, wavelengths=Wavelengths.tensor2tensor, offset=_FIRST_POSITION_OF_FSMT)
        scale = math.sqrt(width) if self.config.get("scale_embedding") else 1.0
        norm = self.tensors.norm(f"model.{side}.layer_norm", _EPSILON) if norm_first else None
        table = None if stored is None else stored[positions.offset :]
        return StackWeights(embedding, scale, as_formula_if_alike(table, positions), layers, norm, norm_first)

    def _layer(self, name: str, reads: bool, head: int) -> LayerWeights:
        return LayerWeights(
            self._attention(f"{name}.self_attn", head),
            self._norm(f"{name}.self_attn_layer_norm"),
            self._attention(f"{name}.encoder_attn", head) if reads else None,
            self._norm(f"{name}.encoder_attn_layer_norm") if reads else None,
            FeedForward(
                self.tensors.linear(f"{name}.fc1"),
                self.tensors.linear(f"{name}.fc2"),
                _ACTIVATIONS[self.config.get("activation_function", "relu")],
            ),
            self._norm(f"{name}.final_layer_norm"),
        )

    def _attention(self, name: str, head: int) -> Attention:
        query, key, value, output = (self.tensors.linear(f"{name}.{part}_proj") for part in ("q", "k", "v", "out"))
        return Attention(query, key, value, output, head**-0.5)

    def _norm(self, name: str) -> Norm:
        return self.tensors.norm(name, _EPSILON)
