"""From ``sys.argv`` to a configuration as dataclasses, and from exceptions to one line and an exit status.

The command runs here, in this process. Hydra runs it only in a sweep, or if options of Hydra's own are set.
"""

from __future__ import annotations

import errno
import importlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, TypeVar

import nmt
from nmt.config.choices import ProgressStyle
from nmt.config.composing.assignments import SEARCH_PATH, Assignment, read
from nmt.config.composing.composition import Composition, check, compose, unchecked
from nmt.config.composing.help import SYNTAX_TOPIC, help_page
from nmt.config.composing.presets import Base
from nmt.config.composing.programs import program_of
from nmt.config.roles import CommandConfig
from nmt.config.sections import CheckpointConfig
from nmt.errors import (
    AlreadyReported,
    DeviceError,
    Interrupted,
    MissingInputError,
    NMTError,
    OutputError,
    StorageError,
    UsageError,
)
from nmt.plugins import load_plugins, preset_folders
from nmt.storage.files import STORAGE_FAULTS
from nmt.storage.run_status import described, has_ranks, record_failure, refuse_hopeless_restart
from nmt_cli.command_line.argv import rewrite, run_folder_in, take_config, user_dir_in
from nmt_cli.command_line.config_file import ConfigFile, base_of, text_of, with_search_of_model
from nmt_cli.command_line.flags import grammar_of, refuse_files
from nmt_cli.process import (
    STATUS_INTERRUPTED,
    STATUS_TERMINATED,
    Terminated,
    cleaning_up_on_sigterm,
    configure_logging,
    discard,
    leaving_on_signals,
    logger,
    say,
    use_utf8,
)
from nmt_cli.shell.terminal import painted, show_page
from nmt_cli.versions import versions

if TYPE_CHECKING:
    from nmt.config.composing.hydra_bridge import HydraApplication
    from nmt_cli.sweeps.sweep import Sweep, SweepJob

Config = TypeVar("Config", bound=CommandConfig)

STATUS_BROKEN_PIPE = 141
CLOSED_NAMES = frozenset(
    (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
)  # the user can choose another name
PROGRESS = "report.progress"
FROM_HYDRA = ("${hydra:", "${now:")  # values that only Hydra's run has


def launch(config_class: type[Config], run: Callable[[Config], float | None]) -> None:
    """Compose the configuration of a command from ``sys.argv`` and call ``run`` with it.

    Returns if all went well; otherwise prints one line (a traceback only for defects) and exits. In a multirun Hydra's
    sweeper receives the result of ``run``.
    """
    use_utf8()
    configure_logging()
    _Launcher(config_class, run).start(sys.argv[1:])


class _Launcher:
    """One start of one command. A launcher of a sweep copies it to other processes."""

    def __init__(self, config_class: type[CommandConfig], run: Callable[[Any], float | None]) -> None:
        self._command = config_class.command
        self._program = program_of(config_class.command)
        self._config_class = config_class
        self._run = run
        self._user_dir: str | None = None
        self._config_dirs: list[Path] = []
        self._base = Base()
        self._run_folder: Path | None = None  # of training: for its status
        self._sweep: Sweep | None = None

    def start(self, argv: list[str]) -> None:
        if "--version" in argv:
            print(f"{self._program} {nmt.__version__}\n{versions()}")
            return
        try:
            with leaving_on_signals():
                self._know_run_folder(run_folder_in(argv, CheckpointConfig().save_dir))
                self._start(argv)
            sys.stdout.flush()
        except Terminated as stopped:
            self._line(str(stopped))
            sys.exit(STATUS_TERMINATED)
        except KeyboardInterrupt:
            self._line("interrupted")
            sys.exit(STATUS_INTERRUPTED)
        except SystemExit:
            _flush_or_discard()
            raise
        except Exception as error:
            _exit(self._report(error))

    def _know_run_folder(self, named: str | None) -> None:
        """Remember the folder for the status of a training run; exit if a restart by torchrun cannot help."""
        if self._command == "train" and named is not None:
            self._run_folder = Path(named)
            refuse_hopeless_restart(self._run_folder)

    def _start(self, argv: list[str]) -> None:
        argv, named = take_config(argv)
        file = None if named is None else ConfigFile.read(named)
        if file is not None and self._run_folder is None:
            self._know_run_folder(file.save_dir)
        self._user_dir = user_dir_in(argv) or (None if file is None else file.user_dir)
        load_plugins(self._user_dir)
        line = rewrite(argv, grammar_of(self._config_class))
        if line.only_prints and hasattr(signal, "SIGPIPE"):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nmt-train --help | head` ends like any other filter
        self._config_dirs = _existing(line.config_dirs)
        assignments = read(line.overrides)
        topic = SYNTAX_TOPIC if "--hydra-help" in line.hydra else line.hydra.get("--help")
        if topic is not None:
            show_page(help_page(self._config_class, self._folders, assignments, topic))
            return
        for note in line.notes:
            logger.info(note)
        self._base = base_of(self._config_class, line, file)
        if line.hydra.get("--cfg") == "job":
            if self._needs_hydra(assignments):
                self._application(self._base).check(line.overrides)
            composition = self._composed(assignments, tell=False)
            print(text_of(composition, line.hydra.get("--package"), resolve="--resolve" in line.hydra), end="")
        elif (kind := line.hydra.get("--cfg")) is not None:
            package, resolve = line.hydra.get("--package"), "--resolve" in line.hydra
            self._application(self._base).show_config(line.overrides, kind, package, resolve=resolve)
        elif "--info" in line.hydra:
            self._application(self._base).show_info(line.overrides, line.hydra["--info"])
        elif line.is_sweep:
            self._start_sweep(assignments)
        elif self._needs_hydra(assignments):
            self._application(self._base).run(line.overrides, self._task)
        else:
            self._run_alone(assignments)

    @property
    def _folders(self) -> list[Path]:
        """Folders of presets: those of loaded plugins, and the user's."""
        return [*preset_folders(), *self._config_dirs]

    def _composed(self, assignments: Sequence[Assignment], *, tell: bool) -> Composition:
        kept, base = self._with_search(assignments, self._base, tell=tell)
        return compose(self._config_class, kept, self._folders, base)

    def _with_search(
        self, assignments: Sequence[Assignment], base: Base, *, tell: bool
    ) -> tuple[Sequence[Assignment], Base]:
        if self._command != "generate":
            return assignments, base
        return with_search_of_model(self._config_class, assignments, self._folders, base, tell=tell)

    def _needs_hydra(self, assignments: Sequence[Assignment]) -> bool:
        """Whether options of Hydra's own say how the job is run, or have values that it uses."""
        if self._base.primary is not None:
            return True
        return any(
            (assignment.of_hydra and assignment.key != SEARCH_PATH)
            or any(value in str(assignment.text) for value in FROM_HYDRA)
            for assignment in assignments
        )

    def _application(self, base: Base) -> HydraApplication:
        from nmt.config.composing.hydra_bridge import HydraApplication  # a single run does not need it

        return HydraApplication(self._config_class, self._folders, base)

    def _run_alone(self, assignments: Sequence[Assignment]) -> float | None:
        with cleaning_up_on_sigterm():
            config = self._configuration(assignments)
            if self._command == "train":
                self._run_folder = Path(config.checkpoint.save_dir)
            return self._run(config)

    def _start_sweep(self, assignments: Sequence[Assignment]) -> None:
        from nmt_cli.sweeps.sweep import Sweep

        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise UsageError(
                f"torchrun starts one run, not a sweep; start the sweep without it ({nmt.DOCUMENTATION}/how-to/sweeps/)"
            )
        assignments = list({assignment.key: assignment for assignment in assignments}.values())  # the last one counts
        self._sweep = sweep = Sweep(assignments, of_runs=self._command == "train")
        base, swept = self._base, {assignment.key for assignment in assignments if assignment.is_sweep}
        if not swept & {"path", "search"}:
            fixed = [assignment for assignment in assignments if not assignment.is_sweep]
            _, base = self._with_search(fixed, base, tell=False)
        check(self._config_class, assignments, self._folders, base)
        application = self._application(base)
        with sweep.conducted():
            try:
                application.sweep([str(assignment.text) for assignment in assignments], self._task, sweep.begin)
            except OSError as error:  # jobs report their own errors: here only Hydra makes folders
                if error.filename is None:
                    raise
                option = "--save-dir" if sweep.of_runs else "hydra.sweep.dir=FOLDER"
                raise OutputError(
                    f"cannot create {error.filename}: {error.strerror}; choose another {option}"
                ) from error

    def _task(self, composed: object) -> float | None:
        """Run one job that Hydra starts. Its options are composed here, from the assignments of the job."""
        from nmt.config.composing.hydra_bridge import job_overrides

        task, of_hydra = job_overrides()
        assignments = read([*task, *of_hydra])
        if self._sweep is None:
            try:
                return self._run_alone(assignments)
            except Exception as error:
                sys.exit(self._report(error))
        from nmt_cli.sweeps.sweep import SweepJob

        job = SweepJob(self._sweep)
        with cleaning_up_on_sigterm():
            try:
                return job.isolated(lambda: self._job(assignments, job))
            except DeviceError as killed:
                job.fail("failed", str(killed), self._report(killed, job.title))
        return None

    def _job(self, assignments: Sequence[Assignment], job: SweepJob) -> float | None:
        """Run one of several jobs. A failure must not stop the others."""
        with job.in_progress():
            try:
                job.begin()
                if job.in_other_process:  # a launcher started this process
                    importlib.import_module(f"nmt_cli.{self._command}")  # registers the components
                    load_plugins(self._user_dir)
                logger.info("%s begins", job.title)
                config = self._configuration(assignments, job)
                job.compare_direction(config)
                return job.finish(self._run(config))
            except Exception as error:
                status = self._report(error, job.title)
                if (
                    isinstance(error, Interrupted) and not job.in_other_process
                ):  # a stop of this process concerns all jobs
                    job.note("interrupted")
                    sys.exit(status)
                message = str(error) if isinstance(error, NMTError) else f"{type(error).__name__}: {error}"
                job.fail("interrupted" if isinstance(error, Interrupted) else "failed", message, status)
            except KeyboardInterrupt:
                job.note("interrupted")
                if not job.in_other_process:
                    raise
                job.fail("interrupted", "interrupted", STATUS_INTERRUPTED)
        return None

    def _configuration(self, assignments: Sequence[Assignment], job: SweepJob | None = None) -> Any:
        """Return the options of a run as dataclasses, checked."""
        is_run = job is not None and self._command == "train"
        if job is not None and is_run:  # jobs of one sweep must not share a run folder
            assignments = [*assignments, Assignment("checkpoint.save_dir", str(job.folder))]
            shown = unchecked(self._config_class, PROGRESS, assignments, self._folders, self._base)
            if job.in_other_process and shown == ProgressStyle.auto.name:  # bars of several processes would mix
                assignments = [*assignments, Assignment(PROGRESS, ProgressStyle.lines.name)]
        config = self._composed(assignments, tell=True).config
        refuse_files(self._command, config)
        flag = config.instead_of_standard_input
        if job is not None and flag is not None:  # the first job would read all of it
            raise UsageError(f"the jobs of a sweep cannot share standard input; give them a file: {flag} FILE")
        return config

    def _report(self, error: BaseException, job: str | None = None) -> int:
        """Print the error on one rank only, and return the exit status."""
        where = "" if job is None else f"{job}: "
        if isinstance(error, AlreadyReported):
            return error.exit_status
        if isinstance(error, BrokenPipeError) and _reader_is_gone(sys.stdout):
            _flush_or_discard()
            return STATUS_BROKEN_PIPE
        error = self._for_the_user(error)
        if has_ranks() and isinstance(error, Exception):
            from nmt.distributed.joining import told_by_another

            if self._run_folder is not None and job is None and not isinstance(error, AlreadyReported):
                record_failure(self._run_folder, error)
            if told_by_another(error):
                return described(error)[1]
        if isinstance(error, NMTError):
            self._line(f"{where}{error}")
            return error.exit_status
        if self._sweep is not None and self._sweep.is_of_launcher(error):
            self._line(f"the launcher failed: {type(error).__name__}: {error}")
            return 1
        if job is not None:
            self._line(f"{job} failed")
        say("".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip())
        return 1

    def _for_the_user(self, error: BaseException) -> BaseException:
        """Convert an error that a user can fix to an ``NMTError``; return any other error, a defect, unchanged."""
        if isinstance(error, NMTError):
            return error
        if isinstance(error, OSError) and error.errno in STORAGE_FAULTS:
            file = f": {error.filename}" if error.filename else ""
            return StorageError(f"writing failed: {error.strerror}{file}")
        if isinstance(error, OSError) and error.errno in CLOSED_NAMES and error.filename is not None:
            advice = "check its name, its permissions, and those of its parent folders"
            return MissingInputError(f"cannot use {error.filename}: {error.strerror}; {advice}")
        return error

    def _line(self, message: str) -> None:
        say(f"{painted(f'{self._program}:', 'error', sys.stderr)} {' '.join(message.split())}")


def _existing(folders: list[Path]) -> list[Path]:
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"--config-dir {folder} is not a folder")
    return folders


def _exit(status: int) -> NoReturn:
    """End the process, at once if its libraries wait for other ranks and would not let it end."""
    joining = sys.modules.get("nmt.distributed.joining")
    if joining is not None and joining.is_stuck():
        _flush_or_discard()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _flush_or_discard() -> None:
    """Flush stdout, or discard its buffer, which Python would fail to write at exit with another error."""
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def _reader_is_gone(stream: IO[str]) -> bool:
    """Whether the reader of our output has closed it; a broken pipe elsewhere is a defect."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))
