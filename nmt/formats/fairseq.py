"""Checkpoints of fairseq's Transformers: versions 0.6 to 0.12, with dictionaries and the segmentation beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ImportConfig
from nmt.data.fairseq_corpus import import_corpus
from nmt.data.imported_vocabularies import read_fairseq_dictionary
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import EOS
from nmt.errors import DataError, UsageError
from nmt.formats import Foreign, Format, formats
from nmt.formats.order import Order, in_our_order
from nmt.formats.segmentation import tokenizer_of
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
from nmt.storage.foreign import corpus_of_fairseq
from nmt.storage.run_folder import split_paths
from nmt.storage.torch_file import read_torch_file

_PAD, _UNK, _BOS, _EOS = 1, 3, 0, 2  # by their ids there
_FIRST_POSITION = _PAD + 1
_EPSILON = 1e-5
_ACTIVATIONS = {
    "relu": Activation.relu,
    "gelu": Activation.gelu,
    "gelu_accurate": Activation.gelu,  # by tanh there: see _refuse
    "swish": Activation.swish,
}
# What a Transformer of fairseq may have that ours has not: an option of a checkpoint, and its harmless values.
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "adaptive_softmax_cutoff": (None, ""),
    "layernorm_embedding": (False, None),
    "no_token_positional_embeddings": (False, None),
    "no_cross_attention": (False, None),
    "cross_self_attention": (False, None),
    "tie_adaptive_weights": (False, None),
    "base_layers": (0, None),
    "no_decoder_final_norm": (False, None),
}
# Tensors that hold nothing of the model: counters of versions, and a fused layer's copies, which are not kept up to date.
_DEAD = re.compile(
    r"(en|de)coder\.(version|embed_positions\._float_tensor)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
_DROPOUTS = ("dropout", "attention_dropout", "activation_dropout")
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


@formats.register("fairseq", make_dataclass("FairseqConfig", ()))
class Fairseq(Format):
    """Reads what ``fairseq-train`` wrote; several checkpoints joined by ':' are an ensemble."""

    name = "fairseq"

    def import_corpus(self, given: ImportConfig) -> bool:
        """What ``fairseq-preprocess`` wrote: its dictionaries stand in the folder."""
        folder = Path(given.path)
        if corpus_of_fairseq(folder) is None:
            return False
        source, target = (str(folder / f"dict.{language}.txt") for language in (given.source_lang, given.target_lang))
        named = replace(given, srcdict=given.srcdict or source, tgtdict=given.tgtdict or given.srcdict or target)
        pair, _ = self._vocabularies(named)
        import_corpus(folder, pair, Path(given.output), overwrite=given.overwrite)
        return True

    def read(self, given: ImportConfig) -> list[Foreign]:
        pair, orders = self._vocabularies(given)
        return [self._one(path, orders, pair) for path in split_paths(given.path)]

    def _vocabularies(self, given: ImportConfig) -> tuple[LanguagePair, list[Order]]:
        """Of source and target: the tokenizers, and where their pieces stand in the dictionaries."""
        if not (given.source_lang and given.target_lang):
            raise UsageError("name the languages of the model: --source-lang en --target-lang de")
        if not given.srcdict:
            raise UsageError("name the dictionary of the source language: --srcdict dict.en.txt")
        dictionaries = [Path(given.srcdict), Path(given.tgtdict or given.srcdict)]
        orders = [Order.of(read_fairseq_dictionary(path), (_PAD, _UNK, _BOS, _EOS), str(path)) for path in dictionaries]
        same = orders[0] == orders[1]
        source = target = tokenizer_of(given, orders[0].pieces)
        if not same or given.moses or given.target_bpe_model is not None:
            target = tokenizer_of(given, orders[1].pieces, target=True)
        pair = LanguagePair(given.source_lang, given.target_lang, source, target, same)
        return pair, [orders[0], orders[0]] if same else orders

    def _one(self, path: str, orders: list[Order], pair: LanguagePair) -> Foreign:
        checkpoint = read_torch_file(Path(path), skip=("last_optimizer_state",))
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
            raise DataError(f"{path} holds no model of fairseq; give a checkpoint that fairseq-train wrote")
        options = _options(checkpoint, path)
        _refuse(options, path)
        tensors = Tensors(_renewed(checkpoint["model"]), path)
        weights = _Reader(tensors, options).model()
        tensors.require_all_read()
        for stack, order, side in ((weights.source, orders[0], "source"), (weights.target, orders[1], "target")):
            if len(stack.embedding) != len(order.pieces) + 4:
                raise DataError(
                    f"{path} has {len(stack.embedding)} {side} pieces, but the dictionary has {len(order.pieces) + 4}; give "
                    f"the dictionaries that it was trained with (--srcdict, --tgtdict)"
                )
        training = {name: float(options[name]) for name in _DROPOUTS if options.get(name)}
        return Foreign(in_our_order(weights, *orders), pair, training)


def _options(checkpoint: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """The options of the model: in a namespace up to version 0.9, in a configuration from 0.10 on."""
    args, cfg = checkpoint.get("args"), checkpoint.get("cfg")
    options = cfg.get("model") if isinstance(cfg, Mapping) else args
    if not isinstance(options, Mapping):
        options = vars(options) if hasattr(options, "__dict__") else None
    if not isinstance(options, Mapping):
        raise DataError(f"{path} does not say how its model is built: it has neither 'args' nor 'cfg'")
    return options


def _refuse(options: Mapping[str, Any], path: str) -> None:
    kind = str(options.get("arch") or options.get("_name") or "transformer")
    if not kind.startswith("transformer"):
        raise UsageError(f"{path} is a model of fairseq's architecture {kind}; of its models Transformers can be read")
    for name, harmless in _HARMLESS.items():
        if options.get(name) not in harmless and name in options:
            raise UsageError(f"{path} was trained with {name}={options[name]}, which no model of ours has")
    activation = options.get("activation_fn") or "relu"
    if activation not in _ACTIVATIONS or activation == "gelu_accurate":
        raise UsageError(f"{path} has the activation {activation}; ours have relu, gelu or swish")
    for name in ("attention_heads", "ffn_embed_dim", "embed_dim"):
        one, other = (options.get(f"{side}_{name}") for side in ("encoder", "decoder"))
        if one != other:
            raise UsageError(f"{path} has encoder_{name}={one} and decoder_{name}={other}; in ours they are the same")


def _renewed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors under the names of version 0.12: older ones have queries, keys and values in one, and numbered norms."""
    renewed: dict[str, Any] = {}
    for name, tensor in state.items():
        if _DEAD.fullmatch(name):
            continue
        if match := re.fullmatch(r"(.*attn\.)in_proj_(weight|bias)", name):
            for part, rows in zip("qkv", np.split(np.asarray(tensor), 3)):
                renewed[f"{match[1]}{part}_proj.{match[2]}"] = rows
        elif match := re.fullmatch(r"((en|de)coder\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)", name):
            norms = _OLD_NORMS[f"{match[2]}coder"]
            renewed[f"{match[1]}.{norms[int(match[3])]}.{match[4]}"] = tensor
        else:
            renewed[name] = tensor
    return renewed


@dataclass
class _Reader:
    tensors: Tensors
    options: Mapping[str, Any]

    def model(self) -> TransformerWeights:
        source = self.tensors.take("encoder.embed_tokens.weight")
        target = self.tensors.take("decoder.embed_tokens.weight")
        shares_all = bool(self.options.get("share_all_embeddings"))
        if shares_all:
            target = self._same(source, target, "decoder.embed_tokens.weight")
        output = target
        for name in ("decoder.output_projection.weight", "decoder.embed_out"):
            if name in self.tensors:
                output = self.tensors.take(name)
                if shares_all or self.options.get("share_decoder_input_output_embed"):
                    output = self._same(target, output, name)
        heads = int(self.options.get("encoder_attention_heads") or 8)
        stacks = self._stack("encoder", source, heads), self._stack("decoder", target, heads)
        bias = self.tensors.optional("decoder.output_projection.bias")
        return TransformerWeights(*stacks, Linear(output, bias), heads, EOS)

    def _same(self, one: Array, other: Array, name: str) -> Array:
        if not np.array_equal(one, other):
            raise DataError(
                f"{self.tensors.origin}: {name} should be the same matrix as the embedding, as its options say"
            )
        return one

    def _stack(self, side: str, embedding: Array, heads: int) -> StackWeights:
        width = embedding.shape[1]
        count = 1 + max((int(number) for number in self.tensors.numbers(rf"{side}\.layers\.(\d+)\.")), default=-1)
        layers = tuple(
            self._layer(f"{side}.layers.{number}", side == "decoder", width // heads) for number in range(count)
        )
        norm_first = bool(self.options.get(f"{side}_normalize_before"))
        positions: Array | Sinusoids
        positions = formula = Sinusoids(width, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=_FIRST_POSITION)
        if f"{side}.embed_positions.weight" in self.tensors:
            table = self.tensors.take(f"{side}.embed_positions.weight")
            positions = as_formula_if_alike(table[_FIRST_POSITION:], formula)  # the first are of padding
        scale = 1.0 if self.options.get("no_scale_embedding") else math.sqrt(width)
        norm = self._norm(f"{side}.layer_norm") if norm_first else None
        return StackWeights(embedding, scale, positions, layers, norm, norm_first)

    def _layer(self, name: str, reads: bool, head: int) -> LayerWeights:
        return LayerWeights(
            self._attention(f"{name}.self_attn", head),
            self._norm(f"{name}.self_attn_layer_norm"),
            self._attention(f"{name}.encoder_attn", head) if reads else None,
            self._norm(f"{name}.encoder_attn_layer_norm") if reads else None,
            FeedForward(
                self.tensors.linear(f"{name}.fc1"),
                self.tensors.linear(f"{name}.fc2"),
                _ACTIVATIONS[self.options.get("activation_fn") or "relu"],
            ),
            self._norm(f"{name}.final_layer_norm"),
        )

    def _attention(self, name: str, head: int) -> Attention:
        query, key, value, output = (self.tensors.linear(f"{name}.{part}_proj") for part in ("q", "k", "v", "out"))
        return Attention(query, key, value, output, head**-0.5)

    def _norm(self, name: str) -> Norm:
        return self.tensors.norm(name, _EPSILON)
