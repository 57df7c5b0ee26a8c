"""Check whole runs of nmt-train on a device: by several ranks, with a rank that dies, and within the forecast of memory."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from nmt.config.choices import Precision
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.reporting import ReportConfig
from nmt.config.sections import BatchingConfig, CheckpointConfig, DeviceConfig, TrainConfig, ValidationConfig
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.doctor.facts import devices
from nmt.doctor.outcomes import Skipped, Wrong
from nmt.models.transformer.config import TransformerConfig
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import InverseSqrtConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.reporting.resources import give_back, peak_memory
from nmt.reporting.run_record import read_events
from nmt.training.assemble import try_largest
from nmt.training.setup.forecast import Forecast

UPDATES = 10
TRAINING = (
    "model=transformer_tiny model.dropout=0 --max-tokens 500 --lr 0.001 --precision fp32 --log-interval 1 --no-html "
    "--no-count-flops --progress none --valid-samples 0 --clip-norm 1"
).split()
COMMAND = [sys.executable, "-m", "nmt_cli.train"]
TOLERANCE = 1e-3  # of a loss
PATIENCE = 30.0  # seconds within which the other ranks must end after one was killed
TRIALS = 2  # once in a hundred times gloo does not notice that a rank is gone
LONGEST = 600.0  # seconds of a run
UNDERESTIMATED = 1.3  # times the forecast that memory may reach
WORDS, LINES, LONGEST_LINE = 900, 2000, 30
SIZE = TransformerConfig(2, 2, d_model=256, d_ff=1024, num_heads=4)


def several_ranks(device: torch.device, strategy: str) -> str:
    """Compare the losses of training on all devices of a kind with those on one, with equally many batches per update."""
    ranks = _ranks(device)
    with _corpus() as corpus, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [str(corpus), "--device", device.type, "--max-update", str(UPDATES)]
        by_one = [*options, "--save-dir", f"{name}/one", "--update-freq", str(ranks)]
        by_all = [*options, "--save-dir", f"{name}/all", "--distributed-strategy", strategy]
        for count, arguments in ((1, by_one), (ranks, by_all)):
            with _running(count, arguments, folder) as processes:
                _finish(processes, folder)
        expected, losses = (_losses(folder / run) for run in ("one", "all"))
    if not len(expected) == len(losses) == UPDATES:
        raise Wrong(f"one rank logged {len(expected)} of {UPDATES} updates, {ranks} ranks logged {len(losses)}")
    differences = [abs(loss - exact) / exact for loss, exact in zip(losses, expected, strict=True)]
    if not all(difference <= TOLERANCE for difference in differences):  # also if one is NaN
        raise Wrong(
            f"losses of {ranks} ranks differ from those of one rank; relative differences: "
            f"{', '.join(f'{difference:.0e}' for difference in differences)}"
        )
    return f"{UPDATES} updates of {ranks} ranks, losses within {max(differences):.0e} of those of one rank"


def killed_rank(device: torch.device) -> str:
    """Kill a rank. The others must end by themselves."""
    ranks = _ranks(device)
    for _ in range(TRIALS):
        seconds = _seconds_to_end(device, ranks)
        if seconds is not None:
            return (
                f"the other {'rank' if ranks == 2 else 'ranks'} ended {seconds:.0f} s after one of {ranks} was killed"
            )
    raise Wrong(f"the other ranks still wait {PATIENCE:.0f} seconds after one was killed, in {TRIALS} trials")


def _seconds_to_end(device: torch.device, ranks: int) -> float | None:
    """Return how long the other ranks run after one was killed; None: too long."""
    with _corpus() as corpus, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options = [str(corpus), "--device", device.type, "--save-dir", f"{name}/run", "--max-update", "1000000"]
        with _running(ranks, options, folder) as processes:
            _await_updates(processes, folder)
            processes[-1].kill()
            began = time.monotonic()
            for process in processes[:-1]:
                try:
                    status = process.wait(max(0.0, began + PATIENCE - time.monotonic()))
                except subprocess.TimeoutExpired:
                    return None
                if status == 0:
                    raise Wrong("a rank ended with status 0 although another one was killed")
            return time.monotonic() - began


def memory_forecast(device: torch.device) -> str:
    """Compare the memory of the largest batches with its forecast from parts of them."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:  # whose memory holds nothing else
        before, forecast = fresh.submit(_try_largest, str(device)).result()
    assert forecast.expected is not None, "the largest batches were tried"
    expected, peak = forecast.expected - before, forecast.memory - before
    if not forecast.is_measured:
        raise Skipped(f"the forecast of {forecast.expected / 1e9:.2f} GB exceeds the free memory")
    if expected <= 0:
        raise Skipped("the peak of memory cannot be measured on this system")
    if peak > UNDERESTIMATED * expected:
        raise Wrong(f"{peak / 1e9:.2f} GB at the peak, but the forecast is {expected / 1e9:.2f} GB")
    return f"{peak / 1e9:.2f} GB at the peak, forecast {expected / 1e9:.2f} GB"


def _try_largest(device: str) -> tuple[int, Forecast]:
    """Return the memory of this process before and during the largest batches of a corpus."""
    give_back(torch.device(device))
    before = peak_memory(torch.device(device))
    with _corpus() as corpus, tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            data=[str(corpus)],
            model=SIZE,
            criterion=LabelSmoothedCrossEntropyConfig(),
            optimizer=AdamConfig(),
            scheduler=InverseSqrtConfig(),
            validation=ValidationConfig(samples=0),
            batching=BatchingConfig(max_tokens=2000 if device == "cpu" else 20_000),
            checkpoint=CheckpointConfig(save_dir=folder),
            report=ReportConfig(html=False, count_flops=False),
            device=DeviceConfig(device, Precision.fp32),
        )
        return before, try_largest(config)


def _ranks(device: torch.device) -> int:
    """Return the number of ranks: one for each device of this kind, two on a CPU."""
    if device.type == "cpu":
        return 2
    alike = [other for other in devices() if other.type == device.type]
    if len(alike) < 2:
        raise Skipped("needs at least two devices of this kind")
    if device != alike[0]:
        raise Skipped(f"checked together with {alike[0]}")
    return len(alike)


@contextlib.contextmanager
def _running(ranks: int, arguments: Sequence[str], folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start ``ranks`` ranks of nmt-train, with their logs in ``folder``. No rank outlives the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = list[subprocess.Popen[bytes]]()
    try:
        for rank in range(ranks):
            own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
            shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            environment = {name: str(value) for name, value in (own | shared).items()} if ranks > 1 else {}
            with open(folder / f"{rank}.log", "wb") as log:
                command = [*COMMAND, *TRAINING, *arguments]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _finish(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait for all ranks. Raise ``Wrong`` with a line of a log if one fails."""
    until = time.monotonic() + LONGEST
    while None in (statuses := [process.poll() for process in processes]) or any(statuses):
        for status in filter(None, statuses):
            raise Wrong(f"training ended with status {status}: {_complaint(folder)}")
        if time.monotonic() > until:
            raise Wrong(f"training did not end within {LONGEST:.0f} seconds")
        time.sleep(0.05)


def _await_updates(processes: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    """Wait for three updates."""
    until = time.monotonic() + LONGEST
    while len(_losses(folder / "run")) < 3:
        if any(process.poll() is not None for process in processes):
            raise Wrong(f"training ended before the third update: {_complaint(folder)}")
        if time.monotonic() > until:
            raise Wrong(f"training did not reach three updates within {LONGEST:.0f} seconds")
        time.sleep(0.05)


def _complaint(folder: Path) -> str:
    """Return the line of the logs that says what went wrong: the last one of the command, or else of all."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.log"))]
    lines = [line for text in texts for line in text.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("nmt-train: ") or "Error: " in line]
    return (named or lines or ["no message"])[-1]


def _losses(folder: Path) -> Sequence[float]:
    return [event["loss"] for event in read_events(folder / "log.jsonl") if event["event"] == "train"]


@contextlib.contextmanager
def _corpus() -> Iterator[Path]:
    """Make a corpus of random words, each of which is its own translation."""
    draw = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, count in {"train": LINES, "valid": 20}.items():
            lines = [[f"w{draw.randrange(WORDS)}" for _ in range(draw.randint(2, LONGEST_LINE))] for _ in range(count)]
            for language in ("a", "b"):
                path = folder / f"{split}.{language}"
                path.write_text("".join(f"{' '.join(line)}\n" for line in lines), encoding="utf-8")
        config = PreprocessConfig(
            source_lang="a", target_lang="b", trainpref=f"{name}/train", validpref=f"{name}/valid"
        )
        config.tokenizer, config.destdir = WordsConfig(), f"{name}/corpus"
        preprocess(config)
        yield folder / "corpus"
