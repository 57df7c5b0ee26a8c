"""The checks of whole runs: each passes on a CPU, and fails when what it checks is broken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

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
    assert "the command with 2 ranks ended" in runs.killed_rank(CPU)


@pytest.mark.slow
def test_the_memory_of_a_cpu_is_forecast() -> None:
    assert "GB at the peak, forecast" in runs.memory_forecast(CPU)


def scripts(monkeypatch: pytest.MonkeyPatch, script: Callable[[int], str]) -> None:
    """Let a script, by the number of ranks, run as nmt-train."""
    monkeypatch.setattr(runs, "_command", lambda ranks: [sys.executable, "-c", script(ranks)])


LOSSES = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--save-dir") + 1])
folder.mkdir(exist_ok=True)
lines = [json.dumps({"event": "train", "loss": LOSS}) for _ in range(10)]
(folder / "log.jsonl").write_text("\\n".join(lines) + "\\n")
"""


@pytest.mark.parametrize("loss", ["3.1", "float('nan')"])
def test_ranks_that_learn_otherwise_are_found(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts(monkeypatch, lambda ranks: LOSSES.replace("LOSS", loss if ranks > 1 else "3.0"))
    with pytest.raises(Wrong, match="losses of 2 ranks differ by up to (3.3e-02|nan) from those of one"):
        runs.several_ranks(CPU, "ddp")


def test_ranks_that_fail_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts(monkeypatch, lambda ranks: "import sys; sys.exit('nmt-train: NCCL is not there')")
    with pytest.raises(Wrong, match="training ended with status 1: nmt-train: NCCL is not there"):
        runs.several_ranks(CPU, "ddp")


def test_ranks_that_hang_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LONGEST", 0.2)
    scripts(monkeypatch, lambda ranks: "import time; time.sleep(60)")
    with pytest.raises(Wrong, match="training did not end within 0 seconds"):
        runs.several_ranks(CPU, "ddp")
    with pytest.raises(Wrong, match="training by several ranks did not make three updates within 0 seconds"):
        runs.killed_rank(CPU)


RANK = LOSSES.replace("LOSS", "3.0") + "import subprocess, time; subprocess.run(['sleep', '60']);"


@pytest.mark.parametrize(
    ("afterwards", "found"),
    [
        ("time.sleep(60)", "the other ranks still wait 1 seconds"),
        ("", "ended with status 0 although a rank was killed"),
    ],
)
def test_ranks_that_survive_a_killed_one_are_found(
    afterwards: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PATIENCE", 1.0)
    scripts(monkeypatch, lambda ranks: RANK + afterwards)
    with pytest.raises(Wrong, match=found):
        runs.killed_rank(CPU)


@pytest.mark.parametrize(
    ("memory", "is_measured", "error", "told"),
    [
        (14 * 10**8, True, Wrong, "1.40 GB at the peak, but the forecast is 1.00 GB"),
        (10**9, False, Skipped, "the forecast of 1.00 GB exceeds the free memory"),
    ],
)
def test_memory_beyond_its_forecast_is_found(
    memory: int, is_measured: bool, error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forecast = Forecast(1.0, memory, 0, None, is_measured, expected=10**9)
    monkeypatch.setattr(runs, "try_largest", lambda config: forecast)
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
