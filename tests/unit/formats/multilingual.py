"""Random M2M100, NLLB and mBART-50 models of small size, in folders that transformers wrote, and text in many scripts."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import babel
import numpy as np
import sentencepiece
import torch
import transformers
from transformers.convert_slow_tokenizer import NllbConverter, SentencePieceExtractor

from nmt.config.exchange import ImportConfig
from nmt.formats.importing import import_model
from nmt.storage.tensor_file import mapped_tensors

# Of seventeen scripts, in the form of Babel's locales.
LOCALES = "en de vi tr ru el hy ka he ar fa hi bn ta th my km am ja ko zh zh_Hant".split()
SIZES: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}
SOURCES = {"nllb": "eng_Latn", "m2m100": "en", "mbart": "en_XX"}
TARGETS = {"nllb": "fra_Latn", "m2m100": "de", "mbart": "de_DE"}
_MODEL = "sentencepiece.bpe.model"


def imported(folder: Path, output: Path, **options: Any) -> Path:
    (found,) = import_model(ImportConfig("huggingface", str(folder), str(output), **options))
    return found


def assert_same_parameters(folder: Path, other: Path) -> None:
    before, after = (mapped_tensors(path / "model.safetensors") for path in (folder, other))
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(array, after[name], err_msg=name)


def names(count: int) -> list[str]:
    """Names of languages and countries, in their languages."""
    locales = [babel.Locale.parse(code) for code in LOCALES]
    lines = [name for locale in locales for table in (locale.languages, locale.territories) for name in table.values()]
    lines.sort()  # the order of babel's tables varies
    random.Random(2).shuffle(lines)
    return lines[:count]


def sentencepiece_model(kind: str, **options: Any) -> bytes:
    """``kind``: bpe or unigram."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(names(2000)),
        model_writer=content,
        model_type=kind,
        minloglevel=2,
        num_threads=1,
        **{"vocab_size": 1500, "character_coverage": 0.999} | options,
    )
    return content.getvalue()


def nllb(folder: Path) -> Any:
    """transformers stores its tokenizer as tokenizer.json alone. The embedding has two rows more than there are tokens."""
    (folder / _MODEL).write_bytes(sentencepiece_model("bpe"))
    extracted = SentencePieceExtractor(str(folder / _MODEL)).extract(transformers.NllbTokenizer.model)
    options = NllbConverter.convert_from_spm(**extracted)
    options.pop("additional_special_tokens")
    tokenizer = transformers.NllbTokenizer(**options, src_lang=SOURCES["nllb"])
    (folder / _MODEL).unlink()
    tokenizer.save_pretrained(folder)
    _m2m100(folder, len(tokenizer) + 2, ending=5.0)
    return tokenizer


def m2m100(folder: Path) -> Any:
    """The vocabulary lacks some tokens of the sentencepiece model; the embedding has eight rows of no token."""
    content = sentencepiece_model("bpe")
    (folder / _MODEL).write_bytes(content)
    model = sentencepiece.SentencePieceProcessor(model_proto=content)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", *model.id_to_piece(list(range(3, model.vocab_size() - 60)))]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    tokenizer = transformers.M2M100Tokenizer(str(folder / "vocab.json"), str(folder / _MODEL))
    tokenizer.save_pretrained(folder)
    _m2m100(folder, len(pieces) + len(tokenizer.lang_code_to_id) + 8, ending=5.0, seed=2)
    return tokenizer


def mbart(folder: Path) -> Any:
    (folder / _MODEL).write_bytes(sentencepiece_model("unigram"))
    tokenizer = transformers.MBart50Tokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    options = SIZES | {"scale_embedding": True, "decoder_start_token_id": 2, "forced_eos_token_id": None}
    config = transformers.MBartConfig(vocab_size=len(tokenizer), **options)
    _random(transformers.MBartForConditionalGeneration, config, ending=5.5).save_pretrained(folder)
    return tokenizer


def t5(folder: Path, *, madlad: bool) -> Any:
    """T5 1.0 ties the output and scales it; MADLAD is T5 1.1 with language tokens, and its decoder begins with <unk>."""
    ids, options = {"pad_token_id": 0, "eos_token_id": 1}, {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    if madlad:
        ids, options = (
            {"pad_token_id": 1, "eos_token_id": 2},
            {"user_defined_symbols": "<2de>,<2fr>,<2en>", "byte_fallback": True},
        )
    (folder / "spiece.model").write_bytes(sentencepiece_model("unigram", vocab_size=1900, **options))
    config = transformers.T5Config(
        vocab_size=2028,
        d_model=32,
        d_kv=12,
        d_ff=48,
        num_layers=2,
        num_decoder_layers=3,
        num_heads=4,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        feed_forward_proj="gated-gelu" if madlad else "relu",
        tie_word_embeddings=not madlad,
        decoder_start_token_id=0,
        **ids,
    )
    torch.manual_seed(2)
    model = transformers.T5ForConditionalGeneration(config)
    if madlad:  # transformers 5 makes it the embedding
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.clone())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_table = "shared" in name or "lm_head" in name
            parameter.mul_(0.3 if is_table else 1).add_((0.05 if is_table else 0.1) * torch.randn_like(parameter))
        model.lm_head.weight[ids["eos_token_id"]].mul_(5)  # translations end
    model.save_pretrained(folder)
    return model.eval()


MAKERS = {"nllb": nllb, "m2m100": m2m100, "mbart": mbart}


def language_id(tokenizer: Any, language: str) -> int:
    known = getattr(tokenizer, "lang_code_to_id", {})
    return int(known[language] if language in known else tokenizer.convert_tokens_to_ids(language))


def ids_there(tokenizer: Any) -> dict[str, int]:
    """The id of each token."""
    if isinstance(tokenizer, transformers.M2M100Tokenizer):
        return {**tokenizer.encoder, **tokenizer.lang_token_to_id}
    return dict(tokenizer.get_vocab())


def _m2m100(folder: Path, size: int, ending: float, seed: int = 1) -> None:
    config = transformers.M2M100Config(vocab_size=size, **SIZES)
    _random(transformers.M2M100ForConditionalGeneration, config, ending, seed).save_pretrained(folder)


def _random(kind: Any, config: Any, ending: float, seed: int = 1) -> Any:
    """Set parameters that give different translations, which end sooner the larger ``ending`` is."""
    torch.manual_seed(seed)
    model = kind(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_((0.2 if "shared" in name else 0.32) * torch.randn_like(parameter))
        norm, eos = model.model.decoder.layer_norm, model.lm_head.weight[2]
        norm.weight.mul_(torch.randn_like(norm.weight).sign())  # else each token would repeat
        norm.bias.add_(ending * eos / (eos @ eos))
    return model.eval()
