"""Sweeps of tiny runs by the real command, with each launcher that is installed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from nmt.storage.lock import process_lives
from tests.commands import Copy, start_copy

TINY = (
    "model=transformer_tiny model.encoder_layers=1 model.decoder_layers=1 model.d_model=16 model.d_ff=16 "
    "model.num_heads=2 --batch-size 60 --max-update 4 --validate-interval null --validate-interval-updates 2 "
    "--valid-samples 0 --save-interval null --no-html --no-count-flops --device cpu"
).split()

# Notes what Hydra's sweeper receives of each job, whatever process does it.
LISTENER = """
import pathlib
from hydra.experimental.callback import Callback

class Listener(Callback):
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def on_job_end(self, config, job_return, **rest):
        (self.folder / f"returned-{config.hydra.job.num}").write_text(repr(job_return._return_value))
"""


def needs(plugin: str) -> Any:
    missing = importlib.util.find_spec("hydra_plugins") is None
    missing = missing or importlib.util.find_spec(f"hydra_plugins.hydra_{plugin}_launcher") is None
    return pytest.mark.skipif(
        missing, reason=f"hydra-{plugin}-launcher is not installed (pip install 'nmt-toolkit[sweep]')"
    )


JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
LAUNCHERS = [
    pytest.param((), id="basic"),
    pytest.param(JOBLIB, id="joblib", marks=needs("joblib")),
    pytest.param(
        ("hydra/launcher=submitit_local",), id="submitit_local", marks=[needs("submitit"), pytest.mark.nightly]
    ),
]


def command(corpus: Path, *arguments: str) -> list[str]:
    return ["train", str(corpus), *TINY, "--save-dir", "sweep", "-m", *arguments]


# What is in a folder can be imported, by the processes that a launcher starts as well.
IMPORTED = """
import os, sys
sys.path.append({folder!r})
os.environ["PYTHONPATH"] += os.pathsep + {folder!r}
"""


def start_sweep(corpus: Path, folder: Path, *arguments: str) -> Copy:
    (folder / "listening.py").write_text(LISTENER, encoding="utf-8")
    listen = f"+hydra.callbacks.listen={{_target_: listening.Listener, folder: '{folder}'}}"
    imported = IMPORTED.format(folder=str(folder))
    return start_copy(*command(corpus, *arguments, listen), cwd=folder, before=imported)


def sweep(corpus: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = start_sweep(corpus, folder, *arguments)
    output, log = process.communicate()
    return subprocess.CompletedProcess(arguments, process.wait(), output.decode(), log.decode())


def records(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "sweep/sweep.jsonl").read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda record: int(record["job"]))


def validations(run: Path) -> list[float]:
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event["loss"] for event in events if event["event"] == "valid"]


# By day a killed job shows what other launchers return: each of their processes imports torch.
@pytest.mark.parametrize(
    "launcher",
    [
        LAUNCHERS[0],
        *(pytest.param(*one.values, id=one.id, marks=[*one.marks, pytest.mark.nightly]) for one in LAUNCHERS[1:]),
    ],
)
def test_a_sweep_returns_the_best_score_of_each_run_and_survives_one_that_fails(
    copy_corpus: Path, tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    done = sweep(copy_corpus, tmp_path, "optimizer.lr=0.01,-1,0.02", *launcher)
    names = ["optimizer.lr-0.01", "optimizer.lr--1", "optimizer.lr-0.02"]
    found = records(tmp_path)
    assert [record["folder"] for record in found] == names
    assert [record["status"] for record in found] == ["finished", "failed", "finished"], done.stderr
    bests = [min(validations(tmp_path / "sweep" / names[job])) for job in (0, 2)]
    assert [found[job]["best"] for job in (0, 2)] == bests
    assert [float((tmp_path / f"returned-{job}").read_text()) for job in (0, 2)] == bests
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[1] for row in rows] == ["overrides", "optimizer.lr=0.01", "optimizer.lr=-1", "optimizer.lr=0.02"]
    assert [row[-1] for row in rows[1:]] == [f"sweep/{name}" for name in names]
    said = [line for line in done.stderr.splitlines() if "optimizer.lr=-1.0 must be" in line]
    assert len(said) == 1 and said[0].startswith("nmt-train: job 1")
    assert "Traceback" not in done.stderr
    assert done.returncode == 2  # of the run that failed


def test_the_same_sweep_again_leaves_finished_runs_alone_and_adds_new_ones(copy_corpus: Path, tmp_path: Path) -> None:
    first = sweep(copy_corpus, tmp_path, "seed=1,2")
    before = {run: (run / "log.jsonl").read_bytes() for run in (tmp_path / "sweep").glob("seed-*")}
    assert (first.returncode, len(before)) == (0, 2)
    again = sweep(copy_corpus, tmp_path, "seed=1,2,3")
    assert again.returncode == 0
    assert {run: (run / "log.jsonl").read_bytes() for run in before} == before
    assert again.stderr.count("holds a finished run") == 2
    assert again.stdout.splitlines()[1:3] == [line for line in again.stdout.splitlines() if line[:1] in "01"]
    assert [record["status"] for record in records(tmp_path)] == ["finished"] * 3
    assert len(set(validations(tmp_path / "sweep/seed-3"))) > 1


@pytest.mark.parametrize("launcher", LAUNCHERS[1:])
def test_a_killed_job_leaves_the_others_to_finish(copy_corpus: Path, tmp_path: Path, launcher: tuple[str, ...]) -> None:
    """The process of the second job gets SIGKILL, as from a kernel that is short of memory."""
    process = start_sweep(copy_corpus, tmp_path, "training.max_update=4,1000000,5", *launcher)
    folder = tmp_path / "sweep/training.max_update-1000000"
    while not (folder / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    (killed,) = [record for record in records(tmp_path) if record["folder"] == folder.name]
    os.kill(killed["process"], signal.SIGKILL)
    table, complaint = (text.decode() for text in process.communicate())
    found = records(tmp_path)
    assert [record["status"] for record in found] == ["finished", "failed", "finished"], complaint
    bests = [min(validations(tmp_path / "sweep" / found[job]["folder"])) for job in (0, 2)]
    assert [float((tmp_path / f"returned-{job}").read_text()) for job in (0, 2)] == bests
    assert "died by SIGKILL; if memory was short" in found[1]["error"]
    assert complaint.count("died by SIGKILL") == 1 and "Traceback" not in complaint
    assert process.returncode == found[1]["exit_status"] == 69
    assert not (tmp_path / "sweep/.submitit/%j").exists()


@needs("submitit")
@pytest.mark.nightly
def test_a_killed_worker_of_submitit_leaves_the_others_to_finish(copy_corpus: Path, tmp_path: Path) -> None:
    """The worker waits for the job; the launcher gives up when it dies, and the other job still runs."""
    endless = command(copy_corpus, "training.max_update=1000000,200", "hydra/launcher=submitit_local")
    process = start_copy(*endless, cwd=tmp_path)
    folder = tmp_path / "sweep/training.max_update-1000000"
    while not (folder / "log.jsonl").exists() and process.poll() is None:
        time.sleep(0.02)
    (killed,) = [record for record in records(tmp_path) if record["folder"] == folder.name]
    os.kill(parent_of(killed["process"]), signal.SIGKILL)
    _, complaint = (text.decode() for text in process.communicate())
    found = records(tmp_path)
    assert [record["status"] for record in found][1:] == ["finished"], complaint
    assert found[0]["status"] in ("failed", "interrupted") and not process_lives(killed["process"])
    assert process.returncode != 0 and "Traceback" not in complaint


def test_a_sweep_goes_on_in_folders_that_an_earlier_version_named(copy_corpus: Path, tmp_path: Path) -> None:
    sweep(copy_corpus, tmp_path, "seed=choice(1)")
    (tmp_path / "sweep/seed-1").rename(tmp_path / "sweep/seed=1")
    again = sweep(copy_corpus, tmp_path, "seed=1,2")
    assert again.stderr.count("holds a finished run") == 1
    assert [record["folder"] for record in records(tmp_path) if record["job"] == 1] == ["seed-2"]
    assert not (tmp_path / "sweep/seed-1").exists()


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("launcher", "at_once", "recorded"),
    [
        pytest.param((), 1, 1, id="basic"),
        pytest.param(JOBLIB, 2, 3, id="joblib", marks=[needs("joblib"), pytest.mark.nightly]),
    ],
)
def test_a_sweep_that_is_asked_to_stop_saves_its_runs_and_goes_on_later(
    copy_corpus: Path, tmp_path: Path, launcher: tuple[str, ...], at_once: int, recorded: int
) -> None:
    endless = command(copy_corpus, "seed=1,2,3", *launcher, "--max-update", "1000000", "--save-interval-updates", "2")
    process = start_copy(*endless, cwd=tmp_path)
    while len(list(tmp_path.glob("sweep/seed-*/last.json"))) < at_once and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    table, complaint = (said.decode() for said in process.communicate())
    assert process.returncode == 75, complaint
    assert complaint.count("resume with the same command") == at_once
    assert table.count("interrupted") == len(records(tmp_path)) == recorded  # one or two were not begun
    last = {path.parent.name: json.loads(path.read_bytes()) for path in tmp_path.glob("sweep/*/last.json")}
    updates = [int(pointer["checkpoint"].rpartition("-")[2]) for _, pointer in sorted(last.items())]
    done = sweep(copy_corpus, tmp_path, "seed=1,2", "--max-update", str(max(updates) + 2))
    assert (done.returncode, done.stderr.count("resumed after update")) == (0, at_once)
    assert all(f"resumed after update {update} of" in done.stderr for update in updates)


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_a_file_where_the_folder_of_a_sweep_should_be_is_one_line(
    copy_corpus: Path, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("mine")
    done = sweep(copy_corpus, tmp_path, "seed=1,2", f"checkpoint.save_dir=file{below}")
    assert done.returncode == 73 and (tmp_path / "file").read_text() == "mine"
    assert done.stderr.splitlines()[-1].startswith(f"nmt-train: cannot create file{below}: ")
    assert "Traceback" not in done.stderr


@needs("submitit")
@pytest.mark.skipif(shutil.which("srun") is not None, reason="this machine belongs to a Slurm cluster")
def test_without_slurm_its_launcher_says_so_in_one_line(copy_corpus: Path, tmp_path: Path) -> None:
    done = sweep(copy_corpus, tmp_path, "seed=1,2", "hydra/launcher=submitit_slurm")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("nmt-train: the launcher failed: ") and "slurm" in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="needs nmt-toolkit[optuna]")
def test_optuna_finds_the_best_run_and_is_not_sent_the_wrong_way(copy_corpus: Path, tmp_path: Path) -> None:
    optuna = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "optimizer.lr=interval(0.001,0.1)")
    done = sweep(copy_corpus, tmp_path, *optuna, "hydra.sweeper.direction=minimize")
    assert done.returncode == 0, done.stderr
    found = (tmp_path / "sweep/optimization_results.yaml").read_text(encoding="utf-8")
    assert f"best_value: {min(record['best'] for record in records(tmp_path))}\n" in found
    wrong = sweep(copy_corpus, tmp_path, *optuna, "hydra.sweeper.direction=maximize")
    assert wrong.returncode == 2
    assert "hydra.sweeper.direction=maximize looks for the worst loss; set it to minimize" in wrong.stderr
