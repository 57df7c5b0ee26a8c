"""Writes Marian and Pegasus folders, and reads them back with Hugging Face's transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nmt.config.exchange import ExportConfig
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import UsageError
from nmt.formats import ComparedModel, PortableModel
from nmt.formats.fairseq import EPSILON
from nmt.formats.huggingface.weights import tensors_of
from nmt.formats.layout import unusual_head_size
from nmt.formats.residual_stream import ORIGINAL_LAYOUT, in_halves
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, TransformerWeights
from nmt.search.config import BeamConfig, LengthPenalty
from nmt.storage.files import write_json

_MOST_PIECES = 512  # tokens of a sentence, the limit stored in the folder
_ACTIVATIONS = (Activation.relu, Activation.gelu, Activation.swish)  # our names are theirs


def write_folder(model: PortableModel, folder: Path, options: ExportConfig) -> None:
    from safetensors.numpy import save

    _require(model.weights)
    weights, config = model.weights, _configuration(model, options.longest)
    assert isinstance(weights.source.positions, Sinusoids)
    if weights.source.positions.interleaved:
        weights = in_halves(weights)
        config[ORIGINAL_LAYOUT] = SinusoidLayout.interleaved.value
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", _generation(config, BeamConfig(**model.search)))
    (folder / "model.safetensors").write_bytes(save(tensors_of(weights), metadata={"format": "pt"}))
    _write_tokenizer(model, folder, min(_MOST_PIECES, options.longest))


def _require(weights: TransformerWeights) -> None:
    """Refuse properties that Marian and Pegasus lack."""
    family, first, positions = "Hugging Face's Marian and Pegasus", weights.source.layers[0], weights.source.positions
    complaints = [
        (
            weights.is_recurrent,
            f"{family} have self-attention in the decoder, but the model has SSRUs; export it to safetensors",
        ),
        (
            not isinstance(positions, Sinusoids),
            f"{family} have sinusoidal positions, but the model has others; export it to ctranslate2",
        ),
        (
            isinstance(positions, Sinusoids)
            and (positions.wavelengths is not Wavelengths.paper or positions.offset != 0 or positions.base != 10000.0),
            f"{family} have the paper's sinusoids from position 0 on, but the model has others; export it to "
            "ctranslate2",
        ),
        (
            weights.source.embedding_norm is not None,
            f"{family} have no norm of the embeddings, but the model has one (model.embedding_norm); export it to "
            "ctranslate2",
        ),
        (
            weights.source.norm_first is not weights.target.norm_first,
            f"{family} have one order of norms for encoder and decoder, but the model has two",
        ),
        (
            first.self_norm.bias is None or first.self_norm.epsilon != EPSILON,
            f"{family} have layer normalization with an epsilon of {EPSILON:g}, but the model has another norm",
        ),
        (
            first.feed_forward.gate is not None or first.feed_forward.activation not in _ACTIVATIONS,
            f"{family} have feed-forward networks with relu, gelu or swish and without gates, but the model has others",
        ),
        (
            unusual_head_size(weights) is not None,
            f"{family} have heads of size d_model / num_heads, but the model's have size {unusual_head_size(weights)}",
        ),
    ]
    for broken, complaint in complaints:
        if broken:
            raise UsageError(complaint)


def _configuration(model: PortableModel, longest: int) -> dict[str, Any]:
    weights, pair = model.weights, model.pair
    first, heads = weights.source.layers[0], weights.num_heads
    kind, name = (
        ("pegasus", "PegasusForConditionalGeneration") if weights.source.norm_first else ("marian", "MarianMTModel")
    )
    shared = weights.source.embedding is weights.target.embedding
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [name],
        "d_model": weights.width,
        "vocab_size": len(pair.source.vocabulary),
        "activation_function": first.feed_forward.activation.value,
        "scale_embedding": weights.source.scale != 1.0,
        "static_position_embeddings": True,
        "max_position_embeddings": longest,
        "tie_word_embeddings": weights.target.embedding is weights.output.weight,
        "is_encoder_decoder": True,
        "langs": [pair.source_lang, pair.target_lang],  # as in FSMT; transformers ignores it
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "forced_eos_token_id": EOS,
        "decoder_start_token_id": weights.start,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
    }
    for side, stack in (("encoder", weights.source), ("decoder", weights.target)):
        config |= {f"{side}_layers": len(stack.layers), f"{side}_attention_heads": heads}
        config |= {f"{side}_ffn_dim": len(first.feed_forward.inner.weight)}
    if kind == "marian":
        config |= {"decoder_vocab_size": len(pair.target.vocabulary), "share_encoder_decoder_embeddings": shared}
    elif not shared or not config["tie_word_embeddings"]:
        raise UsageError(
            "Hugging Face's Pegasus shares all embeddings, but the model has several; export it to ctranslate2"
        )
    return config


def _generation(config: dict[str, Any], search: BeamConfig) -> dict[str, Any]:
    """Return the search options that both toolkits have; transformers lacks GNMT's length penalty."""
    ids = ("pad_token_id", "bos_token_id", "eos_token_id", "forced_eos_token_id", "decoder_start_token_id")
    never = [[PAD], [BOS]]
    return {name: config[name] for name in ids} | {
        "bad_words_ids": never,
        "num_beams": search.beam_size,
        "length_penalty": search.lenpen if search.length_penalty is LengthPenalty.power else 1.0,
        "max_length": min(_MOST_PIECES, config["max_position_embeddings"]),
    }


def _write_tokenizer(model: PortableModel, folder: Path, longest: int) -> None:
    """Write the vocabularies, and the SentencePiece models for MarianTokenizer.

    transformers lacks our other tokenizers. They are stored in our form, and transformers must be given tokens.
    """
    pair = model.pair
    for name, tokenizer in (("vocab", pair.source), ("target_vocab", pair.target)):
        if name == "vocab" or not pair.shared:
            ids = {piece: number for number, piece in enumerate(tokenizer.vocabulary.pieces)}
            text = json.dumps(ids, ensure_ascii=False, indent=0)
            (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    if not (isinstance(pair.source, SentencePieceTokenizer) and isinstance(pair.target, SentencePieceTokenizer)):
        pair.save(folder / "tokenizer")
        return
    (folder / "source.spm").write_bytes(pair.source.model_bytes())
    (folder / "target.spm").write_bytes(pair.target.model_bytes())
    options = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": pair.source_lang,
        "target_lang": pair.target_lang,
        "separate_vocabs": not pair.shared,
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "additional_special_tokens": ["<s>"],  # begins a translation, and is not text
        "model_max_length": longest,
    }
    write_json(folder / "tokenizer_config.json", options)


class TransformersExport(ComparedModel):
    """A folder read by transformers."""

    def __init__(self, folder: Path) -> None:
        import transformers

        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True).eval()
        vocabularies = [folder / name for name in ("vocab.json", "target_vocab.json") if (folder / name).is_file()]
        self._ids = [json.loads(path.read_text(encoding="utf-8")) for path in vocabularies]
        self._pieces = {number: piece for piece, number in self._ids[-1].items()}

    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        import torch

        sums = []
        start = self._model.config.decoder_start_token_id
        with torch.inference_mode():
            for source, target in zip(sources, targets):
                ids = torch.tensor([[*(self._ids[0][piece] for piece in source), EOS]])
                target_ids = torch.tensor([*(self._ids[-1][piece] for piece in target), EOS])
                read = torch.cat([torch.tensor([start]), target_ids[:-1]])[None]
                scores = self._model(input_ids=ids, decoder_input_ids=read).logits[0].log_softmax(-1)
                sums.append(float(scores.gather(1, target_ids[:, None]).sum()))
        return sums

    def translate(self, sources: Sequence[Sequence[str]], longest: int) -> list[list[str]]:
        import torch

        translations = []
        with torch.inference_mode():
            for source in sources:
                ids = torch.tensor([[*(self._ids[0][piece] for piece in source), EOS]])
                out = self._model.generate(input_ids=ids, num_beams=1, min_new_tokens=1, max_new_tokens=longest)
                textual = [int(number) for number in out[0, 1:] if number not in (PAD, EOS)]
                translations.append([self._pieces[number] for number in textual])
        return translations
