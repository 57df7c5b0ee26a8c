"""The fault catalogue for training runs, through nmt-train; the numbers are those of the catalogue."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.storage.checkpoints import read_checkpoint, read_info
from nmt.storage.run_folder import checkpoints_in
from tests.commands import run_copy
from tests.faults.parallel_task import Task
from tests.faults.tiny_runs import TINY, nmt_train, refused


@pytest.fixture(scope="module")
def sound(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints at 2, 4 and 6; do not write to it."""
    run = tmp_path_factory.mktemp("sound") / "run"
    (run.parent / "said").write_text(nmt_train(copy_corpus, run), encoding="utf-8")
    return run


def weights(run: Path) -> bytes:
    last = checkpoints_in(run)[-1]
    assert read_info(last).update == 6
    return (last / "model.safetensors").read_bytes()


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


# Notes in a file each synchronisation and each new name, and with `end` leaves the process at that one.
ON_THE_DISK = """
import json, os, threading
from pathlib import Path
notes, calls, lock = open({notes!r}, "a"), [], threading.Lock()

def noted(what, function):
    def call(*arguments, **options):
        with lock:
            calls.append(what)
            if len(calls) == {end}:
                os._exit(9)
            paths = [os.readlink(f"/proc/self/fd/{{one}}") if isinstance(one, int) else str(one) for one in arguments]
            inside = [str(one) for one in Path(paths[0]).rglob("*")] if what == "rename" else []
            print(json.dumps([what, *map(os.path.abspath, paths + inside)]), file=notes, flush=True)
        return function(*arguments, **options)
    return call

os.fsync = noted("fsync", os.fsync)
os.replace, os.rename = noted("rename", os.replace), noted("rename", os.rename)
"""


@pytest.fixture(scope="module")
def disk(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What a run does with the disk, in order."""
    folder = tmp_path_factory.mktemp("disk")
    notes = str(folder / "notes")
    nmt_train(copy_corpus, folder / "run", "--no-async-checkpoints", before=ON_THE_DISK.format(notes=notes, end=0))
    return [json.loads(line) for line in Path(notes).read_text().splitlines()]


def test_fault_47_what_gets_its_name_is_on_the_disk_before_and_its_name_is_after(disk: list[list[str]]) -> None:
    """No test can cut the power: what survives that is the order of these calls."""
    named = [
        number for number, (what, *_) in enumerate(disk) if what == "rename" and not disk[number][2].endswith(".tmp")
    ]
    assert len(named) > 10, "configuration, tokenizer, three checkpoints and their pointers"
    for number in named:
        _, temporary, name, *inside = disk[number]
        synchronised = {path for what, path, *_ in disk[:number] if what == "fsync"}
        assert {temporary, *inside} <= synchronised, name
        assert ["fsync", os.path.dirname(name)] in disk[number:], name
    pointers = [number for number in named if disk[number][2].endswith("last.json")]
    folders = [number for number in named if re.search(r"checkpoint-\d+-\d+$", disk[number][2])]
    assert len(pointers) == len(folders) == 3
    assert all(folder < pointer for folder, pointer in zip(folders, pointers)), "a pointer moves after its checkpoint"


EVERY_FORTIETH = [pytest.param(n / 40, marks=[] if n in (12, 31) else pytest.mark.nightly) for n in range(1, 40)]


@pytest.mark.parametrize("part", EVERY_FORTIETH)
def test_fault_46_a_death_at_any_step_of_a_save_is_made_good_by_the_same_command(
    part: float, disk: list[list[str]], sound: Path, copy_corpus: Path, tmp_path: Path
) -> None:
    run, end = tmp_path / "run", 1 + int(part * len(disk))
    line = [copy_corpus, *TINY, "--no-async-checkpoints", "--save-dir", run]
    died = run_copy("train", *line, before=ON_THE_DISK.format(notes=str(tmp_path / "notes"), end=end))
    assert died.returncode == 9
    before = {path.name for path in checkpoints_in(run) if read_checkpoint(path)}
    nmt_train(copy_corpus, run)
    assert before <= {path.name for path in checkpoints_in(run)} and weights(run) == weights(sound)
    assert not list(run.glob(".*.tmp"))


def test_fault_49_a_log_that_cannot_be_written_costs_nothing_else(
    copy_corpus: Path, sound: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "log.jsonl").symlink_to("/dev/full")
    (run / "tensorboard").write_text("no folder")
    said = nmt_train(copy_corpus, run, "--html", "--tensorboard")
    assert (
        said.count("training continues: ") == 2 and "log.jsonl, training continues: " in said and "/tensorboard" in said
    )
    assert weights(run) == weights(sound)


def test_fault_50_a_run_folder_that_vanishes_is_made_again(copy_corpus: Path, sound: Path, tmp_path: Path) -> None:
    vanish = """
import shutil
from nmt.training.checkpoints.store import CheckpointStore
save = CheckpointStore.save

def vanished(self, snapshot, **options):
    if snapshot.info.update == 4:
        shutil.rmtree(self.folder)
    return save(self, snapshot, **options)

CheckpointStore.save = vanished
"""
    run = tmp_path / "run"
    nmt_train(copy_corpus, run, "--no-async-checkpoints", before=vanish)
    assert [read_info(path).update for path in checkpoints_in(run)] == [4, 6] and weights(run) == weights(sound)
    done = run_copy("generate", "--path", run, "--cpu", stdin=b"a b\n")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 1), done.stderr


def test_fault_65_batches_of_one_word_and_of_none_do_no_harm(tmp_path: Path) -> None:
    task = Task(tmp_path)
    for name in ("train.en", "train.de"):
        task.write(name, ["a", "b"] * 6)
    for name in ("valid.en", "valid.de"):
        task.write(name, ["a", "", ""])
    corpus = task.make().folder
    nmt_train(corpus, tmp_path / "run", "--batch-size", "1", "--valid-metrics", "bleu,chrf,ter", "--search", "greedy")
    assert all(isinstance(value, (int, float, str)) for value in events(tmp_path / "run", "valid")[-1].values())


SHORTAGE = """
import torch
from nmt.training.loop.learner import Step
forward = Step.forward

def forward_in_little_memory(self, batch):
    if self.training and batch.num_sentences > {sentences}:
        raise torch.OutOfMemoryError("CUDA out of memory")
    return forward(self, batch)

Step.forward = forward_in_little_memory
"""


def test_fault_66_a_batch_without_memory_is_done_in_halves_or_named(copy_corpus: Path, tmp_path: Path) -> None:
    """Torch's error is raised where there is no GPU to run out of memory."""
    said = nmt_train(copy_corpus, tmp_path / "run", "--max-update", "2", before=SHORTAGE.format(sentences=9))
    assert re.search(
        r"out of memory at update 1 in a micro-batch of \d+ sentences of up to .* tokens; from now on micro-batches of "
        r".* are split in halves",
        said,
    )
    said = nmt_train(
        copy_corpus, tmp_path / "none", "--max-update", "2", before=SHORTAGE.format(sentences=0), status=69
    )
    batch = r"a micro-batch of 1 sentence of up to \d+ source and \d+ target tokens"
    assert re.search(f"out of memory at update 1, in {batch}; lower --max-tokens", said.splitlines()[-1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_fault_67_a_gpu_that_is_not_there_is_said_with_what_is(copy_corpus: Path, tmp_path: Path) -> None:
    line = ["train", copy_corpus, *TINY, "--device", "cuda", "--save-dir", tmp_path / "run"]
    line.remove("--cpu")
    said = refused(*map(str, line), status=69)
    assert re.search(
        r"device.name=cuda does not exist: no GPU can be used \(torch .*, built .*\); use --device cpu$", said
    )
    assert not (tmp_path / "run").exists()


def test_fault_68_a_worker_that_is_killed_ends_its_command_with_a_sentence(sound: Path, tmp_path: Path) -> None:
    kill = "import os, signal, {module} as module\n{name} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
    task = Task(tmp_path)
    before = kill.format(module="nmt.preprocessing.encoding", name="module._encode_side")
    status, said = task.run("--workers", "2", before=before)
    assert status == 74 and "ended unexpectedly (SIGKILL); if memory was short, lower workers=2 (--workers)" in said
    assert not list(tmp_path.glob(".corpus*")) and not (tmp_path / "corpus").exists()
    before = kill.format(module="nmt.workers", name="module._outcome")
    line = ("--path", sound, "--cpu", "--workers", "2", "--max-tokens", "9", "--output", tmp_path / "out")
    said = refused("generate", *line, status=69, stdin=b"a b\n" * 20, before=before)
    assert "a worker process ended (SIGKILL); if memory ran out, lower --max-tokens or --workers" in said
    assert not list(tmp_path.glob("*out*"))


JUMPING = """
import time
from nmt.training.loop.trainer import Trainer
real, decide, jump = time.time, Trainer._decide, [0.0]
time.time = lambda: real() + jump[0]

def jumps(self, batches, applied):
    jump[0] = {2: 5 * 3600.0, 4: -9 * 3600.0}.get(self.state.update, jump[0])
    print("the clock is at", round(time.time() - real()), file=__import__("sys").stderr)
    return decide(self, batches, applied)

Trainer._decide = jumps
"""


def test_faults_73_and_92_a_clock_that_jumps_by_hours_changes_nothing(
    copy_corpus: Path, sound: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    limits = ("--stop-time-hours", "1", "--save-interval-minutes", "30", "--html", "--tensorboard")
    said = nmt_train(copy_corpus, run, *limits, before=JUMPING)
    assert "the clock is at 18000\n" in said and "the clock is at -32400\n" in said
    assert "done: 6 updates are made" in said and weights(run) == weights(sound)
    assert all("minutes" not in read_info(path).reasons for path in checkpoints_in(run))
    trained = events(run, "train")
    assert [event["update"] for event in trained] == [1, 2, 3, 4, 5, 6]
    assert all(0 < event["tokens_per_second"] < 1e7 and 0 <= event["seconds"] < 60 for event in trained)
    (end,) = events(run, "end")
    assert 0 < end["seconds"] < 60


def test_faults_30_and_91_no_run_goes_on_with_another_tokenizer(copy_corpus: Path, sound: Path, tmp_path: Path) -> None:
    """Neither with that of another corpus, nor beside one that somebody put in the place of its own."""
    task = Task(tmp_path)
    other = task.make(joined_dictionary=True).folder
    run = shutil.copytree(sound, tmp_path / "run")
    said = nmt_train(other, run, "--max-update", "8", status=65).splitlines()[-1]
    assert "and the corpus have different vocabularies; name the corpus that the run was trained on" in said
    said = refused("generate", other, "--path", run, "--gen-subset", "valid", "--cpu", status=65)
    assert f"{other} has a different source vocabulary than {run}" in said
    shutil.rmtree(run / "tokenizer")
    shutil.copytree(other / "tokenizer", run / "tokenizer")
    said = nmt_train(copy_corpus, run, "--max-update", "8", status=65).splitlines()[-1]
    assert f"{run}/tokenizer and the corpus have different vocabularies; restore the tokenizer of the run" in said
    said = refused("generate", "--path", run, "--cpu", status=65, stdin=b"a\n")
    assert "tokenizer" in said
    shutil.rmtree(run / "tokenizer")
    nmt_train(copy_corpus, run, "--max-update", "8")
    assert read_info(checkpoints_in(run)[-1]).update == 8


BROKEN_SCORE = '''
from dataclasses import dataclass
from nmt.scoring import scorers

@dataclass
class BrokenConfig:
    """No options."""

@scorers.register("broken", BrokenConfig)
class Broken:
    higher_is_better = True
    def __init__(self, config, text):
        pass
    def __call__(self, hypotheses, references):
        raise ZeroDivisionError("no words")
'''


def test_fault_74_a_metric_that_fails_is_reported_and_training_goes_on(copy_corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN_SCORE)
    options = ("--user-dir", tmp_path / "broken.py", "--valid-metrics", "broken,exact", "--valid-max-sentences", "2")
    said = nmt_train(copy_corpus, tmp_path / "run", *options, "--search", "greedy")
    assert "WARNING | broken could not be computed: ZeroDivisionError: no words" in said.splitlines()[-2]
    assert "done: 6 updates are made" in said and "exact" in events(tmp_path / "run", "valid")[-1]


def test_fault_75_without_a_terminal_progress_is_lines(sound: Path) -> None:
    said = (sound.parent / "said").read_bytes().decode()
    assert said.count(" | INFO | epoch 1 | update ") >= 6 and "\r" not in said and "\x1b" not in said


def test_fault_75_a_terminal_without_width_is_no_obstacle(tmp_path: Path) -> None:
    task = Task(tmp_path)
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 0, 0, 0))
    command = [sys.executable, "-m", "nmt_cli.preprocess", *task.arguments("--progress", "bar")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal, check=False)
    os.close(terminal)
    written = os.read(screen, 2**16).decode()
    os.close(screen)
    assert (done.returncode, done.stdout) == (0, b"") and "18 of 18 pairs kept" in written, written
