"""What a user decided about memory stands in the log of each run; nothing is said of it on the screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import run_copy
from tests.tiny_models import in_english, write_tiny_model

GIVEN = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}
TINY = (
    "model=lstm model.embedding_size=8 model.hidden_size=8 --max-update 2 --valid-samples 0 --no-html --no-count-flops"
).split()


def starts(run: Path) -> list[dict[str, Any]]:
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event for event in events if event["event"] == "start"]


@pytest.mark.nightly
def test_a_sweep_says_nothing_of_memory_and_each_of_its_runs_notes_what_was_given(
    copy_corpus: Path, tmp_path: Path
) -> None:
    done = run_copy("train", copy_corpus, *TINY, "--save-dir", "sweep", "-m", "seed=1,2", cwd=tmp_path, **GIVEN)
    assert done.returncode == 0, done.stderr.decode()
    assert "GLIBC" not in done.stderr.decode() and "memory is" not in done.stderr.decode()
    for name in ("seed-1", "seed-2"):
        (start,) = starts(tmp_path / "sweep" / name)
        assert start["environment"]["GLIBC_TUNABLES"] == GIVEN["GLIBC_TUNABLES"]


def test_translating_says_nothing_of_memory(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    done = run_copy("generate", "--path", model, "--beam", "2", stdin=b"ein mann\n")
    assert done.stdout.decode() == f"{in_english('ein mann')}\n"
    assert "GLIBC" not in done.stderr.decode() and "memory" not in done.stderr.decode()
