"""A small parallel text on disk, for tests of what is made of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import Verify

SOURCE = [f"the {noun} is {colour}" for noun in ("house", "tree", "car") for colour in ("red", "green", "old")]
TARGET = [f"{noun} ist {colour}" for noun in ("Haus", "Baum", "Auto") for colour in ("rot", "grün", "alt")]


def write(path: Path, lines: Iterable[str]) -> None:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())


class Text:
    """Files of a small task, and the configuration that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("train", SOURCE, TARGET)
        self.write("valid", SOURCE[:2], TARGET[:2])
        self.config = PreprocessConfig(
            source_lang="en",
            target_lang="de",
            trainpref=f"{folder}/train",
            destdir=f"{folder}/corpus",
            tokenizer=WordsConfig(),
        )

    def write(self, split: str, source: Iterable[str], target: Iterable[str]) -> None:
        write(self.folder / f"{split}.en", source)
        write(self.folder / f"{split}.de", target)

    def make(self, **options: Any) -> tuple[Corpus, PreprocessReport]:
        report = preprocess(replace(self.config, **options))
        return Corpus.open(Path(report.folder), Verify.full), report
