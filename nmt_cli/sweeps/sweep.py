"""The jobs of a sweep (``--multirun``): a folder for each run, the results in ``sweep.jsonl``, a table at the end.

A launcher may take a job to another process or another machine. What all of them share is the folder of the sweep: each
job notes there what becomes of it, and the process that the user started reads the notes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from nmt.config.composing.assignments import Assignment, read
from nmt.config.composing.hydra_bridge import job_overrides
from nmt.config.sections import TrainConfig
from nmt.errors import AlreadyReported, DeviceError, Interrupted, NMTError, UsageError
from nmt.interruptions import handled
from nmt.storage.lock import process_lives
from nmt.storage.sweep_records import Record, read_records
from nmt_cli.process import Terminated, cleaning_up_on_sigterm, configure_logging, say, use_utf8
from nmt_cli.sweeps.job_process import in_own_process
from nmt_cli.sweeps.records import old_run_name, records_of, run_name, table, unfinished

LAUNCHERS = ("joblib", "submitit")
SAVE_DIR = "checkpoint.save_dir"
DRY_RUN = "dry_run"

T = TypeVar("T")


class JobFailed(AlreadyReported):
    """A job's failure, on its way to Hydra's sweeper."""


class Sweep:
    """State that the jobs of one sweep share. A launcher copies it to the processes of its jobs.

    Only runs of ``nmt-train`` have folders and records.
    """

    def __init__(self, assignments: Sequence[Assignment], *, of_runs: bool) -> None:
        self.of_runs = of_runs
        self.failure: JobFailed | None = None  # the first failure in this process that no record holds
        self.folder = Path()
        self._logs: Path | None = None  # of a launcher; %j is replaced by the number of a job
        last = {assignment.key: assignment for assignment in assignments}
        self.fixed = {key for key, assignment in last.items() if not assignment.is_sweep}
        if SAVE_DIR in last.keys() - self.fixed:
            raise UsageError(f"{SAVE_DIR} takes one value in a sweep: the folder in which each run gets a subfolder")
        if DRY_RUN in last and last[DRY_RUN].value is not False:
            raise UsageError("--dry-run estimates one run, not a sweep; use it with a single run")
        self.start = secrets.token_hex(4)
        self._conductor = _this_process()
        self._received: signal.Signals | None = None

    @property
    def in_other_process(self) -> bool:
        """Whether this is another process than the one that the user started."""
        return _this_process() != self._conductor

    def begin(self, folder: Path, logs: Path | None) -> None:
        """Receive the folder of the sweep, and that of the launcher's logs, before the first job starts."""
        self.folder, self._logs = folder, logs

    @contextlib.contextmanager
    def conducted(self) -> Iterator[None]:
        """Surround all jobs, in the process that the user started: signals, the table, the result."""
        broken: Exception | None = None
        with self._listening():
            try:
                yield
            except JobFailed as failure:
                self.failure = failure
            except Exception as error:
                if not (self.is_of_launcher(error) and self.records()):
                    raise
                broken = error
                self._wait_for_others()
            finally:
                records = self._closed()
        undone = unfinished(records)
        if self._received is not None:
            status = 130 if self._received is signal.SIGINT else Interrupted.exit_status
            raise Interrupted(f"stopped by {self._received.name}; the same command resumes the sweep", status)
        if broken is not None and not undone:
            raise broken
        if undone:
            status = undone[0].get("exit_status", 1)
            raise NMTError(f"{len(undone)} of {len(records)} runs did not finish; the same command tries again", status)
        if self.failure is not None:
            raise self.failure

    def _closed(self) -> list[Record]:
        """Show the table, and return the records at the end of all jobs."""
        if self._logs is not None and "%j" in self._logs.name:
            with contextlib.suppress(OSError):  # submitit makes a folder of this name and leaves it empty
                self._logs.rmdir()
        self._note_killed()
        records = self.records()
        if records:
            self.stop_file().unlink(missing_ok=True)
            print(table(records, self.folder), flush=True)
        for record in unfinished(records):
            if "log" in record:  # no process wrote to this terminal
                message = record.get("error", "no result")
                say(f"nmt-train: job {record['job']}: {message}; see the log {record['log']}")
        return records

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM lets jobs in other processes save and stop.

        If there are none, it interrupts this process; and training in this process listens for itself.
        """

        def stop(number: int, frame: FrameType | None) -> None:
            if self._received is not None or not self._stop_others():
                raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)
            self._received = signal.Signals(number)
            say("stopping: the runs save checkpoints first (a second signal stops at once)")

        with handled((signal.SIGINT, signal.SIGTERM) if self.of_runs else (), stop):
            yield

    def records(self) -> list[Record]:
        """Return the records of this start, in the order of jobs."""
        if not self.of_runs:
            return []
        records = [record for record in read_records(self.folder) if record["start"] == self.start]
        return sorted(records, key=lambda record: record["job"])

    def is_of_launcher(self, error: BaseException) -> bool:
        """Whether a launcher raised the error: a process ended without a result, or could not be started."""
        frames = traceback.extract_tb(error.__traceback__)
        raiser = Path(frames[-1].filename).parts if frames else ()
        return type(error).__module__.partition(".")[0] in LAUNCHERS or any(name in raiser for name in LAUNCHERS)

    def _others(self) -> list[Record]:
        """Return the records of jobs that run in other processes."""
        running = [record for record in self.records() if record["status"] == "running"]
        return [record for record in running if (record["host"], record["process"]) != self._conductor]

    def _stop_others(self) -> bool:
        """Ask the jobs that run in other processes to save and stop; False if there are none. A signal reaches those of
        this machine."""
        others = self._others()
        if others:
            self.stop_file().touch()
        for record in others:
            with contextlib.suppress(ProcessLookupError):
                if record["host"] == self._conductor[0]:
                    os.kill(record["process"], signal.SIGTERM)
        return bool(others)

    def _wait_for_others(self) -> None:
        """Wait for jobs that other processes of this machine still run after the launcher gave up."""
        while any(map(_lives, self._others())):
            time.sleep(0.2)

    def _note_killed(self) -> None:
        """Record as failed the jobs whose process ended without a result."""
        if not any(record["status"] == "running" for record in self.records()):
            return
        error = "its process, or the worker that waited for it, was killed"
        facts = {"status": "failed", "error": error, "exit_status": DeviceError.exit_status}
        with records_of(self.folder) as records:
            for name, record in records.items():
                if record["start"] == self.start and record["status"] == "running" and _lives(record) is False:
                    records[name] = record | facts

    def stop_file(self) -> Path:
        return self.folder / f".stop-{self.start}"


class SweepJob:
    """One job of a sweep, in the process that does it."""

    def __init__(self, sweep: Sweep) -> None:
        job = HydraConfig.get()
        self._sweep = sweep
        self._number = int(job.job.num)
        values = {assignment.key: str(assignment.text).lstrip("+") for assignment in read(job_overrides()[0])}
        self._chosen = [text for key, text in values.items() if key not in sweep.fixed]  # by the sweeper
        self._facts: Record = {}  # known only in the course of the job
        self.title = f"job {self._number}" + (f" ({' '.join(self._chosen)})" if self._chosen else "")
        self.in_other_process = sweep.in_other_process
        self.folder = Path(job.runtime.output_dir)
        if job.sweep.subdir == ".":  # the user chose no other name
            old = self.folder / (old_run_name(self._chosen) or str(self._number))
            self.folder = old if old.exists() else self.folder / (run_name(self._chosen) or str(self._number))

    def isolated(self, work: Callable[[], T]) -> T:
        """Do the work of the job. A launcher's worker gives it a separate process, which may be killed alone."""
        return in_own_process(work) if self.in_other_process and hasattr(os, "fork") else work()

    @contextlib.contextmanager
    def in_progress(self) -> Iterator[None]:
        """Surround the work: a process that a launcher started logs and stops like the command itself."""
        if not self.in_other_process:
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
            raise Interrupted("not started: the sweep was stopped")
        self.note("running")

    def compare_direction(self, config: Any) -> None:
        """Record the metric of the run; refuse a sweeper that looks for the worst value, or without validations."""
        if not isinstance(config, TrainConfig):
            return
        from nmt.training.setup.metrics import higher_is_better

        metric = config.validation.best_metric
        higher = higher_is_better(metric)
        self._facts |= {"metric": metric, "higher_is_better": higher}
        direction = OmegaConf.select(HydraConfig.get().sweeper, "direction")
        if direction is not None and not config.validation.is_on:
            raise UsageError(
                f"this sweeper looks for the best validation {metric}, but validation is off; set --validate-interval 1"
            )
        refuse_worst(direction, metric, higher)

    def finish(self, best: float | None) -> float | None:
        """Record the result, and return it for Hydra's sweeper."""
        self.note("finished", best=best)
        return best

    def fail(self, status: str, message: str, exit_status: int) -> None:
        """Record a failure. Sweepers other than Hydra's own, which would print it again, receive it as an exception."""
        self.note(status, error=message, exit_status=exit_status)
        failure = JobFailed(message, exit_status)
        listens = not str(HydraConfig.get().sweeper._target_).endswith(".BasicSweeper")
        if listens or (self.in_other_process and not self._sweep.of_runs):
            raise failure
        self._sweep.failure = self._sweep.failure or failure

    def note(self, status: str, **facts: Any) -> None:
        """Update the record of the run."""
        if not self._sweep.of_runs or os.environ.get("RANK", "0") != "0":
            return
        host, process = _this_process()
        folder = self._sweep.folder
        name = os.path.relpath(self.folder, folder)
        record = {"start": self._sweep.start, "host": host, "process": process, "job": self._number}
        record |= {"overrides": self._chosen, "folder": name, "status": status} | self._facts | facts
        with records_of(folder) as records:
            before = records.get(name, {})
            earlier = before if before.get("start") == self._sweep.start else {}  # of a process that was killed
            records[name] = earlier | record


def _lives(record: Record) -> bool | None:
    """Whether the process of a job runs; None if it belongs to another machine."""
    if record["host"] != socket.gethostname():
        return None
    return process_lives(record["process"])


def refuse_worst(direction: Any, metric: str, higher_is_better: bool) -> None:
    """Refuse a direction of a sweeper (Optuna's) that is wrong for the metric."""
    direction_name, right = getattr(direction, "name", direction), "maximize" if higher_is_better else "minimize"
    if direction_name in ("maximize", "minimize") and direction_name != right:
        raise UsageError(f"hydra.sweeper.direction={direction_name} looks for the worst {metric}; set it to {right}")


def _this_process() -> tuple[str, int]:
    return socket.gethostname(), os.getpid()


def _join_tasks_of_submitit() -> Record:
    """Let the tasks of one submitit job train one model, like ranks of torchrun. Return the path of the log."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return {}
    from submitit import JobEnvironment
    from submitit.helpers import TorchDistributedEnvironment

    job = JobEnvironment()
    if job.num_tasks > 1:
        TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
    return {"log": str(job.paths.stderr)}
