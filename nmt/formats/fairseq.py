"""Checkpoints of fairseq's Transformers: versions 0.6 to 0.12, with dictionaries and the segmentation beside them."""

from __future__ import annotations

import logging
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
from nmt.data.segmentation import pair_of
from nmt.data.vocabulary import EOS
from nmt.errors import DataError, UsageError
from nmt.formats import Format, PortableModel, formats
from nmt.formats.layers import LayerReader, count_of, dropouts_of, require_same_sides
from nmt.formats.order import Order, in_our_order
from nmt.formats.tensors import Tensors, as_formula_if_alike
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, Array, Linear, StackWeights, TransformerWeights
from nmt.progress import ReportPairs
from nmt.storage.foreign import corpus_of_fairseq
from nmt.storage.run_folder import split_paths
from nmt.storage.torch_file import read_torch_file

_PAD, _UNK, _BOS, _EOS = 1, 3, 0, 2  # by their ids there
_FIRST_POSITION = _PAD + 1
_ACTIVATIONS = {"relu": Activation.relu, "gelu": Activation.gelu, "swish": Activation.swish}
# What a Transformer of fairseq may have that ours has not; and how options are spelt that are not set.
_OTHERS = (
    "adaptive_softmax_cutoff layernorm_embedding no_token_positional_embeddings no_cross_attention cross_self_attention "
    "tie_adaptive_weights base_layers no_decoder_final_norm"
).split()
logger = logging.getLogger("nmt.import")

_UNSET = ("None", "False", "0", "")
# Tensors that hold nothing of the model: counters of versions, and a fused layer's copies, which are not kept up to date.
_DEAD = re.compile(
    r"(en|de)coder\.(version|embed_positions\._float_tensor)"
    r"|encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)"
)
_OLD_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


@formats.register("fairseq", make_dataclass("FairseqConfig", ()))
class Fairseq(Format):
    """Reads what ``fairseq-train`` wrote; several checkpoints joined by ':' are an ensemble."""

    name = "fairseq"

    def import_corpus(self, given: ImportConfig, progress: ReportPairs) -> bool:
        """What ``fairseq-preprocess`` wrote: its dictionaries stand in the folder."""
        folder = Path(given.path)
        if corpus_of_fairseq(folder) is None:
            return False
        if not (given.source_lang and given.target_lang) and not given.srcdict:
            raise UsageError(f"name the languages of {folder}: --source-lang and --target-lang, such as en and de")
        source, target = (str(folder / f"dict.{language}.txt") for language in (given.source_lang, given.target_lang))
        named = replace(given, srcdict=given.srcdict or source, tgtdict=given.tgtdict or given.srcdict or target)
        pair, _ = self._vocabularies(named)
        output, overwrite = Path(given.output), given.overwrite
        report = import_corpus(folder, pair, output, overwrite=overwrite, option="--output", progress=progress)
        for line in report.lines():
            logger.info(line)
        for warning in report.warnings():
            logger.warning(warning)
        return True

    def read(self, given: ImportConfig) -> list[PortableModel]:
        pair, orders = self._vocabularies(given)
        return [self._one(path, orders, pair) for path in split_paths(given.path)]

    def _vocabularies(self, given: ImportConfig) -> tuple[LanguagePair, list[Order]]:
        """Of source and target: the tokenizers, and where their pieces stand in the dictionaries."""
        if not given.srcdict:
            raise UsageError("name the dictionary of the source language: --srcdict dict.en.txt")
        dictionaries = [Path(given.srcdict), Path(given.tgtdict or given.srcdict)]
        orders = [Order.of(read_fairseq_dictionary(path), (_PAD, _UNK, _BOS, _EOS), str(path)) for path in dictionaries]
        same = orders[0] == orders[1]
        pair = pair_of(given, orders[0].pieces, orders[1].pieces, shared=same)
        return pair, [orders[0], orders[0]] if same else orders

    def _one(self, path: str, orders: list[Order], pair: LanguagePair) -> PortableModel:
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
        return PortableModel(in_our_order(weights, *orders), pair, dropouts_of(options))


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
        raise DataError(f"{path} is a model of fairseq's architecture {kind}; of its models Transformers can be read")
    for name in _OTHERS:
        if str(options.get(name)) not in _UNSET:
            raise DataError(f"{path} was trained with {name}={options[name]}, which no model of ours has")
    if _activation(options) not in _ACTIVATIONS:
        raise DataError(f"{path} has the activation {_activation(options)}; ours have {', '.join(_ACTIVATIONS)}")
    require_same_sides(options, ("attention_heads", "ffn_embed_dim", "embed_dim"), path)


def _activation(options: Mapping[str, Any]) -> str:
    return str(options.get("activation_fn") or "relu")


def _renewed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors under the names of version 0.12: older ones have queries, keys and values in one, and numbered norms."""
    renewed: dict[str, Any] = {}
    for name, tensor in state.items():
        if _DEAD.fullmatch(name):
            continue
        if match := re.fullmatch(r"(.*attn\.)in_proj_(weight|bias)", name):
            for part, rows in zip("qkv", np.array_split(np.atleast_1d(tensor), 3)):
                renewed[f"{match[1]}{part}_proj.{match[2]}"] = rows
        elif match := re.fullmatch(r"((en|de)coder\.layers\.\d+)\.layer_norms\.([0-2])\.(weight|bias)", name):
            norm = dict(enumerate(_OLD_NORMS[f"{match[2]}coder"])).get(int(match[3]), name)
            renewed[f"{match[1]}.{norm}.{match[4]}"] = tensor
        else:
            renewed[name] = tensor
    return renewed


@dataclass
class _Reader:
    tensors: Tensors
    options: Mapping[str, Any]

    def model(self) -> TransformerWeights:
        source = self.tensors.take("encoder.embed_tokens.weight", None, None)
        target = self.tensors.take("decoder.embed_tokens.weight", None, source.shape[1])
        shares_all = bool(self.options.get("share_all_embeddings"))
        if shares_all:
            target = self._same(source, target, "decoder.embed_tokens.weight")
        output = target
        for name in ("decoder.output_projection.weight", "decoder.embed_out"):
            if name in self.tensors:
                output = self.tensors.take(name, *target.shape)
                if shares_all or self.options.get("share_decoder_input_output_embed"):
                    output = self._same(target, output, name)
        heads = count_of(self.options, "encoder_attention_heads", self.tensors.origin) or 8
        layers = LayerReader(self.tensors, source.shape[1], heads, _ACTIVATIONS[_activation(self.options)])
        stacks = self._stack("encoder", source, layers), self._stack("decoder", target, layers)
        bias = self.tensors.optional("decoder.output_projection.bias", len(target))
        return TransformerWeights(*stacks, Linear(output, bias), heads, EOS)

    def _same(self, one: Array, other: Array, name: str) -> Array:
        if not np.array_equal(one, other):
            raise DataError(
                f"{self.tensors.origin}: {name} should be the same matrix as the embedding, as its options say"
            )
        return one

    def _stack(self, side: str, embedding: Array, layers: LayerReader) -> StackWeights:
        count = 1 + max((int(number) for number in self.tensors.numbers(rf"{side}\.layers\.(\d{{1,4}})\.")), default=0)
        formula = Sinusoids(layers.width, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=_FIRST_POSITION)
        table = self.tensors.optional(f"{side}.embed_positions.weight", None, layers.width)
        norm_first = bool(self.options.get(f"{side}_normalize_before"))
        return StackWeights(
            embedding,
            1.0 if self.options.get("no_scale_embedding") else math.sqrt(layers.width),
            as_formula_if_alike(
                None if table is None else table[_FIRST_POSITION:], formula
            ),  # the first are of padding
            tuple(layers.layer(f"{side}.layers.{number}", reads=side == "decoder") for number in range(count)),
            layers.norm(f"{side}.layer_norm") if norm_first else None,
            norm_first,
        )
