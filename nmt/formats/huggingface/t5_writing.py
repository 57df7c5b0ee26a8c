"""Writes folders of T5 and MADLAD-400, whose token ids are those of the sentencepiece model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from nmt.config.exchange import ExportConfig
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from nmt.errors import UsageError
from nmt.formats import PortableModel
from nmt.formats.huggingface.multilingual_writing import sentencepiece_parts
from nmt.formats.huggingface.t5 import ACTIVATIONS, LANGUAGE, MODEL, layout_of, scaled_output
from nmt.formats.huggingface.writing import MOST_PIECES, generation_options
from nmt.formats.residual_stream import map_named_arrays
from nmt.formats.vocabulary_order import ABSENT, VocabularyOrder, in_our_order
from nmt.models.transformer.weights import Activation, Array, Buckets, TransformerWeights, arrays_of
from nmt.storage.files import write_json
from nmt.storage.tensor_file import write_numbers


def write_t5(model: PortableModel, folder: Path, options: ExportConfig) -> None:
    tokenizer, languages = model.pair.source, model.pair.languages
    if not (isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.is_kind("unigram") and model.pair.shared):
        raise UsageError(
            "Hugging Face's T5 needs one unigram sentencepiece model for both sides, but the model has other tokenizers; "
            "set --format ctranslate2"
        )
    for holds, complaint in _complaints(model.weights, languages):
        if holds:
            raise UsageError(f"Hugging Face's T5 {complaint}")
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes())
    rows = _rows(processor, tokenizer.vocabulary.pieces, model.weights)
    order = VocabularyOrder((), rows)
    weights = in_our_order(model.weights, order, order)
    if any(_is_bias(name) and array.any() for name, array in arrays_of(weights)):
        raise UsageError(
            "Hugging Face's T5 has no biases, but the model has some; set --format ctranslate2, or fine-tune an imported "
            "model with --freeze '*.bias'"
        )
    tensors, longest = _tensors(weights), min(MOST_PIECES, options.longest)
    config = _configuration(model, weights, rows) | {"tie_word_embeddings": "lm_head.weight" not in tensors}
    config["scale_decoder_outputs"] = config["tie_word_embeddings"]
    write_json(folder / "config.json", config)
    generation = generation_options(config, model, longest)
    if config["num_decoder_layers"] > config["num_layers"]:  # the cache of transformers 5.24 has too few layers
        generation["use_cache"] = False
    write_json(folder / "generation_config.json", generation)
    write_numbers(folder / "model.safetensors", tensors, {"format": "pt"})
    (folder / MODEL).write_bytes(tokenizer.model_bytes())
    tokens = [] if languages is None else [*languages.tokens.values()]
    _write_tokenizer(folder, processor, config["pad_token_id"], tokens, longest)


def _complaints(weights: TransformerWeights, languages: LanguageTokens | None) -> Iterator[tuple[bool, str]]:
    """Yield the properties that T5 lacks, and whether the model has them."""
    norms_after = not all(stack.norm_first for stack in (weights.source, weights.target))
    first, instead = weights.source.layers[0], "set --format ctranslate2"
    yield norms_after, f"has norms before sublayers, but the model has some after them; {instead}"
    normed = weights.source.embedding_norm is not None
    yield normed, f"has no norm of the embeddings, but the model has one; {instead}"
    yield first.self_norm.bias is not None, f"has RMSNorm, but the model has layer normalization; {instead}"
    feeds = "has the feed-forward networks relu, gelu, geglu_tanh and swiglu, but the model has another kind"
    yield _feed_forward(weights) not in ACTIVATIONS.values(), f"{feeds}; {instead}"
    widths = {len(linear.weight) for linear in (first.attention.query, first.attention.value)}
    yield len(widths) > 1, "has one width for keys and values, but the model has two; set --format safetensors"
    separate = weights.source.embedding is not weights.target.embedding
    yield separate, f"has one embedding for both sides, but the model has two; {instead}"
    if languages is not None:
        before = languages.source is SourceToken.target and not languages.target
        usual = before and all(map(LANGUAGE.fullmatch, languages.tokens.values()))
        yield (
            not usual,
            f"has language tokens only before the source, such as <2de>, but the model has others; {instead}",
        )


def _feed_forward(weights: TransformerWeights) -> tuple[Activation, bool]:
    feed_forward = weights.source.layers[0].feed_forward
    return feed_forward.activation, feed_forward.gate is not None


def _is_bias(name: str) -> bool:
    return name.endswith(".bias")


def _rows(processor: Any, pieces: Sequence[str], weights: TransformerWeights) -> tuple[int, ...]:
    """Return our id of each token of the sentencepiece model."""
    start, bias = weights.start, weights.output.bias
    unknown, bos, eos = processor.unk_id(), processor.bos_id(), processor.eos_id()
    pad = bos if processor.pad_id() < 0 else processor.pad_id()
    first = {PAD: pad, EOS: eos, BOS: unknown if bos in (-1, pad) else bos}[start]
    ours = {piece: number for number, piece in enumerate(pieces) if number >= len(SPECIALS)}
    special = {unknown: UNK, bos: BOS, pad: PAD, eos: EOS, first: start}
    symbols: list[str] = processor.id_to_piece(list(range(processor.vocab_size())))
    rows = [special.get(number, ours.get(symbol)) for number, symbol in enumerate(symbols)]
    others = {
        "vocabulary": [*ours.keys() - {*symbols}],
        "sentencepiece model": [symbol for symbol, row in zip(symbols, rows) if row is None],
    }
    for place, tokens in others.items():
        if tokens:
            raise UsageError(
                f"Hugging Face's T5 has the tokens of its sentencepiece model, but {tokens[0]!r} is only in the {place}; "
                "set --format ctranslate2"
            )
    for number, name in enumerate(SPECIALS):
        if number not in rows and (bias is None or bias[number] != ABSENT):
            raise UsageError(
                f"Hugging Face's T5 has the special tokens of its sentencepiece model, which has no {name} of its own; "
                f"set --format ctranslate2"
            )
    return tuple(row for row in rows if row is not None)


def _tensors(weights: TransformerWeights) -> dict[str, Array]:
    """Return the tensors of T5. Queries absorb the scale of the scores, and embeddings their own."""
    scale, (_, gated) = weights.source.layers[0].attention.scale, _feed_forward(weights)

    def changed(name: str, array: Array) -> Array | None:
        if _is_bias(name):
            return None
        return array * scale if ".query." in name else array

    plain = map_named_arrays(changed, weights)
    tensors = {"shared.weight": weights.source.embedding * weights.source.scale}
    for feed_forward, side, stack in ((1, "encoder", weights.source), (2, "decoder", weights.target)):
        arrays = layout_of(feed_forward, gated=gated).arrays(plain)
        tensors |= {name: array for name, array in arrays if name.startswith(side)}
        assert isinstance(stack.positions, Buckets)
        tensors[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"] = stack.positions.table.T
    if not np.array_equal(weights.output.weight, scaled_output(tensors["shared.weight"])):
        tensors["lm_head.weight"] = weights.output.weight
    return {name: np.ascontiguousarray(array, dtype=np.float32) for name, array in tensors.items()}


def _configuration(model: PortableModel, weights: TransformerWeights, rows: Sequence[int]) -> dict[str, Any]:
    first, positions = weights.source.layers[0], weights.source.positions
    feed_forward = _feed_forward(weights)
    assert isinstance(positions, Buckets)
    ids = {"pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": weights.start}
    return {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "d_model": weights.width,
        "d_kv": len(first.attention.query.weight) // weights.num_heads,
        "d_ff": len(first.feed_forward.inner.weight),
        "num_layers": len(weights.source.layers),
        "num_decoder_layers": len(weights.target.layers),
        "num_heads": weights.num_heads,
        "relative_attention_num_buckets": positions.table.shape[1],
        "relative_attention_max_distance": positions.reach,
        "feed_forward_proj": next(name for name, kind in ACTIVATIONS.items() if kind == feed_forward),
        "layer_norm_epsilon": first.self_norm.epsilon,
        "dropout_rate": 0.0,
        "vocab_size": len(rows),
        "is_encoder_decoder": True,
        "langs": [model.pair.source_lang, model.pair.target_lang],  # as in FSMT; transformers ignores it
        **{name: rows.index(number) for name, number in ids.items()},
        **({"bos_token_id": rows.index(BOS)} if BOS in rows else {}),
    }


def _write_tokenizer(folder: Path, processor: Any, pad: int, languages: Sequence[str], longest: int) -> None:
    """Write tokenizer.json. T5Tokenizer of transformers 5 would read bytes, which MADLAD has, as unknown characters."""
    import tokenizers
    import transformers

    parts = sentencepiece_parts(folder / MODEL, transformers.T5Tokenizer)
    vocabulary, unknown = parts["vocab"], processor.unk_id()
    ids = {"<unk>": unknown, "<s>": processor.bos_id(), "</s>": processor.eos_id(), "<pad>": processor.pad_id()}
    for name, number in ids.items():  # models that nmt-preprocess trained have other names
        if number >= 0:
            vocabulary[number] = name, vocabulary[number][1]
    names = {"pad_token": vocabulary[pad][0], "eos_token": "</s>", "unk_token": "<unk>"}
    charsmap = parts["_spm_precompiled_charsmap"]
    backend = transformers.T5Tokenizer(
        vocabulary, _spm_precompiled_charsmap=charsmap, extra_ids=0, **names
    ).backend_tokenizer
    has_bytes = processor.piece_to_id("<0x00>") != unknown
    backend.model = tokenizers.models.Unigram(vocabulary, unk_id=unknown, byte_fallback=has_bytes)
    backend.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.ByteFallback(), backend.decoder])
    options = {"extra_special_tokens": [*languages], "model_max_length": longest, **names}
    general = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **options)  # type: ignore[no-untyped-call]
    general.save_pretrained(folder)
