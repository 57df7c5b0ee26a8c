"""Translating with weights in few bytes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import AlignmentKind, NumberFormat
from nmt.config.translation import TranslationOptions
from nmt.native.library import SWITCH, forget, library
from nmt.search.config import BeamConfig
from nmt.translation import Translator
from tests.tiny_models import in_english, some_lines, write_tiny_model

pytestmark = [
    pytest.mark.slow,  # the model and its lines take seconds
    pytest.mark.skipif(library() is None, reason="the C part was not built: no C compiler"),
]
LINES = some_lines(60)
Scored = list[tuple[str, list[float]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("formats") / "model", model="transformer", updates=600)


def scored(translator: Translator, lines: list[str], **options: Any) -> Scored:
    """Best translations and the scores of their tokens."""
    config = TranslationOptions(search=BeamConfig(beam_size=3), **options)
    found = [one.hypotheses[0] for one in translator.hypotheses(lines, config)]
    return [(one.text, list(one.token_scores)) for one in found]


@pytest.mark.parametrize("name", [*NumberFormat.__members__])
def test_every_format_translates(folder: Path, name: str) -> None:
    translations = Translator.load(folder, device="cpu", dtype=name).translate(LINES, beam=3)
    right = sum(found == in_english(line) for found, line in zip(translations, LINES))
    assert right >= 0.95 * len(LINES)


@pytest.mark.parametrize("name", [*NumberFormat.__members__])
def test_how_lines_are_batched_changes_no_bit(folder: Path, name: str) -> None:
    translator = Translator.load(folder, device="cpu", dtype=name)
    expected = scored(translator, LINES)
    for size in (1, 7):
        assert scored(translator, LINES, batch_size=size) == expected
    assert scored(translator, LINES, buffer_size=5) == expected
    order = random.Random(1).sample(range(len(LINES)), len(LINES))
    assert scored(translator, [LINES[place] for place in order]) == [expected[place] for place in order]
    assert scored(translator, LINES, print_alignment=AlignmentKind.hard) == expected
    assert scored(translator, LINES, print_alignment=AlignmentKind.hard, batch_size=7) == expected
    side_by_side = Translator.load(folder, device="cpu", dtype=name, workers=2)
    assert scored(side_by_side, LINES, batch_size=7) == expected


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_torch_translates_in_either_where_there_is_no_c(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, "off")
    forget()
    try:
        translator = Translator.load(folder, device="cpu", dtype=name)
        config = TranslationOptions(search=BeamConfig(beam_size=3), print_alignment=AlignmentKind.hard)
        found = [one.hypotheses[0] for one in translator.hypotheses(LINES, config)]
    finally:
        monkeypatch.undo()
        forget()
    assert sum(one.text == in_english(line) for one, line in zip(found, LINES)) >= 0.95 * len(LINES)
    assert all(one.attention is not None and one.attention.dtype == np.float32 for one in found)
