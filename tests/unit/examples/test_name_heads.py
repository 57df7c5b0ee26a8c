"""The script that says what attention heads do: heads that were made to do one thing are called by its name."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from nmt.reporting.sentence_attention import SentenceAttention
from tests.tiny_models import in_english, some_lines, write_tiny_model

FILE = Path(__file__).resolve().parents[3] / "examples" / "multi30k" / "name_heads.py"
SOURCE = ["▁Two", "▁dog", "s", ".", "</s>"]
TARGET = ["▁Zwei", "▁Hunde", ".", "</s>"]


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("name_heads", FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


name_heads = load()


def looking_at(columns: int, *chosen: int) -> np.ndarray:
    """A head whose row i puts all its weight on the column ``chosen[i]`` [1, 1, R, C]."""
    return np.eye(columns, dtype=np.float32)[list(chosen)][None, None]


def described(kind: str, *chosen: int) -> object:
    uniform = {"encoder": (5, 5), "decoder": (4, 4), "cross": (4, 5)}
    weights = {name: np.full((1, 1, *shape), 1 / shape[1], dtype=np.float32) for name, shape in uniform.items()}
    weights[kind] = looking_at(weights[kind].shape[3], *chosen)
    one = SentenceAttention(0, SOURCE, TARGET, ["<s>", *TARGET[:-1]], weights)
    (found,) = [head for head in name_heads.heads([one]) if head.kind == kind]
    return found


@pytest.mark.parametrize(
    ("kind", "chosen", "does", "share", "distance", "diagonal"),
    [
        ("encoder", (0, 0, 1, 2, 3), "the token before", 0.8, 0.8, 1.0),
        ("encoder", (0, 1, 2, 3, 4), "the token itself", 1.0, 0.0, 1.0),
        ("encoder", (1, 2, 3, 4, 4), "the token after", 0.8, 0.8, 1.0),
        ("encoder", (2, 3, 4, 4, 4), "two tokens after", 0.6, 1.4, 0.4),
        ("encoder", (4, 4, 4, 4, 4), "the end of the sentence", 1.0, 2.0, 0.4),
        ("encoder", (3, 3, 3, 3, 3), "full stop and comma", 1.0, 1.4, 0.6),
        ("decoder", (0, 1, 2, 3), "the last token written", 1.0, 0.0, 1.0),
        ("decoder", (0, 0, 1, 2), "the one before it", 0.75, 0.75, 1.0),
        ("decoder", (0, 0, 0, 0), "the start of the sentence", 1.0, 1.5, 0.5),
        ("cross", (0, 1, 3, 4), "the same place in the source", 1.0, 1 / 6, 1.0),
        ("cross", (4, 4, 4, 4), "the end of the source", 1.0, 2.0, 0.25),
    ],
)
def test_a_head_is_called_by_what_it_does(
    kind: str, chosen: tuple[int, ...], does: str, share: float, distance: float, diagonal: float
) -> None:
    head = described(kind, *chosen)
    assert (head.does, head.entropy) == (does, 0.0)
    assert (head.share, head.distance, head.diagonal) == pytest.approx((share, distance, diagonal))


def test_the_rest_of_a_word_are_its_other_pieces() -> None:
    assert np.argwhere(name_heads.own_word(5, SOURCE)).tolist() == [[1, 2], [1, 3], [2, 1], [2, 3], [3, 1], [3, 2]]


def test_words_are_known_by_the_marks_of_subword_nmt_too() -> None:
    pieces = ["Two", "do@@", "gs", ".", "</s>"]
    assert np.argwhere(name_heads.own_word(5, pieces)).tolist() == [[1, 2], [2, 1]]


def test_even_weights_have_the_entropy_of_their_number() -> None:
    (encoder, *_) = [head for head in name_heads.heads([even()]) if head.kind == "encoder"]
    assert encoder.entropy == pytest.approx(np.log2(5))


def even() -> SentenceAttention:
    weights = {"encoder": np.full((1, 2, 5, 5), 0.2), "decoder": np.full((1, 2, 4, 4), 0.25)}
    return SentenceAttention(0, SOURCE, TARGET, ["<s>", *TARGET[:-1]], {**weights, "cross": np.full((1, 2, 4, 5), 0.2)})


@pytest.mark.slow
def test_the_script_prints_every_head_and_draws_one_of_each_kind(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", num_heads=4, encoder_layers=2, decoder_layers=3)
    lines = ["", *some_lines(5, seed=3)]
    (tmp_path / "source").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "target").write_text("".join(f"{in_english(line)}\n" for line in lines))
    command = [sys.executable, str(FILE), str(model), "source", "target", "heads.svg", "--lines", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in done.stdout.splitlines()[2:]]
    assert len(rows) == 4 * (2 + 3 + 3)
    shares = [float(row[-1].rstrip(" |")) for row in rows]
    assert shares == sorted(shares, reverse=True)
    picture = (tmp_path / "heads.svg").read_text()
    assert all(f">{kind} " in picture for kind in ("encoder", "decoder", "cross"))


@pytest.mark.parametrize(
    ("kind", "text", "status", "said"),
    [
        ("transformer", "", 65, "has only empty lines"),
        ("transformer", "\n\n", 65, "has only empty lines"),
        ("lstm", "ein\n", 2, "no attention of this kind: encoder, decoder"),
    ],
)
def test_what_cannot_be_described_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind, text, status, said
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tiny_model(tmp_path / "model", model=kind, updates=1)
    (tmp_path / "source").write_text(text)
    monkeypatch.setattr(sys, "argv", ["name_heads.py", "model", "source", "source", "heads.svg"])
    with pytest.raises(SystemExit) as ended:
        name_heads.main()
    shown = capsys.readouterr()
    assert (ended.value.code, shown.out, shown.err.count("\n")) == (status, "", 1) and said in shown.err


def test_a_missing_file_is_said_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, str(FILE), "model", "source", "target", "heads.svg"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (66, "", 1)


def test_a_negative_number_of_lines_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["name_heads.py", "model", "source", "target", "heads.svg", "--lines", "-1"])
    with pytest.raises(SystemExit) as ended:
        name_heads.main()
    assert ended.value.code == 2 and "--lines must be at least 1, not -1" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["name_heads.py", "model", "source", "target", "heads.svg", "--draw", " "])
    with pytest.raises(SystemExit) as ended:
        name_heads.main()
    assert ended.value.code == 2 and "--draw is empty" in capsys.readouterr().err
