"""A thousand lines, in another order, other batches and other processes: the same translations with the same scores."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from nmt.config.choices import AlignmentKind
from nmt.config.translation import TranslationOptions
from nmt.native.library import SWITCH, forget
from nmt.search.config import BeamConfig
from nmt.translation import Line, TranslatedText, Translator
from tests.tiny_models import some_lines, write_tiny_model

pytestmark = pytest.mark.slow  # whole models in several processes

LINES = some_lines(1000, seed=11, longest=7)
ORDER = random.Random(1).sample(range(len(LINES)), len(LINES))
CLOSE = 1e-4  # of scores
TIES = 0.002  # of all lines


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Models that have learned so little that many translations are about as good as the best."""
    folder = tmp_path_factory.mktemp("models")
    return {name: write_tiny_model(folder / name, model=name, updates=40) for name in ("lstm", "transformer")}


def translated(translator: Translator, lines: list[str], **options: Any) -> list[TranslatedText]:
    config = TranslationOptions(search=BeamConfig(beam_size=4, max_len_b=3), **options)
    return [one.hypotheses[0] for one in translator.hypotheses(lines, config)]


def score(translator: Translator, line: str, text: str) -> float:
    config = TranslationOptions(search=BeamConfig(max_len_b=3), score_reference=True)
    (found,) = translator.hypotheses([Line(line, reference=text)], config)
    return found.hypotheses[0].score


def assert_the_same(translator: Translator, found: list[TranslatedText], expected: list[TranslatedText]) -> None:
    ties = 0
    for line, one, other in zip(LINES, found, expected, strict=True):
        assert one.score == pytest.approx(other.score, abs=CLOSE), line
        if one.pieces != other.pieces:
            gap = abs(score(translator, line, one.text) - score(translator, line, other.text))
            assert gap < CLOSE, f"{line}: {one.text} and {other.text} differ by {gap}"
            ties += 1
    assert ties < TIES * len(LINES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("lstm", "usual"),
        ("transformer", "with attention"),
        pytest.param("transformer", "torch alone", marks=pytest.mark.nightly),
    ],
)
def test_lines_are_translated_alike_in_any_order_batch_and_process(
    folders: dict[str, Path], name: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alignment = AlignmentKind.hard if way == "with attention" else AlignmentKind.none
    if way == "torch alone":
        monkeypatch.setenv(SWITCH, "off")
    forget()
    try:
        translator = Translator.load(folders[name], device="cpu")
        expected = translated(translator, LINES, print_alignment=alignment)
        shuffled = [LINES[place] for place in ORDER]
        for lines, workers, options in (
            (shuffled, 1, {"batch_size": 3}),
            (shuffled, 1, {"max_tokens": 40, "buffer_size": 70}),
            (LINES, 2, {"max_tokens": 300, "buffer_size": 500}),
        ):
            other = translator if workers == 1 else Translator.load(folders[name], device="cpu", workers=workers)
            found = translated(other, lines, print_alignment=alignment, **options)
            if lines is shuffled:
                found = [one for _, one in sorted(zip(ORDER, found), key=lambda pair: pair[0])]
            assert_the_same(translator, found, expected)
    finally:
        monkeypatch.undo()
        forget()
