"""Training that is killed, stopped or damaged goes on with the same command as if nothing had happened."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nmt.storage.run_folder import checkpoints_in
from tests.commands import Copy, run_copy, start_copy

UPDATES = 80
OPTIONS = (
    "model=transformer_tiny model.d_model=16 model.d_ff=24 model.num_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 model.dropout=0.2 --max-tokens 64 --update-freq 2 --lr 0.01 --clip-norm 1 "
    f"--max-update {UPDATES} --warmup-updates 10 --save-interval-updates 10 --keep-interval-updates 3 "
    "--save-interval 2 --validate-interval-updates 15 --valid-metrics bleu --valid-max-sentences 10 "
    "--log-interval 7 --seed 3 --search greedy"
).split()
TIMES = ("tokens_per_second", "seconds", "memory_mb", "times", "processor_share")  # what no two runs share


def start(corpus: Path, run: Path, *more: str) -> Copy:
    return start_copy("train", corpus, *OPTIONS, "--save-dir", run, *more)


def to_the_end(corpus: Path, run: Path, *more: str, before: str = "") -> subprocess.CompletedProcess[bytes]:
    return run_copy("train", corpus, *OPTIONS, "--save-dir", run, *more, before=before, timeout=300)


def events(run: Path) -> list[dict[str, Any]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines() if (run / "log.jsonl").exists() else []
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def figures(run: Path) -> list[dict[str, Any]]:
    """Everything that was measured; which checkpoints were written may differ by those of a signal, and each start and
    stop is recorded."""
    return [event for event in events(run) if event["event"] not in ("checkpoint", "start", "stopped")]


def outcome(run: Path) -> dict[str, bytes]:
    """The weights and the optimizer's state at the end, and which checkpoints are the last and the best."""
    last = checkpoints_in(run)[-1]
    assert last.name.endswith(f"{UPDATES:08d}")
    tensors = {name: (last / name).read_bytes() for name in ("model.safetensors", "training.safetensors")}
    return tensors | {name: (run / name).read_bytes() for name in ("last.json", "best.json")}


def wait_for(process: Copy, run: Path, update: int) -> None:
    """Until the log has reached ``update``."""
    deadline = time.monotonic() + 120
    log = run / "log.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and any(f'"update": {reached},' in log.read_text() for reached in range(update, update + 20)):
            return
        time.sleep(0.005)


def signal_at(process: Copy, run: Path, update: int, number: signal.Signals) -> int:
    """Send a signal once the log has reached ``update``; the exit status."""
    wait_for(process, run, update)
    process.send_signal(number)
    process.communicate(timeout=120)
    return process.wait()


@pytest.fixture(scope="module")
def reference(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing interrupted."""
    run = tmp_path_factory.mktemp("reference") / "run"
    result = to_the_end(copy_corpus, run)
    assert result.returncode == 0, result.stderr
    assert result.stdout == b""
    return run


# Ctrl-C while a checkpoint is on its way to the disk, which never comes there, and once more when training has noted it.
INTERRUPTED_TWICE = """
import os, signal, threading, time
from nmt.training.checkpoints.store import CheckpointStore

def endless(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    while signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

CheckpointStore.save = endless
"""


def test_a_second_ctrl_c_does_not_wait_for_a_checkpoint(copy_corpus: Path, tmp_path: Path) -> None:
    done = to_the_end(copy_corpus, tmp_path / "run", before=INTERRUPTED_TWICE)
    assert done.returncode == 130, done.stderr
    assert done.stderr.endswith(b"nmt-train: interrupted\n")


def test_a_run_killed_again_and_again_ends_like_one_that_was_not(
    copy_corpus: Path, reference: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    for update in (12, 53):
        assert signal_at(start(copy_corpus, run), run, update, signal.SIGKILL) == -signal.SIGKILL
    assert to_the_end(copy_corpus, run).returncode == 0
    assert figures(run) == figures(reference)
    assert outcome(run) == outcome(reference)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_fifty_kills_at_random_moments(copy_corpus: Path, reference: Path, tmp_path: Path) -> None:
    """Runs that save after every second update, each killed once: while they start, train, validate, write or delete."""
    often = ("--save-interval-updates", "2", "--keep-training-states", "2")
    timed = start(copy_corpus, tmp_path / "timed", *often)
    seconds = seconds_of_work(timed, tmp_path / "timed")
    draw, found = random.Random(1), Counter[str]()
    for number in range(100):  # a run may finish before its kill; its end is compared too
        if found["killed"] == 50:
            break
        run = tmp_path / str(number)
        process = start(copy_corpus, run, *often)
        wait_for_folder(process, run)
        time.sleep(draw.uniform(0.0, seconds))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=120)
        found["killed" if process.returncode == -signal.SIGKILL else "finished before"] += 1
        found["left something half written"] += bool(list(run.glob(".*.tmp")))
        found["had a checkpoint"] += bool(checkpoints_in(run))
        result = to_the_end(copy_corpus, run, *often)
        assert result.returncode == 0, (number, result.stderr)
        assert outcome(run) == outcome(reference), number
        assert figures(run) == figures(reference), number
        assert not list(run.glob(".*.tmp")), number
        shutil.rmtree(run)
    print(dict(found))
    assert found["killed"] == 50 and found["had a checkpoint"] >= 20, found


def wait_for_folder(process: Copy, run: Path) -> None:
    """Until the imports are done and the run has begun."""
    while not (run / "config.yaml").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def seconds_of_work(process: Copy, run: Path) -> float:
    """How long a run takes once it has begun."""
    wait_for_folder(process, run)
    began = time.monotonic()
    process.communicate(timeout=300)
    return time.monotonic() - began


def test_requests_to_stop_save_and_the_same_command_goes_on(copy_corpus: Path, reference: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for update, number, status in ((12, signal.SIGTERM, 75), (45, signal.SIGINT, 130)):
        assert signal_at(start(copy_corpus, run), run, update, number) == status
        assert update <= int(checkpoints_in(run)[-1].name[-8:]) < UPDATES
    assert to_the_end(copy_corpus, run).returncode == 0
    assert figures(run) == figures(reference)
    assert outcome(run) == outcome(reference)


def test_a_batch_systems_warning_saves_and_a_second_ctrl_c_leaves_at_once(copy_corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert signal_at(start(copy_corpus, run), run, 12, signal.SIGUSR1) == 75
    saved = checkpoints_in(run)[-1]
    process = start(copy_corpus, run, "--max-update", "100000")
    wait_for(process, run, int(saved.name[-8:]) + 10)
    process.send_signal(signal.SIGINT)
    time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130  # whichever way it left
    assert b"Traceback" not in said
    assert to_the_end(copy_corpus, run, "--max-update", str(int(saved.name[-8:]) + 12)).returncode == 0


def test_a_limit_on_the_size_of_files_is_a_warning_that_names_it(copy_corpus: Path, tmp_path: Path) -> None:
    """As RLIMIT_FSIZE of a shared machine: the disk has room, yet no file may be larger."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))"
    done = to_the_end(copy_corpus, tmp_path / "run", before=limit)
    assert done.returncode == 74, done.stderr
    assert b"File too large; raise the limit on the size of files (ulimit -f)" in done.stderr
    assert b"Traceback" not in done.stderr
