"""Saved models for tests of everything behind training: they translate word for word, and are made in a second or two."""

from __future__ import annotations

import dataclasses
import functools
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.batching.batch import collate
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece import SentencePieceConfig
from nmt.data.vocabulary import EOS
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.checkpoints import CheckpointInfo, write_checkpoint
from tests.sharing import made_once

DICTIONARY = dict(zip("ein mann zwei hunde laufen schnee rot".split(), "a man two dogs run snow red".split()))
WORDS = (*DICTIONARY, *DICTIONARY.values())

LEARNED: dict[str, dict[str, Tensor]] = {}  # by lesson; most tests use one of a few
SHARED = 100  # updates; after as many, weights are shared by the workers of pytest-xdist

SIZES: dict[str, dict[str, Any]] = {
    "conv_s2s": {
        "embedding_size": 32,
        "output_size": 32,
        "encoder_convolutions": ["1x32x1"],
        "decoder_convolutions": ["2x32x1"],
    },
    "lstm": {"embedding_size": 32, "hidden_size": 32},
    "transformer": {"encoder_layers": 1, "decoder_layers": 1, "d_model": 32, "d_ff": 32},
}

# Options of models in which several heads and layers attend to the source.
SIZES_WITH_ATTENTION = {"transformer": {"num_heads": 4, "encoder_layers": 2, "decoder_layers": 3}}


def in_english(line: str) -> str:
    """What a trained tiny model should make of a line."""
    return " ".join(DICTIONARY[word] for word in line.split())


def some_lines(count: int, seed: int = 1, longest: int = 4) -> list[str]:
    chosen = random.Random(seed)
    return [" ".join(chosen.sample(list(DICTIONARY), chosen.randint(1, longest))) for _ in range(count)]


def tiny_pair(words: tuple[str, ...] = WORDS, *, reverse: bool = False) -> LanguagePair:
    """One joint vocabulary of whole words."""
    tokenizer = WordTokenizer(WordsConfig(), words)
    languages = ("en", "de") if reverse else ("de", "en")
    return LanguagePair(*languages, tokenizer, tokenizer, shared=True)


def write_tiny_model(
    folder: Path,
    *,
    model: str = "lstm",
    updates: int = 300,
    seed: int = 1,
    words: tuple[str, ...] = WORDS,
    reverse: bool = False,
    pair: LanguagePair | None = None,
    search: Any = None,
    **options: Any,
) -> Path:
    """A checkpoint folder with its tokenizer; ``options`` change the model's sizes, ``updates`` is how long it learns,
    ``reverse``: from English to German, ``pair``: other pieces, of a joint vocabulary, ``search``: what it is said to
    have been validated with."""
    usual = pair is None
    pair = pair or tiny_pair(words, reverse=reverse)
    tokenizer = folder.with_name(f"{folder.name}-tokenizer")
    pair.save(tokenizer)
    shrunken = models.config_class(model)().shrink()  # type: ignore[attr-defined]
    config = dataclasses.replace(shrunken, **({"dropout": 0.0} | SIZES[model] | options))
    lesson = repr((config, updates, seed, words, reverse))
    learned = LEARNED.get(lesson) if usual else None
    if learned is None:
        learn = functools.partial(_learned, config, pair, updates, seed)
        learned = _learned_once(lesson, learn) if usual and updates >= SHARED else learn()
        if usual:
            LEARNED[lesson] = learned
    write_checkpoint(
        folder,
        model=learned,
        config={"model": to_plain(config), "search": to_plain(search)},
        info=CheckpointInfo(update=updates, epoch=1),
        tokenizer=tokenizer,
    )
    return folder


_CODES = ("deu_Latn", "eng_Latn", "fra_Latn")
# Where models of several languages read their tokens; "nllb" is M2M100 and mBART-50 too.
LANGUAGES = {
    "nllb": LanguageTokens({code: code for code in _CODES}, SourceToken.source, target=True),
    "madlad": LanguageTokens({"de": "<2de>", "en": "<2en>"}, SourceToken.target),
    "target": LanguageTokens({"de": "<2de>", "en": "<2en>"}, SourceToken.none, target=True),
    "both": LanguageTokens({"de": "<2de>", "en": "<2en>"}, SourceToken.target, target=True),
}


def write_multilingual_model(
    folder: Path, languages: LanguageTokens = LANGUAGES["nllb"], default: tuple[str, str] = ("", "")
) -> Path:
    """A random Transformer of several languages, whose translations differ from direction to direction."""
    pair = tiny_pair((*languages.tokens.values(), *WORDS))
    pair = dataclasses.replace(pair, source_lang=default[0], target_lang=default[1], languages=languages)
    return write_tiny_model(folder, model="transformer", updates=0, pair=pair)


def write_tiny_corpus(folder: Path, *, tokenizer: Path | None = None, joint: SentencePieceConfig | None = None) -> Path:
    """A corpus folder of pairs that such a model learns from; ``tokenizer``: a folder whose vocabulary it has, ``joint``:
    how other pieces of both languages are learned from them."""
    lines = some_lines(300, seed=3, longest=5)
    for language, side in (("de", lines), ("en", [in_english(line) for line in lines])):
        (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
    given = None if tokenizer is None else str(tokenizer)
    preprocess(
        PreprocessConfig(
            source_lang="de",
            target_lang="en",
            trainpref=str(folder / "train"),
            destdir=str(folder / "bin"),
            tokenizer=joint or WordsConfig(),
            srcdict=given,
            joined_dictionary=given is not None or joint is not None,
        )
    )
    return folder / "bin"


def _learned_once(lesson: str, learn: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the weights that one of the workers has learned, or learn them for all."""
    name = f"lesson-{zlib.crc32(lesson.encode()):08x}"
    folder = made_once(name, lambda path: torch.save(learn(), path / "weights.pt"))
    weights: dict[str, Tensor] = torch.load(folder / "weights.pt", weights_only=True)
    return weights


def _learned(config: Any, pair: LanguagePair, updates: int, seed: int) -> dict[str, Tensor]:
    size = len(pair.source.vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = models.build(config, VocabularySizes(size, size, True))
        _teach(built, pair, updates, seed)
    return built.state_dict()


def _teach(model: EncoderDecoder, pair: LanguagePair, updates: int, seed: int) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for update in range(updates):
        # With a constant rate the last update may spoil what was learned, on one processor and not on another.
        optimizer.param_groups[0]["lr"] = 0.01 * min(1, 2 * (1 - update / updates))
        lines = some_lines(32, seed * 1000 + update)
        sources, targets = pair.source.encode(lines), pair.target.encode([in_english(line) for line in lines])
        if pair.source_lang == "en":
            sources, targets = targets, sources
        batch = collate([np.append(ids, EOS) for ids in sources], [np.append(ids, EOS) for ids in targets])
        logits = model.output.logits(model(batch).hidden)
        loss = torch.nn.functional.cross_entropy(logits, batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
