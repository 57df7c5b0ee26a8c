"""Check whole runs of nmt-train on a device: by several ranks, with a rank that dies, and within the forecast of memory."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from nmt.config.choices import Precision
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import (
    BatchingConfig,
    CheckpointConfig,
    DeviceConfig,
    ReportConfig,
    TrainConfig,
    ValidationConfig,
)
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.doctor.facts import devices
from nmt.doctor.outcomes import Skipped, Wrong
from nmt.models.transformer.config import TransformerConfig
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import InverseSqrtConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.training.assemble import try_largest

UPDATES = 10
TRAINING = (
    "model=transformer_tiny model.dropout=0 --max-tokens 500 --lr 0.001 --precision fp32 --log-interval 1 --no-html "
    "--no-count-flops --progress none --valid-samples 0 --clip-norm 1"
).split()
TOLERANCE = 1e-3  # of a loss
PATIENCE = 60.0  # seconds within which the other ranks must end after one was killed
LONGEST = 600.0  # seconds of a run
UNDERESTIMATED = 1.3  # times the forecast that memory may reach
WORDS, LINES, LONGEST_LINE = 900, 2000, 30
SIZE = TransformerConfig(2, 2, d_model=256, d_ff=1024, num_heads=4)


def several_ranks(device: torch.device, strategy: str) -> str:
    """Compare the losses of training on all devices of a kind with those on one, with equally many batches per update."""
    ranks = _ranks(device)
    with _corpus() as corpus, tempfile.TemporaryDirectory() as folder:
        options = [*TRAINING, str(corpus), "--device", device.type, "--max-update", str(UPDATES)]
        by_one = [*options, "--save-dir", f"{folder}/one", "--update-freq", str(ranks)]
        by_all = [*options, "--save-dir", f"{folder}/all", "--distributed-strategy", strategy]
        for command in ([*_command(1), *by_one], [*_command(ranks), *by_all]):
            _finish(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        expected, losses = (_losses(Path(folder, name)) for name in ("one", "all"))
    worst = max(abs(loss - exact) / exact for loss, exact in zip(losses, expected, strict=True))
    if not worst <= TOLERANCE:
        raise Wrong(f"losses of {ranks} ranks differ by up to {worst:.1e} from those of one")
    return f"{UPDATES} updates of {ranks} ranks, losses within {worst:.0e} of those of one"


def killed_rank(device: torch.device) -> str:
    """Kill a rank. The others must end, and with them the command."""
    ranks = _ranks(device)
    with _corpus() as corpus, tempfile.TemporaryDirectory() as folder:
        options = [*TRAINING, str(corpus), "--device", device.type, "--save-dir", folder, "--max-update", "1000000"]
        run = subprocess.Popen([*_command(ranks), *options], stderr=subprocess.DEVNULL)
        try:
            _await_updates(run, Path(folder))
            os.kill(max(_children(run.pid)), signal.SIGKILL)
            began = time.monotonic()
            try:
                status = run.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                raise Wrong(f"the other ranks still wait {PATIENCE:.0f} seconds after one was killed") from None
        finally:
            run.kill()
    if status == 0:
        raise Wrong("the command ended with status 0 although a rank was killed")
    return f"the command with {ranks} ranks ended {time.monotonic() - began:.0f} s after one was killed"


def memory_forecast(device: torch.device) -> str:
    """Compare the memory of the largest batches with its forecast from parts of them."""
    with _corpus() as corpus, tempfile.TemporaryDirectory() as folder:
        forecast = try_largest(
            TrainConfig(
                data=[str(corpus)],
                model=SIZE,
                criterion=LabelSmoothedCrossEntropyConfig(),
                optimizer=AdamConfig(),
                scheduler=InverseSqrtConfig(),
                validation=ValidationConfig(samples=0),
                batching=BatchingConfig(max_tokens=2000 if device.type == "cpu" else 20_000),
                checkpoint=CheckpointConfig(save_dir=folder),
                report=ReportConfig(html=False, count_flops=False),
                device=DeviceConfig(str(device), Precision.fp32),
            )
        )
    assert forecast is not None and forecast.expected is not None, "there is one rank"
    if not forecast.is_measured:
        raise Skipped(f"the forecast of {forecast.expected / 1e9:.2f} GB exceeds the free memory")
    if forecast.memory > UNDERESTIMATED * forecast.expected:
        raise Wrong(f"{forecast.memory / 1e9:.2f} GB at the peak, but the forecast is {forecast.expected / 1e9:.2f} GB")
    return f"{forecast.memory / 1e9:.2f} GB at the peak, forecast {forecast.expected / 1e9:.2f} GB"


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


def _command(ranks: int) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    return [sys.executable, *launcher, "-m", "nmt_cli.train"]


def _finish(process: subprocess.Popen[str]) -> None:
    """Wait for a command. Raise ``Wrong`` with the last line of its log if it fails."""
    try:
        _, log = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Wrong(f"training did not end within {LONGEST:.0f} seconds") from None
    if process.returncode:
        lines = [line for line in log.splitlines() if line.startswith("nmt-train") or "Error" in line]
        raise Wrong(f"training ended with status {process.returncode}: {(lines or [log.strip()])[0]}")


def _await_updates(run: subprocess.Popen[Any], folder: Path) -> None:
    until = time.monotonic() + LONGEST
    while not (folder / "log.jsonl").exists() or len(_losses(folder)) < 3:
        if run.poll() is not None or time.monotonic() > until:
            raise Wrong(f"training by several ranks did not make three updates within {LONGEST:.0f} seconds")
        time.sleep(0.1)


def _losses(folder: Path) -> Sequence[float]:
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines if line.endswith("}")]
    return [event["loss"] for event in events if event["event"] == "train"]


def _children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [line.split() for line in listed.splitlines()]
    return [int(child) for child, parent in pairs if int(parent) == process]


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
