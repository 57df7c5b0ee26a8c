"""A task in three languages: the same letters in "en", backwards in "de", as capitals in "fr"."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.preprocessing.preprocess import preprocess

PAIRS = ["en-de", "en-fr", "de-en", "fr-en"]
ZERO_SHOT = ["de-fr", "fr-de"]
TOKENS = ["<2en>", "<2de>", "<2fr>"]
LETTERS = "abcdefgh"


def write_text(folder: Path, **sizes: int) -> None:
    """Write the text of each split, and a list of tokens."""
    letters = random.Random(1)
    for split, size in sizes.items():
        lines = [letters.choices(LETTERS, k=letters.randint(2, 6)) for _ in range(size)]
        sides = {"en": lines, "de": [line[::-1] for line in lines], "fr": [[c.upper() for c in line] for line in lines]}
        for language, side in sides.items():
            (folder / f"{split}.{language}").write_text("".join(f"{' '.join(line)}\n" for line in side))
    (folder / "tokens").write_text("\n".join([*TOKENS, *LETTERS, *LETTERS.upper()]) + "\n")


def options(folder: Path, **changes: Any) -> PreprocessConfig:
    parts: dict[str, Any] = {
        "pairs": PAIRS,
        "zero_shot": ZERO_SHOT,
        "trainpref": f"{folder}/train",
        "validpref": f"{folder}/valid",
        "destdir": f"{folder}/corpus",
        "tokenizer": WordsConfig(),
        "srcdict": f"{folder}/tokens",
    }
    return PreprocessConfig(**(parts | changes))


def make_corpus(folder: Path, **changes: Any) -> Path:
    """Write text and the corpus of all directions."""
    folder.mkdir(exist_ok=True)
    write_text(folder, train=40, valid=6)
    return Path(preprocess(options(folder, **changes)).folder)
