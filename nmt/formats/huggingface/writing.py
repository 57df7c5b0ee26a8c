"""Writes folders of Marian, Pegasus, M2M100 and mBART-50, and reads them back with Hugging Face's transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.config.exchange import ExportConfig
from nmt.data.imported.vocabularies import FAIRSEQ_SPECIALS
from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from nmt.errors import UsageError
from nmt.formats import ComparedModel, PortableModel
from nmt.formats.fairseq import EPSILON
from nmt.formats.huggingface.folder import EARLY_STOPPING, LANGUAGES
from nmt.formats.huggingface.multilingual import MULTILINGUAL
from nmt.formats.huggingface.multilingual_writing import is_multilingual, write_multilingual_tokenizer
from nmt.formats.huggingface.weights import tensors_of
from nmt.formats.layout import unusual_head_size
from nmt.formats.residual_stream import ORIGINAL_LAYOUT, in_halves
from nmt.formats.vocabulary_order import VocabularyOrder, in_our_order
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.transformer.weights import Activation, TransformerWeights
from nmt.search.config import BeamConfig, LengthPenalty
from nmt.storage.files import write_json
from nmt.storage.tensor_file import write_numbers

if TYPE_CHECKING:
    from torch import Tensor

MOST_PIECES = 512  # tokens of a sentence, the limit stored in the folder
_FAMILIES = {"m2m_100": "M2M100 and NLLB", "mbart": "mBART-50"}
_FAMILIES |= dict.fromkeys(("marian", "pegasus"), "Marian and Pegasus")
_ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
}
_SINUSOIDS = {"m2m_100": (Wavelengths.tensor2tensor, 2, "tensor2tensor's sinusoids from position 2 on")}
_BASE = 10000.0  # of all sinusoids
_ACTIVATIONS = (Activation.relu, Activation.gelu, Activation.swish)  # our names are theirs


def write_folder(model: PortableModel, folder: Path, options: ExportConfig) -> None:
    kind = _kind(model)
    for holds, complaint in _complaints(model.weights, kind):
        if holds:
            raise UsageError(f"Hugging Face's {_FAMILIES[kind]} {complaint}")
    weights, symbols = _in_their_order(model) if kind in MULTILINGUAL else (model.weights, ())
    config = _configuration(replace(model, weights=weights), kind, options.longest)
    positions = weights.source.positions
    if isinstance(positions, Sinusoids) and positions.interleaved:
        weights = in_halves(weights)
        config[ORIGINAL_LAYOUT] = SinusoidLayout.interleaved.value
    longest = min(MOST_PIECES, config["max_position_embeddings"])
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation_options(config, model, longest))
    write_numbers(folder / "model.safetensors", tensors_of(weights, kind), {"format": "pt"})
    if kind in MULTILINGUAL:
        write_multilingual_tokenizer(model, folder, symbols, longest)
    else:
        _write_tokenizer(model, folder, min(MOST_PIECES, options.longest))


def _kind(model: PortableModel) -> str:
    """Return the type of model that may hold this one."""
    weights = model.weights
    if is_multilingual(model):
        return "m2m_100" if isinstance(weights.source.positions, Sinusoids) else "mbart"
    return "pegasus" if weights.source.norm_first else "marian"


def _complaints(weights: TransformerWeights, kind: str) -> Iterator[tuple[bool, str]]:
    """Yield the properties that a type of model lacks, and whether the model has them."""
    source, first, positions = weights.source, weights.source.layers[0], weights.source.positions
    orders = {stack.norm_first for stack in (source, weights.target)}
    shared = source.embedding is weights.target.embedding is weights.output.weight
    of_mbart, has_norm = kind == "mbart", source.embedding_norm is not None
    others = "but the model has others; export it to ctranslate2"
    is_known = isinstance(positions, np.ndarray if of_mbart else Sinusoids)
    place_kind = "learned" if of_mbart else "sinusoidal"
    *formula, known = _SINUSOIDS.get(kind, (Wavelengths.paper, 0, "the paper's sinusoids from position 0 on"))
    own = [positions.wavelengths, positions.offset] if isinstance(positions, Sinusoids) else formula
    base = positions.base if isinstance(positions, Sinusoids) else _BASE
    norms = "a norm of the embeddings, but the model has none"
    if not of_mbart:
        norms = "no norm of the embeddings, but the model has one (model.embedding_norm)"
    yield weights.is_recurrent, "have self-attention in the decoder, but the model has SSRUs; export it to safetensors"
    yield not is_known, f"have {place_kind} positions, {others}"
    yield own != formula or base != _BASE, f"have {known}, {others}"
    yield has_norm is not of_mbart, f"have {norms}; export it to ctranslate2"
    yield len(orders) > 1, "have one order of norms on both sides, but the model has two; export it to ctranslate2"
    yield kind in MULTILINGUAL and orders == {False}, "have norms before sublayers, not after; export it to ctranslate2"
    norm, feed, size = first.self_norm, first.feed_forward, unusual_head_size(weights)
    unusual = norm.bias is None or norm.epsilon != EPSILON
    yield unusual, f"have layer norm with epsilon {EPSILON:g}, but the model has another norm; export it to ctranslate2"
    gated = feed.gate is not None or feed.activation not in _ACTIVATIONS
    yield gated, f"have feed-forward networks with relu, gelu or swish and without gates, {others}"
    yield size is not None, f"have heads of size d_model / num_heads, not {size}; export it to safetensors"
    several = "share all embeddings if norms precede each sublayer, but the model has several; export it to ctranslate2"
    yield kind != "marian" and not shared, several
    biased = kind == "m2m_100" and weights.output.bias is not None
    yield biased, "have no output bias, but the model has one (model.output_bias); export it to ctranslate2"


def _in_their_order(model: PortableModel) -> tuple[TransformerWeights, list[str]]:
    """Return the model with the special tokens in fairseq's order, and all tokens by id."""
    pieces = model.pair.source.vocabulary.pieces
    order = VocabularyOrder(pieces[len(SPECIALS) :], (BOS, PAD, EOS, UNK, *range(len(SPECIALS), len(pieces))))
    return in_our_order(model.weights, order, order), [*FAIRSEQ_SPECIALS, *pieces[len(SPECIALS) :]]


def _configuration(model: PortableModel, kind: str, longest: int) -> dict[str, Any]:
    weights, pair = model.weights, model.pair
    first, heads, positions = weights.source.layers[0], weights.num_heads, weights.source.positions
    ids = {PAD: 1, BOS: 0, EOS: 2} if kind in MULTILINGUAL else {PAD: PAD, BOS: BOS, EOS: EOS}
    config: dict[str, Any] = {
        "model_type": kind,
        "architectures": [_ARCHITECTURES[kind]],
        "d_model": weights.width,
        "vocab_size": len(pair.source.vocabulary),
        "activation_function": first.feed_forward.activation.value,
        "scale_embedding": weights.source.scale != 1.0,
        "static_position_embeddings": True,
        "max_position_embeddings": len(positions) if isinstance(positions, np.ndarray) else longest,
        "tie_word_embeddings": weights.target.embedding is weights.output.weight,
        "is_encoder_decoder": True,
        "langs": [pair.source_lang, pair.target_lang],  # as in FSMT; transformers ignores it
        "pad_token_id": ids[PAD],
        "bos_token_id": ids[BOS],
        "eos_token_id": ids[EOS],
        "forced_eos_token_id": ids[EOS],
        "decoder_start_token_id": ids[weights.start],
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
    }
    for side, stack in (("encoder", weights.source), ("decoder", weights.target)):
        config |= {f"{side}_layers": len(stack.layers), f"{side}_attention_heads": heads}
        config |= {f"{side}_ffn_dim": len(first.feed_forward.inner.weight)}
    if kind not in MULTILINGUAL and pair.languages is not None:
        config[LANGUAGES] = pair.languages.plain()
    if kind == "marian":
        shared = weights.source.embedding is weights.target.embedding
        config |= {"decoder_vocab_size": len(pair.target.vocabulary), "share_encoder_decoder_embeddings": shared}
    return config


def generation_options(config: Mapping[str, Any], model: PortableModel, longest: int) -> dict[str, Any]:
    """Return the search options that both toolkits have; transformers lacks GNMT's length penalty."""
    ids = {name: number for name, number in config.items() if name.endswith("_token_id")}
    search, pair = BeamConfig(**model.search), model.pair
    options = ids | {
        "bad_words_ids": [[ids[name]] for name in ("pad_token_id", "bos_token_id") if name in ids],
        "num_beams": search.beam_size,
        "length_penalty": search.lenpen if search.length_penalty is LengthPenalty.power else 1.0,
        "max_length": longest,
        "early_stopping": EARLY_STOPPING.get(search.stop, "never"),
    }
    begins = pair.languages is not None and pair.languages.target  # each translation, with the token of its language
    if pair.languages is not None and begins and pair.target_lang:
        token = pair.target.vocabulary.id(pair.languages.tokens[pair.target_lang])
        options["forced_bos_token_id"] = token  # ids after the special tokens are the same
    if model.search and not search.max_len_a:
        others = 3 if begins else 2  # eos, and the tokens before the text
        options["max_length"] = min(longest, round(search.max_len_b) + others)
    return options


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


def _ids_in(folder: Path) -> list[dict[str, int]]:
    """Return the ids of the tokens of both sides, or of both together, as transformers reads them."""
    if (folder / "tokenizer_config.json").is_file() and not (folder / "source.spm").is_file():
        import transformers

        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        languages = getattr(tokenizer, "lang_token_to_id", {})  # of M2M100
        return [{**getattr(tokenizer, "encoder", tokenizer.get_vocab()), **languages}]
    paths = [folder / name for name in ("vocab.json", "target_vocab.json") if (folder / name).is_file()]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


class TransformersExport(ComparedModel):
    """A folder read by transformers."""

    def __init__(self, folder: Path) -> None:
        import transformers

        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        self._model = transformers.AutoModelForSeq2SeqLM.from_pretrained(str(folder), local_files_only=True).eval()
        self._ids = _ids_in(folder)
        self._pieces = {number: piece for piece, number in self._ids[-1].items()}
        self._pad, self._eos = (getattr(self._model.config, f"{name}_token_id") for name in ("pad", "eos"))

    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        import torch

        sums = []
        start = self._model.config.decoder_start_token_id
        with torch.inference_mode():
            for source, target in zip(sources, targets):
                target_ids = self._of(target, -1)[0]
                read = torch.cat([torch.tensor([start]), target_ids[:-1]])[None]
                scores = self._model(input_ids=self._of(source, 0), decoder_input_ids=read).logits[0].log_softmax(-1)
                sums.append(float(scores.gather(1, target_ids[:, None]).sum()))
        return sums

    def translate(self, sources: Sequence[Sequence[str]], longest: int, first: Sequence[str]) -> list[list[str]]:
        import torch

        translations, before = [], 1 + len(first)
        options = {"min_new_tokens": before, "max_new_tokens": longest + len(first)}
        if first:
            options["forced_bos_token_id"] = self._ids[-1][first[0]]
        with torch.inference_mode():
            for source in sources:
                out = self._model.generate(input_ids=self._of(source, 0), num_beams=1, **options)
                textual = [int(number) for number in out[0, before:] if number not in (self._pad, self._eos)]
                translations.append([self._pieces[number] for number in textual])
        return translations

    def _of(self, pieces: Sequence[str], side: int) -> Tensor:
        """Return ids with the end of the sentence. [1, length]"""
        import torch

        return torch.tensor([[*(self._ids[side][piece] for piece in pieces), self._eos]])
