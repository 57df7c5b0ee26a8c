"""Checkpoints of fairseq's Transformers: versions 0.6 to 0.12, with dictionaries and segmenter files next to them."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.exchange import ImportConfig
from nmt.data.imported.tokenizers import pair_of
from nmt.data.imported.vocabularies import read_fairseq_dictionary
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import EOS
from nmt.errors import DataError, UsageError, unquoted
from nmt.formats import Format, PortableModel, formats
from nmt.formats.layout import FormatLayout, LayoutReader, require_whole_heads
from nmt.formats.stored_options import count_of, dropouts_of, require_same_sides
from nmt.formats.tensors import Tensors, arrays_by_name
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order, require_vocabulary_sizes
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, Array, LinearWeights, StackWeights, TransformerWeights
from nmt.preprocessing.fairseq_corpus import import_corpus
from nmt.progress import ReportPairs
from nmt.storage.foreign import corpus_of_fairseq
from nmt.storage.run_folder import split_paths
from nmt.storage.torch_file import read_torch_file

_PROJECTIONS = {"q": "query", "k": "key", "v": "value", "out": "output"}
# Names of versions 0.10 to 0.12. ``_renewed`` gives older tensors these names.
LAYOUT = FormatLayout(
    layer="{side}.layers.{number}.",
    self_attention={f"self_attn.{name}_proj.*": part for name, part in _PROJECTIONS.items()},
    cross_attention={f"encoder_attn.{name}_proj.*": part for name, part in _PROJECTIONS.items()},
    feed_forward={"fc1.*": "inner", "fc2.*": "outer"},
    norms=("self_attn_layer_norm.*", "encoder_attn_layer_norm.*", "final_layer_norm.*"),
    final_norm="{side}.layer_norm.*",
    embeddings=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    output="decoder.output_projection",
    positions="{side}.embed_positions.weight",
    embedding_norm="{side}.layernorm_embedding.*",
)
EPSILON = 1e-5  # of torch's norms; fairseq and Hugging Face keep it
_OUTPUTS = (f"{LAYOUT.output}.weight", "decoder.embed_out")  # the second up to version 0.9
_PAD, _UNK, _BOS, _EOS = 1, 3, 0, 2  # by their ids there
_FIRST_POSITION = _PAD + 1
_ACTIVATIONS = {activation.value: activation for activation in (Activation.relu, Activation.gelu, Activation.swish)}
# Options of fairseq that our Transformer lacks. Their values that mean "off" are in _UNSET.
_OTHERS = (
    "adaptive_softmax_cutoff no_token_positional_embeddings no_cross_attention cross_self_attention "
    "tie_adaptive_weights base_layers no_decoder_final_norm"
).split()
logger = logging.getLogger("nmt.import")

_UNSET = ("None", "False", "0", "")
# Tensors without effect: version counters, and the copies of a fused layer, which fairseq does not update.
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
    """Reads checkpoints of ``fairseq-train``; several joined by ':' are an ensemble."""

    name = "fairseq"

    def import_corpus(self, options: ImportConfig, progress: ReportPairs) -> bool:
        """Import the output of ``fairseq-preprocess``, with the dictionaries in its folder."""
        folder = Path(options.path)
        if corpus_of_fairseq(folder) is None:
            return False
        if options.languages or options.vocabulary_text:
            raise UsageError(f"--languages and --vocabulary-text are for models, but {folder} is a corpus; omit them")
        if not (options.source_lang and options.target_lang) and not options.srcdict:
            raise UsageError(f"name the languages of {folder}: --source-lang and --target-lang, such as en and de")
        source, target = (
            str(folder / f"dict.{language}.txt") for language in (options.source_lang, options.target_lang)
        )
        named = replace(
            options, srcdict=options.srcdict or source, tgtdict=options.tgtdict or options.srcdict or target
        )
        pair, _ = self._vocabularies(named)
        output, overwrite = Path(options.output), options.overwrite
        report = import_corpus(folder, pair, output, overwrite=overwrite, option="--output", progress=progress)
        report.log(logger)
        return True

    def read(self, options: ImportConfig) -> list[PortableModel]:
        pair, orders = self._vocabularies(options)
        return [self._read_checkpoint(path, orders, pair) for path in split_paths(options.path)]

    def _vocabularies(self, options: ImportConfig) -> tuple[LanguagePair, list[VocabularyOrder]]:
        """Return the tokenizers, and the order of the source and the target dictionary."""
        if not options.srcdict:
            raise UsageError("name the dictionary of the source language: --srcdict dict.en.txt")
        dictionaries = [Path(options.srcdict), Path(options.tgtdict or options.srcdict)]
        orders = [
            VocabularyOrder.of(read_fairseq_dictionary(path), (_PAD, _UNK, _BOS, _EOS), str(path))
            for path in dictionaries
        ]
        same = orders[0] == orders[1]
        pair = pair_of(options, orders[0].pieces, orders[1].pieces, shared=same)
        return pair, [orders[0], orders[0]] if same else orders

    def _read_checkpoint(self, path: str, orders: list[VocabularyOrder], pair: LanguagePair) -> PortableModel:
        checkpoint = read_torch_file(Path(path), skip=("last_optimizer_state",))
        if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("model"), dict):
            raise DataError(f"{path} is not a model of fairseq; give a checkpoint that fairseq-train wrote")
        options = _options(checkpoint, path)
        _refuse(options, path)
        tensors = Tensors(_renewed(arrays_by_name(checkpoint["model"], path)), path)
        weights = _read_weights(tensors, options)
        tensors.require_all_read()
        advice = "; give the dictionaries that it was trained with (--srcdict, --tgtdict)"
        require_vocabulary_sizes(weights, orders, path, advice)
        return PortableModel(in_our_order(weights, *orders), pair, dropouts_of(options))


def _options(checkpoint: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the options of the model: a namespace up to version 0.9, a configuration since 0.10."""
    args, cfg = checkpoint.get("args"), checkpoint.get("cfg")
    options = cfg.get("model") if isinstance(cfg, Mapping) else args
    if not isinstance(options, Mapping):
        raise DataError(f"{path} has no options of its model, neither 'args' nor 'cfg'")
    return {name: value for name, value in options.items() if not isinstance(value, np.ndarray)}


def _refuse(options: Mapping[str, Any], path: str) -> None:
    kind = str(options.get("arch") or options.get("_name") or "transformer")
    if not kind.startswith("transformer"):
        raise DataError(f"{path} has fairseq's architecture {unquoted(kind)}; nmt can import only Transformers")
    for name in _OTHERS:
        if str(options.get(name)) not in _UNSET:
            raise DataError(f"{path} was trained with {name}={unquoted(options[name])}, which nmt does not support")
    if _activation(options) not in _ACTIVATIONS:
        raise DataError(
            f"{path} has the activation {unquoted(_activation(options))}; nmt supports {', '.join(_ACTIVATIONS)}"
        )
    require_same_sides(options, ("attention_heads", "ffn_embed_dim", "embed_dim"), path)


def _activation(options: Mapping[str, Any]) -> str:
    return str(options.get("activation_fn") or "relu")


def _renewed(state: Mapping[str, Array]) -> dict[str, Array]:
    """Rename tensors as in version 0.12. Older versions join queries, keys and values, and number the norms."""
    renewed: dict[str, Array] = {}
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


def _read_weights(tensors: Tensors, options: Mapping[str, Any]) -> TransformerWeights:
    source = tensors.take(LAYOUT.embeddings[0], None, None)
    width, heads = source.shape[1], count_of(options, "encoder_attention_heads", tensors.origin) or 8
    target = tensors.take(LAYOUT.embeddings[1], None, width)
    shares_all = bool(options.get("share_all_embeddings"))
    if shares_all:
        target = _require_equal(source, target, LAYOUT.embeddings[1], tensors.origin)
    output = target
    for name in _OUTPUTS:
        if name in tensors:
            output = tensors.take(name, *target.shape)
            if shares_all or options.get("share_decoder_input_output_embed"):
                output = _require_equal(target, output, name, tensors.origin)
    require_whole_heads(width, heads, tensors.origin)
    reader = LayoutReader(tensors, LAYOUT, width, heads, _ACTIVATIONS[_activation(options)], EPSILON)
    stacks = _stack("encoder", source, reader, options), _stack("decoder", target, reader, options)
    bias = tensors.optional(f"{LAYOUT.output}.bias", len(target))
    return TransformerWeights(*stacks, LinearWeights(output, bias), heads, EOS)


def _require_equal(embedding: Array, stored: Array, name: str, origin: str) -> Array:
    if not np.array_equal(embedding, stored):
        raise DataError(f"{origin}: {name} differs from the embedding, but its options say that they share a matrix")
    return embedding


def _stack(side: str, embedding: Array, reader: LayoutReader, options: Mapping[str, Any]) -> StackWeights:
    formula = Sinusoids(reader.width, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=_FIRST_POSITION)
    scale = 1.0 if options.get("no_scale_embedding") else math.sqrt(reader.width)
    norm_first = bool(options.get(f"{side}_normalize_before"))
    if str(options.get("layernorm_embedding")) not in _UNSET:
        reader.norm(LAYOUT.embedding_norm.format(side=side))  # an error if it is missing
    return reader.stack(side, embedding, scale, reader.positions(side, formula), norm_first=norm_first)
