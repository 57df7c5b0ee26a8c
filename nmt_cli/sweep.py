"""The jobs of a sweep (``--multirun``): a folder for each run, the results in ``sweep.jsonl``, a table at the end.

A launcher may take a job to another process or another machine. What all of them share is the folder of the sweep: each
job notes there what becomes of it, and the process that the user started reads the notes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from nmt.config.sections import TrainConfig
from nmt.errors import Interrupted, NMTError, UsageError
from nmt.interruptions import handled
from nmt.storage.files import atomic_write
from nmt_cli.argv import by_key
from nmt_cli.process import Terminated, cleaning_up_on_sigterm, configure_logging, say, use_utf8

RECORDS = "sweep.jsonl"
LAUNCHERS = ("joblib", "submitit")
SAVE_DIR = "checkpoint.save_dir"
DRY_RUN = "dry_run"
LONGEST_NAME = 120

Record = dict[str, Any]


class JobFailed(NMTError):
    """A job's failure, on its way to Hydra's sweeper. It has been reported already, perhaps by another process."""


class Place(Callback):
    """Hydra tells it, in the process that the user started, where the folder of the sweep is."""

    folder: ClassVar[Path] = Path()

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        Place.folder = Path(config.hydra.sweep.dir)


class Sweep:
    """What the jobs of one start of a command share; copied to wherever a job runs.

    Only runs of ``nmt-train`` have folders, and so records.
    """

    def __init__(self, overrides: Sequence[str], *, of_runs: bool) -> None:
        self.of_runs = of_runs
        self.failure: JobFailed | None = None  # the first in this process that no record tells of
        given = by_key(overrides)
        self.fixed = {key for key, override in given.items() if not override.is_sweep_override()}
        if SAVE_DIR in given.keys() - self.fixed:
            raise UsageError(f"{SAVE_DIR} is the folder of the whole sweep, whose runs get folders of their own in it")
        if DRY_RUN in given and given[DRY_RUN].value() is not False:
            raise UsageError(
                "--dry-run says what one run would take, and a sweep has records of its runs; try one of them"
            )
        self.start = secrets.token_hex(4)
        self._conductor = _this_process()
        self._received: signal.Signals | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether this is another process than the one that the user started."""
        return _this_process() != self._conductor

    @contextlib.contextmanager
    def conducted(self) -> Iterator[None]:
        """Around all jobs, in the process that the user started."""
        with self._listening():
            try:
                yield
            except JobFailed as failure:
                self.failure = failure
            finally:
                records = self.records()
                if records:
                    self.stop_file().unlink(missing_ok=True)
                    print(table(records, self.folder()), flush=True)
                undone = [record for record in records if record["status"] != "finished"]
                for record in undone:
                    if "log" in record:  # no process wrote to this terminal
                        error = record.get("error", "no result")
                        say(f"nmt-train: job {record['job']}: {error}; its log is {record['log']}")
        if self._received is not None:
            status = 130 if self._received is signal.SIGINT else Interrupted.exit_status
            raise Interrupted(f"stopped by {self._received.name}; the same command goes on with the sweep", status)
        if undone:
            status = undone[0].get("exit_status", 1)
            raise NMTError(f"{len(undone)} of {len(records)} runs did not finish; the same command tries again", status)
        if self.failure is not None:
            raise self.failure

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM lets jobs in other processes save and stop.

        If there are none, it interrupts this process; and training in this process listens for itself.
        """

        def stop(number: int, frame: FrameType | None) -> None:
            if self._received is not None or not self._stop_others():
                raise KeyboardInterrupt if number == signal.SIGINT else Terminated
            self._received = signal.Signals(number)
            say("stopping: the runs save first (once more: leave at once)")

        with handled((signal.SIGINT, signal.SIGTERM) if self.of_runs else (), stop):
            yield

    def folder(self) -> Path:
        return Path(HydraConfig.get().sweep.dir) if self.elsewhere else Place.folder

    def records(self) -> list[Record]:
        """Those of this start, in the order of jobs."""
        if not self.of_runs:
            return []
        found = [record for record in read_records(self.folder()) if record["start"] == self.start]
        return sorted(found, key=lambda record: record["job"])

    def _stop_others(self) -> bool:
        """Ask the jobs that run in other processes of this machine to save and stop; False if there are none."""
        running = [record for record in self.records() if record["status"] == "running"]
        here = [record["process"] for record in running if (record["host"], record["process"]) != self._conductor]
        here = here if socket.gethostname() == self._conductor[0] else []
        if here:
            self.stop_file().touch()
        for process in here:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        return bool(here)

    def stop_file(self) -> Path:
        return self.folder() / f".stop-{self.start}"


class Job:
    """One job of a sweep, in the process that does it."""

    def __init__(self, sweep: Sweep) -> None:
        job = HydraConfig.get()
        self._sweep = sweep
        self._number = int(job.job.num)
        given = by_key(job.overrides.task)  # the sweeper chose what the command line does not fix
        self._chosen = [str(override.input_line) for key, override in given.items() if key not in sweep.fixed]
        self._facts: Record = {}  # known only in the course of the job
        self.title = f"job {self._number}" + (f" ({' '.join(self._chosen)})" if self._chosen else "")
        self.elsewhere = sweep.elsewhere
        self.folder = Path(job.runtime.output_dir)
        if job.sweep.subdir == ".":  # nobody asked for another name
            self.folder /= run_name(self._chosen) or str(self._number)

    @contextlib.contextmanager
    def in_progress(self) -> Iterator[None]:
        """Around the work: a process that a launcher started logs and stops like the command itself."""
        if not self.elsewhere:
            yield
            return
        self._facts |= _join_tasks_of_submitit()
        use_utf8()
        configure_logging(f"job {self._number}")
        own_thread = threading.current_thread() is threading.main_thread()
        if own_thread:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with cleaning_up_on_sigterm():
                yield
        finally:
            if own_thread:  # Ctrl-C reaches a worker that waits for its next job: it must not die of it
                signal.signal(signal.SIGINT, signal.SIG_IGN)

    def begin(self) -> None:
        if self._sweep.of_runs and self._sweep.stop_file().exists():
            raise Interrupted("not started, the sweep was stopped")
        self.note("running")

    def compare_direction(self, config: Any) -> None:
        """Take note of what the run is judged by; refuse a sweeper that was told to look for the worst, or for nothing."""
        if not isinstance(config, TrainConfig):
            return
        from nmt.training.setup.options import higher_is_better

        metric = config.validation.best_metric
        higher = higher_is_better(metric)
        self._facts |= {"metric": metric, "higher_is_better": higher}
        direction = OmegaConf.select(HydraConfig.get().sweeper, "direction")
        if direction is not None and not config.validation.is_on:
            raise UsageError(
                f"this sweeper looks for the best {metric} of a validation, and no run makes one; give --validate-interval 1"
            )
        refuse_worst(direction, metric, higher)

    def finish(self, best: float | None) -> float | None:
        """What Hydra's sweeper receives."""
        self.note("finished", best=best)
        return best

    def fail(self, status: str, message: str, exit_status: int) -> None:
        """Note it, and tell a sweeper that listens; Hydra's own does not, and would print an exception once more."""
        self.note(status, error=message, exit_status=exit_status)
        failure = JobFailed(message, exit_status)
        listens = not str(HydraConfig.get().sweeper._target_).endswith(".BasicSweeper")
        if listens or (self.elsewhere and not self._sweep.of_runs):
            raise failure
        self._sweep.failure = self._sweep.failure or failure

    def note(self, status: str, **facts: Any) -> None:
        """Write down what is known of the run, in place of what was known before."""
        if not self._sweep.of_runs or os.environ.get("RANK", "0") != "0":
            return
        host, process = _this_process()
        folder = self._sweep.folder()
        own = os.path.relpath(self.folder, folder)
        record = {"start": self._sweep.start, "host": host, "process": process, "job": self._number}
        record |= {"overrides": self._chosen, "folder": own, "status": status} | self._facts | facts
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / ".sweep.lock", "a") as lock:
            with contextlib.suppress(OSError):  # a file system without locks: go on unguarded
                fcntl.flock(lock, fcntl.LOCK_EX)
            records = {known["folder"]: known for known in read_records(folder)} | {own: record}
            with atomic_write(folder / RECORDS) as file:
                for known in records.values():
                    file.write((json.dumps(known, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


def refuse_worst(direction: Any, metric: str, higher_is_better: bool) -> None:
    """A sweeper with a direction (Optuna's) cannot know which one is the metric's."""
    given, right = getattr(direction, "name", direction), "maximize" if higher_is_better else "minimize"
    if given in ("maximize", "minimize") and given != right:
        raise UsageError(f"hydra.sweeper.direction={given} looks for the worst {metric}; set it to {right}")


def run_name(overrides: Sequence[str]) -> str:
    """The folder of a run, of what was chosen for it: ``optimizer.lr=0.001_seed=2``. Different choices, other names."""
    # Without what a shell, a path or a list of paths would read as something else.
    parts = ([re.sub(r"[^\w.+-]+", "-", part) for part in override.split("=", 1)] for override in overrides)
    plain = "_".join(map("=".join, parts))
    if plain == "_".join(overrides) and len(plain) <= LONGEST_NAME:
        return plain
    digest = hashlib.sha256("\0".join(overrides).encode()).hexdigest()[:8]
    return f"{plain[: LONGEST_NAME - 9]}-{digest}"


def table(records: Sequence[Record], folder: Path) -> str:
    """The runs for people to read: what was chosen, the best figure, what became of it, where it is."""
    metrics = {record["metric"] for record in records if "metric" in record}
    one = next(iter(metrics)) if len(metrics) == 1 else None
    scored = [record for record in records if record.get("best") is not None]
    best = None
    if one and len(scored) > 1:
        best = (max if scored[0]["higher_is_better"] else min)(scored, key=lambda record: float(record["best"]))
    rows = [["job", "overrides", one or "best", "", "status", "folder"]]
    for record in records:
        figure = "-" if record.get("best") is None else f"{'' if one else record['metric'] + ' '}{record['best']:.4f}"
        mark = "best" if record is best else ""
        chosen, place = " ".join(record["overrides"]) or "-", str(folder / record["folder"])
        rows.append([str(record["job"]), chosen, figure, mark, record["status"], place])
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths) if width) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def read_records(folder: Path) -> list[Record]:
    """One record a run folder, of all starts."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        lines = (folder / RECORDS).read_text(encoding="utf-8").split("\n")  # texts may hold other separators of lines
        return [json.loads(line) for line in lines if line]
    return []


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def is_of_launcher(error: BaseException) -> bool:
    """Whether it was raised by what starts processes: one ended without a word, or could not be started."""
    frames = traceback.extract_tb(error.__traceback__)
    raiser = Path(frames[-1].filename).parts if frames else ()
    return type(error).__module__.partition(".")[0] in LAUNCHERS or any(name in raiser for name in LAUNCHERS)


def _join_tasks_of_submitit() -> Record:
    """The tasks of one submitit job train one model together, as torchrun's processes do. Returns where the log is."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return {}
    from submitit import JobEnvironment
    from submitit.helpers import TorchDistributedEnvironment

    job = JobEnvironment()
    if job.num_tasks > 1:
        TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
    return {"log": str(job.paths.stderr)}
