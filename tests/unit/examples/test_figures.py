"""Figures 3 to 5: what counts as far, as a person meant, and as the same phrase; and which heads are drawn."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nmt.errors import DataError, UsageError
from nmt.reporting.sentence_attention import SentenceAttention
from tests.tiny_models import WORDS, write_tiny_model

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
    with pytest.raises(DataError, match="no sentence of the text has the pattern of the figure"):
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


SENTENCE = "one boy throws his old ball to big cats"
PICTURES = ["figure3.svg", "figure4.svg", "figure5.svg"]


def test_three_pictures_are_drawn(tmp_path: Path) -> None:
    said = heads.draw([sentence(SENTENCE, even(2, 2, 10))], [1, 2], tmp_path)
    assert list(said) == PICTURES
    assert all((tmp_path / name).read_text(encoding="utf-8").startswith("<svg") for name in PICTURES)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    return write_tiny_model(folder / "model", model="transformer", updates=1, words=(*WORDS, *SENTENCE.split()))


def draw(model: Path, folder: Path, output: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The script, on a sentence that has something for each figure."""
    for name in ("source", "target"):
        (folder / name).write_text(f"{SENTENCE}\n", encoding="utf-8")
    given = [str(path) for path in (SCRIPT, model, folder / "source", folder / "target", folder / output)]
    return subprocess.run([sys.executable, *given, *options], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_script_draws_and_says_what_is_drawn(model: Path, tmp_path: Path) -> None:
    done = draw(model, tmp_path, "pictures")
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == PICTURES
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == PICTURES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "options", "status", "message"),
    [
        ("pictures", ["--layer", "9"], 2, "--layer 9: the encoder has layers 1 to"),
        ("pictures", ["--lines", "-1"], 2, "--lines must be at least 1, not -1"),
        ("source/pictures", [], 73, "source/pictures/figure3.svg: Not a directory"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    output: str, options: list[str], status: int, message: str, model: Path, tmp_path: Path
) -> None:
    done = draw(model, tmp_path, output, *options)
    assert done.returncode == status
    assert message in done.stderr and "Traceback" not in done.stderr
