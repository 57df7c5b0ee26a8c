"""T5 and MADLAD-400: RMSNorm before each sublayer, biases of distances in buckets, scores without a scale, few biases.

A source of MADLAD begins with the token of the target language, such as <2de>. The tokens have the ids of the sentencepiece
model; the embedding has more rows, of tokens for pretraining and of none. They are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from nmt.config.exchange import ImportConfig
from nmt.data.imported.tokenizers import require_languages
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.sentencepiece_files import damage_named
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import DataError, unquoted
from nmt.formats import PortableModel
from nmt.formats.huggingface.multilingual import require_rows, stored_tokenizer
from nmt.formats.huggingface.tensor_files import stored_tensors
from nmt.formats.layout import ArrayTable, FormatLayout, LayoutReader, same_if_equal
from nmt.formats.stored_options import count_of, dropouts_of, languages_of, number_of, required_count
from nmt.formats.tensors import Tensors
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order
from nmt.models.transformer.weights import (
    Activation,
    Array,
    Attention,
    Buckets,
    LinearWeights,
    StackWeights,
    TransformerWeights,
)
from nmt.storage.arrays import widened

MODEL, LANGUAGE = "spiece.model", re.compile(r"<2([A-Za-z][\w-]*)>")
_FILLER = re.compile(r"<extra_id_\d+>")  # of pretraining, which spiece.model lacks
_MOST_FILLERS = 512  # T5 has 128 rows more than tokens
_UNUSED = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"  # in old files
_COUNTS = ("d_model", "d_kv", "d_ff", "num_heads", "num_layers")
ACTIVATIONS = {  # by the option feed_forward_proj, and whether the networks are gated
    "relu": (Activation.relu, False),
    "gelu": (Activation.gelu, False),
    "gated-gelu": (Activation.gelu_tanh, True),
    "gated-gelu_new": (Activation.gelu_tanh, True),
    "gated-silu": (Activation.swish, True),
}


@dataclass(frozen=True)
class T5Folder:
    """A folder of T5 or MADLAD."""

    path: Path
    config: Mapping[str, Any]
    options: ImportConfig

    def model(self, search: Mapping[str, Any]) -> PortableModel:
        """``search``: options of the search."""
        origin = str(self.path / "config.json")
        for name in _COUNTS:
            required_count(self.config, name, origin)
        model, ids = stored_tokenizer(self.path, MODEL)
        with damage_named(self.path / MODEL):
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        textual = (token for token in sorted(ids, key=ids.__getitem__) if not _FILLER.fullmatch(token))
        symbols = [token for number, token in enumerate(textual) if ids[token] == number]  # <pad> may follow fillers
        symbols = symbols or processor.id_to_piece(list(range(processor.vocab_size())))
        specials, start = self._specials(symbols, processor)
        order = VocabularyOrder.of(symbols, specials, str(self.path))
        weights = _Weights(Tensors(stored_tensors(self.path), str(self.path)), self.config).read(start)
        require_rows(self.path, weights, len(symbols), range(_MOST_FILLERS + 1))
        tokenizer = SentencePieceList(SentencePieceListConfig(hide_others=True), model, order.pieces)
        dropouts = dropouts_of({"dropout": self.config.get("dropout_rate")})
        return PortableModel(in_our_order(weights, order, order), self._pair(tokenizer), dropouts, search)

    def _specials(self, symbols: list[str], processor: Any) -> tuple[list[int | None], int]:
        """Return the ids of pad, unk, bos and eos, and our id of the decoder's first token.

        MADLAD's decoder begins with <unk>, which thus becomes bos. Text has no unknown tokens there.
        """
        places = {symbol: number for number, symbol in enumerate(symbols)}
        pad, eos = (self.config.get(f"{name}_token_id") for name in ("pad", "eos"))
        start = self.config.get("decoder_start_token_id", pad)
        own = (processor.unk_id(), processor.bos_id())
        unknown, bos = (places.get(processor.id_to_piece(number)) if number >= 0 else None for number in own)
        if start not in (pad, eos):
            unknown, bos = None if start == unknown else unknown, start
        specials = [pad, unknown, bos, eos]
        if any(number is not None and (type(number) is not int or number < 0) for number in (*specials, pad, eos)):
            raise DataError(
                f"{self.path / 'config.json'}: pad_token_id, eos_token_id or decoder_start_token_id is not an id"
            )
        return specials, {pad: PAD, eos: EOS}.get(start, BOS)

    def _pair(self, tokenizer: SentencePieceList) -> LanguagePair:
        pieces = tokenizer.vocabulary.pieces
        tokens = {match[1]: match[0] for match in map(LANGUAGE.fullmatch, pieces) if match}
        source, target = languages_of(self.path, self.config, self.options)
        if not tokens:
            require_languages(source, target)
            return LanguagePair(source, target, tokenizer, tokenizer, True)
        languages = LanguageTokens(tokens, SourceToken.target, target=False)
        known = languages.known(source), languages.known(target)
        return LanguagePair(*known, tokenizer, tokenizer, True, languages).checked()


class _T5Reader(LayoutReader):
    def attention(self, layer: str, table: ArrayTable) -> Attention:
        return replace(super().attention(layer, table), scale=1.0)


@dataclass
class _Weights:
    tensors: Tensors
    config: Mapping[str, Any]

    def read(self, start: int) -> TransformerWeights:
        width, decoder_layers = self.config["d_model"], self.config.get("num_decoder_layers")
        shared = self.tensors.unwidened("shared.weight", None, width)
        embeddings = [self._equal(f"{side}.embed_tokens.weight", shared) for side in ("encoder", "decoder")]
        output = self._equal("lm_head.weight", shared)
        if self.config.get("scale_decoder_outputs", self.config.get("tie_word_embeddings") is not False):
            output = scaled_output(output)
        encoder = self._stack("encoder", embeddings[0], self.config["num_layers"], 1)
        decoder = self._stack("decoder", embeddings[1], decoder_layers or self.config["num_layers"], 2)
        self.tensors.optional(_UNUSED, None, None)
        self.tensors.require_all_read()
        return TransformerWeights(encoder, decoder, LinearWeights(output), self.config["num_heads"], start)

    def _equal(self, name: str, shared: Array) -> Array:
        return same_if_equal(self.tensors.unwidened(name, *shared.shape), shared) if name in self.tensors else shared

    def _stack(self, side: str, embedding: Array, count: int, feed_forward: int) -> StackWeights:
        kind, heads = str(self.config.get("feed_forward_proj", "relu")), self.config["num_heads"]
        if kind not in ACTIVATIONS:
            raise DataError(
                f"{self.tensors.origin} has feed_forward_proj={unquoted(kind)}; nmt reads {', '.join(ACTIVATIONS)}"
            )
        activation, gated = ACTIVATIONS[kind]
        layout = layout_of(feed_forward, gated=gated)
        epsilon = number_of(self.config, "layer_norm_epsilon", default=1e-6, highest=1.0)
        reader = _T5Reader(self.tensors, layout, self.config["d_model"], heads, activation, epsilon)
        table = self.tensors.take(f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", None, heads)
        reach = count_of(self.config, "relative_attention_max_distance", self.tensors.origin) or 128
        return reader.stack(side, embedding, 1.0, Buckets(table.T, reach), norm_first=True, count=count)


def scaled_output(embedding: Array) -> Array:
    """Return the output matrix of models that share it with the embedding."""
    return widened(embedding) * np.float32(embedding.shape[1] ** -0.5)


def layout_of(feed_forward: int, *, gated: bool) -> FormatLayout:
    """``feed_forward``: the number of this sublayer, which is 1 in the encoder and 2 in the decoder."""
    parts = {"q": "query", "k": "key", "v": "value", "o": "output"}
    inner = {"wi_0": "inner", "wi_1": "gate"} if gated else {"wi": "inner"}
    return FormatLayout(
        layer="{side}.block.{number}.layer.",
        self_attention={f"0.SelfAttention.{name}.*": part for name, part in parts.items()},
        cross_attention={f"1.EncDecAttention.{name}.*": part for name, part in parts.items()},
        feed_forward={
            f"{feed_forward}.DenseReluDense.{name}.*": part for name, part in (inner | {"wo": "outer"}).items()
        },
        norms=("0.layer_norm.*", "1.layer_norm.*", f"{feed_forward}.layer_norm.*"),
        final_norm="{side}.final_layer_norm.*",
        embeddings=("shared.weight", "shared.weight"),
        output="lm_head",
        norm_names=("weight", ""),
        any_head_size=True,
    )
