"""Figures 3 to 5: what counts as far, as a person meant, and as the same phrase; and which heads are drawn."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nmt.data.attention import SentenceAttention
from nmt.errors import DataError, UsageError
from tests.tiny_models import in_english, some_lines, write_tiny_model

SCRIPT = Path(__file__).resolve().parents[3] / "examples/figures/heads.py"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("figures_heads", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


heads = load()


def sentence(text: str, weights: np.ndarray) -> SentenceAttention:
    """``weights`` [layers, heads, words, words] of an encoder that read these words."""
    words = [*text.split(), "</s>"]
    return SentenceAttention(0, words, ["</s>"], ["<s>"], {"encoder": weights.astype(np.float32)})


def even(layers: int, count: int, words: int) -> np.ndarray:
    return np.full((layers, count, words, words), 1 / words)


def pairs(mask: np.ndarray, words: list[str]) -> set[tuple[str, str]]:
    return {(words[looking], words[seen]) for looking, seen in np.argwhere(mask)}


def test_far_words_have_letters_and_are_no_function_words() -> None:
    words = "cats sit of now and dogs , run".split()
    found = pairs(heads.far_words(words), words)
    assert found == {(a, b) for a, b in [("cats", "dogs"), ("cats", "run"), ("sit", "run")]} | {
        (b, a) for a, b in [("cats", "dogs"), ("cats", "run"), ("sit", "run")]
    }


def test_a_pronoun_means_a_person_before_it() -> None:
    words = "a man hits his ball with her boy".split()
    assert pairs(heads.persons_before(words), words) == {("his", "man"), ("her", "man")}


def test_articles_begin_a_phrase_and_function_words_stand_alone() -> None:
    words = "a blue shirt is on the wall </s>".split()
    phrases = [{"a", "blue", "shirt"}, {"the", "wall"}]
    expected = {(one, other) for phrase in phrases for one in phrase for other in phrase if one != other}
    assert pairs(heads.same_phrase(words), words) == expected


def test_the_strength_of_a_head_is_its_mean_over_the_words_that_have_a_place() -> None:
    weights = even(1, 2, 4)
    weights[0, 1, 2] = [0.0, 0.8, 0.1, 0.1]  # the second head of "his", at: a man his </s>
    one = sentence("a man his", weights)
    of_heads, found = heads.strengths([one], 1, heads.persons_before)
    assert of_heads == pytest.approx([0.25, 0.8])
    assert [(place.word, place.strength) for place in found] == [(2, pytest.approx(0.525))]


def test_the_layer_with_the_best_two_heads_is_taken() -> None:
    weights = even(2, 3, 4)
    weights[1, 2, 2] = [0.0, 0.9, 0.1, 0.0]
    weights[1, 0, 2] = [0.0, 0.5, 0.5, 0.0]
    layer, chosen, _, _ = heads.best_pair([sentence("a man his", weights)], [1, 2], heads.persons_before)
    assert (layer, chosen) == (2, (2, 0))


def test_a_text_without_what_the_figure_shows_is_refused() -> None:
    with pytest.raises(DataError, match="no sentence of the text has what the figure shows"):
        heads.strengths([sentence("run", even(1, 2, 2))], 1, heads.persons_before)


def test_a_text_of_long_sentences_alone_is_refused() -> None:
    text = "a man hits his " + "very " * heads.LONGEST
    _, found = heads.strengths([sentence(text, even(1, 2, 21))], 1, heads.persons_before)
    with pytest.raises(DataError, match="has at most 16 words"):
        heads.clearest(found, heads.by_mean)


def test_an_encoder_with_one_head_is_refused() -> None:
    with pytest.raises(UsageError, match="has one head"):
        heads.best_pair([sentence("a man his", even(1, 1, 4))], [1], heads.persons_before)


def test_a_word_alone_is_drawn_without_the_lines_of_the_others() -> None:
    one = sentence("a man his", even(1, 2, 4))
    shown = heads.panel(heads.Found(one, 2, 0.0), 1, [1], alone=True, title="his")
    assert shown.weights.shape == (1, 4, 4) and shown.heads == [2]
    assert [float(row.sum()) for row in shown.weights[0]] == pytest.approx([0, 0, 1, 0])


def test_three_pictures_are_drawn(tmp_path: Path) -> None:
    text = "one man throws his old ball to big dogs"
    lines = heads.draw([sentence(text, even(2, 2, 10))], [1, 2], tmp_path)
    assert [line.split(":")[0] for line in lines] == ["long_distance.svg", "pronouns.svg", "phrases.svg"]
    assert all((tmp_path / line.split(":")[0]).read_text(encoding="utf-8").startswith("<svg") for line in lines)


@pytest.mark.slow
def test_a_layer_that_the_model_has_not_is_refused(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=1)
    source = some_lines(3)
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in source), encoding="utf-8")
    (tmp_path / "target").write_text("".join(f"{in_english(line)}\n" for line in source), encoding="utf-8")
    command = [sys.executable, SCRIPT, model, tmp_path / "source", tmp_path / "target", tmp_path, "--layer", "9"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--layer 9: the encoder has layers 1 to" in done.stderr and "Traceback" not in done.stderr
