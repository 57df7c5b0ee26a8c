"""From ``sys.argv`` to a configuration as dataclasses, and from exceptions to one line and an exit status.

Hydra is used here and nowhere else at run time: it composes presets and overrides, and runs several jobs with
``--multirun``. Everything behind ``run(config)`` is plain Python.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

import nmt
from nmt.config.choices import ProgressStyle
from nmt.config.help import help_page
from nmt.config.presets import default_choices, program_of
from nmt.config.publish import CONFIG_PATH, publish
from nmt.config.roles import CommandConfig
from nmt.errors import Interrupted, MissingInputError, NMTError, OutputError, UsageError, numbered
from nmt.plugins import load_plugins, plugin_places, preset_folders
from nmt.storage.files import STORAGE_FAULTS
from nmt_cli.argv import rewrite, take_config, user_dir_in
from nmt_cli.explain import CONFIGURATION_ERRORS, explain, unknown_key
from nmt_cli.flags import grammar, refuse_files
from nmt_cli.process import Terminated, cleaning_up_on_sigterm, configure_logging, discard, logger, say, use_utf8
from nmt_cli.stored import ConfigFile, put_search_of_model, taken_from_files, text_of
from nmt_cli.sweep import Job, JobFailed, Sweep, is_of_launcher

Config = TypeVar("Config", bound=CommandConfig)

_OF_PRINTING = ("--cfg", "-c", "--package", "-p", "--resolve")
_WITHOUT_A_FOLDER = ("hydra.run.dir=.", "hydra.output_subdir=null")

STATUS_STORAGE, STATUS_INTERRUPTED, STATUS_BROKEN_PIPE = 74, 130, 141
CLOSED_NAMES = frozenset(
    (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)
)  # whoever gave the name can mend it


def launch(command: str, config_class: type[Config], run: Callable[[Config], float | None]) -> None:
    """Compose the configuration of ``command`` from ``sys.argv`` and call ``run`` with it.

    Returns if all went well; otherwise prints one line (a traceback only for defects) and exits. What ``run`` returns
    goes to Hydra's sweeper in a multirun.
    """
    use_utf8()
    configure_logging()
    _Launcher(command, config_class, run).start(sys.argv[1:])


class _Launcher:
    """One start of one command."""

    def __init__(self, command: str, config_class: type[CommandConfig], run: Callable[[Any], float | None]) -> None:
        self._command = command
        self._program = program_of(command)
        self._config_class = config_class
        self._run = run
        self._task_started = False
        self._user_dir: str | None = None
        self._sweep = Sweep((), of_runs=False)
        self._finds_search = False  # the model is known only when Hydra has composed

    def start(self, argv: list[str]) -> None:
        if "--version" in argv:
            print(f"{self._program} {nmt.__version__}")
            return
        try:
            # Training has its own way to stop, which saves first.
            with contextlib.nullcontext() if self._command == "train" else cleaning_up_on_sigterm():
                self._hydra(argv)
            sys.stdout.flush()
        except Terminated:
            self._line("stopped by SIGTERM before the end; run the same command again")
            sys.exit(Interrupted.exit_status)
        except KeyboardInterrupt:
            self._line("interrupted")
            sys.exit(STATUS_INTERRUPTED)
        except SystemExit as request:
            _flush_or_discard()
            # Hydra says 1 for what is a matter of usage (`--package x` that does not exist).
            sys.exit(2 if request.code == 1 and not self._task_started else request.code)
        except Exception as error:
            sys.exit(self._report(error))

    def _hydra(self, argv: list[str]) -> None:
        argv, named = take_config(argv)
        file = None if named is None else ConfigFile.read(named)
        self._user_dir = user_dir_in(argv) or (None if file is None else file.user_dir)
        load_plugins(self._user_dir)
        line = rewrite(argv, grammar(self._config_class, default_choices(self._command)))
        if line.only_prints and hasattr(signal, "SIGPIPE"):
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nmt-train --help | head` ends like any other filter
        if line.asks_for_help:  # Hydra would read all presets a few dozen times for a page of which it shows nothing
            print(help_page(self._command, self._config_class, [*preset_folders(), *line.config_dirs], line.overrides))
            return
        for note in line.notes:
            logger.info(note)
        line, defaults, self._finds_search = taken_from_files(self._command, self._config_class, line, file)
        primary = publish(self._command, self._config_class, preset_folders(), defaults)
        sys.argv = [self._program, *line.argv]
        os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions reach us instead of being printed by Hydra
        task = self._task
        if line.prints_job:  # Hydra's own would not say which component the options are of
            sys.argv = [self._program, *line.overrides, *_WITHOUT_A_FOLDER, *line.without(*_OF_PRINTING)]
            self._printed = line
            task = self._print
        main = hydra.main(version_base="1.3", config_path=CONFIG_PATH, config_name=primary)(task)
        if not line.is_sweep:
            main()
            return
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise UsageError("torchrun starts one run, not a sweep; leave it out (docs/configuration.md: submitit)")
        self._sweep = Sweep(line.overrides, of_runs=self._command == "train")
        # What a launcher sends to other processes names classes of a plugin; they look for its package themselves.
        folders = [str(place.expanduser().resolve().parent) for place in plugin_places(self._user_dir)]
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, [*paths, *folders])))
        with self._sweep.conducted():
            try:
                main()
            except OSError as error:  # what a job does is reported by the job: here only Hydra makes folders
                if error.filename is None:
                    raise
                option = "--save-dir" if self._sweep.of_runs else "hydra.sweep.dir=FOLDER"
                raise OutputError(f"cannot make {error.filename}: {error.strerror}; choose another {option}") from error

    def _print(self, composed: DictConfig) -> None:
        """The composed configuration, and nothing else is done."""
        choices = HydraConfig.get().runtime.choices
        chosen = {group: choices.get(group) for group in default_choices(self._command)}
        package, resolve = self._printed.value_of("--package", "-p"), "--resolve" in self._printed.hydra
        try:
            text = text_of(composed, self._config_class, chosen, package, resolve=resolve)
        except CONFIGURATION_ERRORS as error:
            raise UsageError(explain(error, self._command, self._config_class)) from error
        print(text, end="")

    def _task(self, composed: DictConfig) -> float | None:
        """One job. A single run exits here with its status."""
        self._task_started = True
        load_plugins(self._user_dir)  # a launcher may have moved this job to another process
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            return self._job(composed, Job(self._sweep))
        try:
            return self._run(self._configuration(composed))
        except Exception as error:
            sys.exit(self._report(error))

    def _job(self, composed: DictConfig, job: Job) -> float | None:
        """One of several jobs, perhaps in a process of its own; a failure must not stop the others."""
        with job.in_progress():
            try:
                job.begin()
                logger.info("%s begins", job.title)
                config = self._configuration(composed, job)
                job.compare_direction(config)
                return job.finish(self._run(config))
            except Exception as error:
                status = self._report(error, job.title)
                if isinstance(error, Interrupted) and not job.elsewhere:  # whoever stops this process means all jobs
                    job.note("interrupted")
                    sys.exit(status)
                message = str(error) if isinstance(error, NMTError) else f"{type(error).__name__}: {error}"
                job.fail("interrupted" if isinstance(error, Interrupted) else "failed", message, status)
            except KeyboardInterrupt:
                job.note("interrupted")
                if not job.elsewhere:
                    raise
                job.fail("interrupted", "interrupted", STATUS_INTERRUPTED)
        return None

    def _configuration(self, composed: DictConfig, job: Job | None = None) -> Any:
        """The composed configuration as dataclasses: complete, resolved and checked."""
        try:
            if job is not None and "checkpoint" in composed:
                with open_dict(composed):  # jobs of one sweep must not share a run folder
                    composed.checkpoint.save_dir = str(job.folder)
                    if job.elsewhere and composed.report.progress is ProgressStyle.auto:
                        composed.report.progress = ProgressStyle.lines  # bars of several processes would mix
            missing = sorted(OmegaConf.missing_keys(composed))
            if missing:
                raise UsageError(f"no value for {', '.join(missing)}; give {missing[0]}=VALUE")
            OmegaConf.resolve(composed)
            if self._finds_search:
                put_search_of_model(composed, HydraConfig.get().overrides.task)
            config = _as_dataclasses(composed)
        except CONFIGURATION_ERRORS as error:
            raise UsageError(explain(error, self._command, self._config_class)) from error
        if not isinstance(config, self._config_class):
            raise UsageError(f"the configuration must extend {self._command}_schema through its defaults list")
        for key in _additions(config):
            raise UsageError(unknown_key(key, self._command, self._config_class))
        refuse_files(self._command, config)
        named = config.instead_of_standard_input
        if job is not None and named is not None:  # the first job would read all of it
            raise UsageError(f"the jobs of a sweep cannot share standard input; give them a file: {named} FILE")
        return config

    def _report(self, error: BaseException, job: str | None = None) -> int:
        """Print what went wrong, once; the exit status."""
        where = "" if job is None else f"{job}: "
        if isinstance(error, JobFailed):  # by whoever did the job
            return error.exit_status
        if isinstance(error, BrokenPipeError) and _reader_is_gone(sys.stdout):
            _flush_or_discard()
            return STATUS_BROKEN_PIPE
        if isinstance(error, NMTError):
            message, status = f"{where}{error}", error.exit_status
        elif isinstance(error, CONFIGURATION_ERRORS) and not self._task_started:
            message, status = explain(error, self._command, self._config_class), UsageError.exit_status
        elif isinstance(error, OSError) and error.errno in STORAGE_FAULTS:  # any other OSError is a defect
            file = f": {error.filename}" if error.filename else ""
            message, status = f"{where}writing failed: {error.strerror}{file}", STATUS_STORAGE
        elif isinstance(error, OSError) and error.errno in CLOSED_NAMES and error.filename is not None:
            advice = "check its name and its rights, and those of the folders that it lies in"
            message, status = (
                f"{where}cannot use {error.filename}: {error.strerror}; {advice}",
                MissingInputError.exit_status,
            )
        elif not self._task_started and _is_usage_of_hydra(error):
            message, status = str(error), UsageError.exit_status
        elif is_of_launcher(error):
            message, status = f"the launcher failed: {type(error).__name__}: {error}", 1
        else:
            if job is not None:
                self._line(f"{job} failed")
            say("".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip())
            return 1
        self._line(message)
        return status

    def _line(self, message: str) -> None:
        say(f"{self._program}: {' '.join(message.split())}")


def _flush_or_discard() -> None:
    """Leave nothing in stdout's buffer that Python would fail to write, and complain about once more, at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def _reader_is_gone(stream: IO[str]) -> bool:
    """Whether whoever read our output has closed it; a broken pipe elsewhere is a defect."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _is_usage_of_hydra(error: BaseException) -> bool:
    """Hydra refuses combinations of its own flags (``--cfg job --info``) with a bare ValueError."""
    frames = traceback.extract_tb(error.__traceback__)
    return isinstance(error, ValueError) and bool(frames) and Path(frames[-1].filename).parent.name == "_internal"


def _as_dataclasses(composed: DictConfig) -> Any:
    """The configuration's objects; whatever its sections refuse is said all at once."""
    try:
        return OmegaConf.to_object(composed)
    except UsageError:
        refused = []
        for section in filter(OmegaConf.is_dict, map(composed._get_node, composed)):
            try:
                OmegaConf.to_object(section)
            except UsageError as error:
                refused.append(str(error))
        if not refused:  # it is the whole that is wrong
            raise
        raise UsageError(numbered(refused)) from None


def _additions(config: Any, prefix: str = "") -> Iterator[str]:
    """Keys that ``+key=value`` added to a section: OmegaConf would set them as attributes that nobody reads."""
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        names = {field.name for field in dataclasses.fields(config)}
        for name, value in vars(config).items():
            if name not in names:
                yield f"{prefix}{name}"
            yield from _additions(value, f"{prefix}{name}.")
