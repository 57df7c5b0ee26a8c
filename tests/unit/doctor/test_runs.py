"""The checks of whole runs: each passes on a CPU, and fails when what it checks is broken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from nmt.doctor import runs
from nmt.doctor.outcomes import Skipped, Wrong
from nmt.training.setup.forecast import Forecast

CPU, GPUS = torch.device("cpu"), [torch.device("cuda", number) for number in range(2)]


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_ranks_of_a_cpu_train_like_one(strategy: str) -> None:
    assert runs.several_ranks(CPU, strategy).startswith("10 updates of 2 ranks, losses within")


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_rank_of_a_cpu_that_is_killed_ends_the_other() -> None:
    assert "the other rank ended" in runs.killed_rank(CPU)


@pytest.mark.nightly
def test_the_memory_of_a_cpu_is_forecast() -> None:
    assert "GB at the peak, forecast" in runs.memory_forecast(CPU)


def script(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let Python code run as nmt-train."""
    monkeypatch.setattr(runs, "COMMAND", [sys.executable, "-c", code])


LOSSES = """
import json, os, pathlib, sys, time
folder, rank, ranks = pathlib.Path(sys.argv[sys.argv.index("--save-dir") + 1]), *map(os.environ.get, ("RANK", "WORLD_SIZE"))
folder.mkdir(exist_ok=True)
lines = [json.dumps({"event": "train", "update": number + 1, "loss": LOSS}) for number in range(10)]
(folder / "log.jsonl").write_text(chr(10).join(lines) + chr(10))
"""


@pytest.mark.parametrize("loss", ["3.1", "3.0 if number < 5 else float('nan')"])
def test_ranks_that_learn_otherwise_are_found(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, LOSSES.replace("LOSS", f"({loss}) if ranks else 3.0"))
    with pytest.raises(
        Wrong, match="losses of 2 ranks differ from those of one rank; relative differences: .*(3e-02|nan)"
    ):
        runs.several_ranks(CPU, "ddp")


def test_ranks_that_make_fewer_updates_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, LOSSES.replace("LOSS", "3.0").replace("range(10)", "range(4 if ranks else 10)"))
    with pytest.raises(Wrong, match="one rank logged 10 of 10 updates, 2 ranks logged 4"):
        runs.several_ranks(CPU, "ddp")


def test_ranks_that_fail_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    script(monkeypatch, "import sys; sys.exit('nmt-train: NCCL is not there')")
    with pytest.raises(Wrong, match="training ended with status 1: nmt-train: NCCL is not there"):
        runs.several_ranks(CPU, "ddp")
    with pytest.raises(Wrong, match="training ended before the third update: nmt-train: NCCL is not there"):
        runs.killed_rank(CPU)


def test_ranks_that_hang_are_found_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[subprocess.Popen[bytes]]()

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    monkeypatch.setattr(runs.subprocess, "Popen", Noted)
    monkeypatch.setattr(runs, "LONGEST", 0.2)
    script(monkeypatch, "import time; time.sleep(60)")
    with pytest.raises(Wrong, match="training did not end within 0 seconds"):
        runs.several_ranks(CPU, "ddp")
    with pytest.raises(Wrong, match="training did not reach three updates within 0 seconds"):
        runs.killed_rank(CPU)
    assert len(started) == 3 and all(process.poll() is not None for process in started)


@pytest.mark.parametrize(
    ("other", "found"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)", "ranks still wait 1 seconds .* in 2 trials"),
        ("time.sleep(1); sys.exit(0)", "a rank ended with status 0 although another one was killed"),
    ],
)
def test_ranks_that_survive_a_killed_one_are_found(other: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PATIENCE", 1.0 if "SIG_IGN" in other else 30.0)
    last = "time.sleep(60)"
    script(monkeypatch, LOSSES.replace("LOSS", "3.0") + f"import signal\nif rank == '0': {other}\nelse: {last}")
    with pytest.raises(Wrong, match=found):
        runs.killed_rank(CPU)


@pytest.mark.parametrize(
    ("memory", "is_measured", "error", "told"),
    [
        (14 * 10**8, True, Wrong, "1.30 GB at the peak, but the forecast is 0.90 GB"),
        (10**9, False, Skipped, "the forecast of 1.00 GB exceeds the free memory"),
    ],
)
def test_memory_beyond_its_forecast_is_found(
    memory: int, is_measured: bool, error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast = Forecast(1.0, memory, 0, None, is_measured, expected=10**9)

    class Fresh:
        """A process that found this."""

        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Fresh:
            return self

        def __exit__(self, *_: object) -> None: ...
        def submit(self, *_: object) -> Fresh:
            return self

        def result(self) -> tuple[int, Forecast]:
            return 10**8, forecast

    monkeypatch.setattr(runs, "ProcessPoolExecutor", Fresh)
    with pytest.raises(error, match=told):
        runs.memory_forecast(CPU)


@pytest.mark.parametrize(
    ("device", "there", "told"),
    [(GPUS[0], GPUS[:1], "needs at least two devices of this kind"), (GPUS[1], GPUS, "checked together with cuda:0")],
)
def test_gpus_are_checked_together_once(
    device: torch.device, there: Sequence[torch.device], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "devices", lambda: [CPU, *there])
    for check in (runs.killed_rank, lambda device: runs.several_ranks(device, "ddp")):
        with pytest.raises(Skipped, match=told):
            check(device)
    monkeypatch.setattr(runs, "devices", lambda: [CPU, *GPUS])
    assert runs._ranks(GPUS[0]) == 2


def test_a_corpus_for_training_is_made_and_removed() -> None:
    with runs._corpus() as corpus:
        assert (corpus / "corpus.json").exists() or any(corpus.iterdir())
    assert not corpus.exists()
