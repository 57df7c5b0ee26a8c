"""nmt-average-checkpoints as users start it: the table and the folder on standard output, all else on standard error."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config.sections import TrainConfig, ValidationConfig
from nmt.storage.checkpoints import read_info
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from tests.commands import run_copy


def start(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    done = run_copy("average_checkpoints", *arguments, cwd=cwd)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def run(make_run: Callable[..., TrainConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints with scores; do not write to it."""
    folder = tmp_path_factory.mktemp("averaged")
    train(make_run(folder, validation=ValidationConfig(interval=None, interval_updates=4, samples=0)))
    return folder / "run"


def test_the_best_two_are_averaged_and_the_scores_of_all_are_printed(run: Path, tmp_path: Path) -> None:
    options = ["--inputs", str(run), "--num-best-checkpoints", "2", "--metric", "nll", "--output", "mean", "--cpu"]
    done = start(*options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    header, *parts, mean, folder = done.stdout.splitlines()
    assert header.split() == ["checkpoint", "update", "loss", "nll", "ppl"] and folder == "mean"
    best = sorted(checkpoints_in(run), key=lambda path: read_info(path).scores["nll"])[:2]
    rows = {path.name: [str(read_info(path).update), *_shown(path)] for path in sorted(best)}
    assert {row.split()[0]: row.split()[1:] for row in parts} == rows
    assert mean.split() == ["average", "of", "2", *_shown(tmp_path / "mean")]
    assert "averaging 2 checkpoints" in done.stderr and "averaging" not in done.stdout


def _shown(checkpoint: Path) -> list[str]:
    scores = read_info(checkpoint).scores
    return [f"{scores[name]:.4f}" if scores[name] < 10 else f"{scores[name]:.2f}" for name in ("loss", "nll", "ppl")]


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (["--num-best-checkpoints", "2", "--metric", "bleau"], 2, "did you mean 'bleu'?"),
        (["--num-best-checkpoints", "2", "--metric", "bleu"], 66, "has a score 'bleu'; there are: loss, nll, ppl"),
        (["--num-best-checkpoints", "2", "--num-epoch-checkpoints", "2"], 2, "exclude each other"),
        (["--num-best-checkpoints", "0"], 2, "num_best_checkpoints=0"),
        (["--data", "nowhere"], 66, "nowhere is not a folder"),
    ],
)
def test_a_mistake_is_one_line(run: Path, tmp_path: Path, options: list[str], status: int, sentence: str) -> None:
    done = start("--inputs", str(run), "--output", "mean", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("nmt-average-checkpoints: ")]
    assert sentence in line and not (tmp_path / "mean").exists()


def test_without_scores_the_folder_alone_is_printed(run: Path, tmp_path: Path) -> None:
    done = start("--inputs", str(run), "--output", "mean", "--no-validate", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "mean\n")
