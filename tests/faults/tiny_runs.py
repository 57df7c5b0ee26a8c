"""Training runs of a second, through the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.commands import run_copy

TINY = (
    "model=lstm model.embedding_size=8 model.hidden_size=8 --max-tokens 120 --lr 0.01 --warmup-updates 2 "
    "--max-update 6 --save-interval-updates 2 --valid-samples 0 --log-interval 1 --cpu --no-html --no-count-flops"
).split()


def nmt_train(corpus: Path, run: Path, *more: str | Path, status: int = 0, **surroundings: Any) -> str:
    """The log of nmt-train, which is to end with ``status``; what is said of an error is its last line."""
    done = run_copy("train", corpus, *TINY, "--save-dir", run, *more, **surroundings)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (status, b"") and "Traceback" not in said, said
    assert status == 0 or said.splitlines()[-1].startswith("nmt-train: "), said
    return said


def refused(command: str, *arguments: str | Path, status: int, **surroundings: Any) -> str:
    """The last line of a command that ends with ``status`` and has no result."""
    done = run_copy(command, *arguments, **surroundings)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (status, b"") and "Traceback" not in said, said
    last = said.splitlines()[-1]
    assert last.startswith(f"nmt-{command.replace('_', '-')}: "), said
    return last
