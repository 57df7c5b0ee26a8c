"""How memory is arranged stands in the log of each run, and nowhere on the screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nmt_cli.allocator import SETTINGS, VARIABLE
from tests.commands import run_copy
from tests.tiny_models import in_english, write_tiny_model

ARRANGED = {VARIABLE: ":".join(f"{key}={value}" for key, value in SETTINGS.items())}  # as the command arranges it
TINY = (
    "model=lstm model.embedding_size=8 model.hidden_size=8 --max-update 2 --valid-samples 0 --no-html --no-count-flops"
).split()


def starts(run: Path) -> list[dict[str, Any]]:
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event for event in events if event["event"] == "start"]


def test_a_sweep_says_nothing_of_memory_and_each_of_its_runs_keeps_the_settings_once(
    copy_corpus: Path, tmp_path: Path
) -> None:
    done = run_copy("train", copy_corpus, *TINY, "--save-dir", "sweep", "-m", "seed=1,2", cwd=tmp_path, **ARRANGED)
    assert done.returncode == 0, done.stderr.decode()
    assert "GLIBC" not in done.stderr.decode() and "memory is" not in done.stderr.decode()
    for name in ("seed=1", "seed=2"):
        (start,) = starts(tmp_path / "sweep" / name)
        assert start["environment"][VARIABLE] == ARRANGED[VARIABLE]


def test_translating_says_nothing_of_memory(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    done = run_copy("generate", "--path", model, "--beam", "2", stdin=b"ein mann\n", **ARRANGED)
    assert done.stdout.decode() == f"{in_english('ein mann')}\n"
    assert "GLIBC" not in done.stderr.decode() and "memory" not in done.stderr.decode()
