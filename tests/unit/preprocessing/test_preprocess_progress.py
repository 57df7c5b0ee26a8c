"""What preprocessing says while it takes long: every part of the work is watched."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.config.choices import ProgressStyle
from nmt.preprocessing import preprocess as preprocessing
from nmt.preprocessing import tokenization, writing
from tests.unit.preprocessing.small_text import SOURCE, Text, write


def test_reading_learning_and_alignments_are_watched_and_pairs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[tuple[str, ProgressStyle]] = []

    @contextlib.contextmanager
    def going_on(what: str, style: ProgressStyle) -> Iterator[None]:
        watched.append((what, style))
        yield

    monkeypatch.setattr(preprocessing, "going_on", going_on)
    monkeypatch.setattr(tokenization, "going_on", going_on)
    monkeypatch.setattr(writing, "going_on", going_on)
    text = Text(tmp_path)
    write(text.folder / "train.align", ["0-0" for _ in SOURCE])
    text.config.align_suffix = "align"
    text.config.progress = ProgressStyle.lines
    counted: list[tuple[str, int, int]] = []
    preprocessing.preprocess(text.config, lambda *done: counted.append(done))
    assert watched == [
        (what, ProgressStyle.lines)
        for what in (
            "reading the text",
            "learning tokens",
            "learning tokens",
            "train: numbering the tokens of alignments",
        )
    ]
    assert counted == [("train", len(SOURCE), len(SOURCE))]
