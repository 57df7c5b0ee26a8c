"""Run commands as forks of a process that has already imported torch and the command's modules.

The imports take most of the time of a short command. A fork has its own arguments, environment, folder, streams, signals and
exit status, like a process that a shell starts; ``tests/cli/test_commands.py`` compares the two.

An *original* holds the libraries. A fork of it also imports the modules of one command: the original of that command. A
*copy* is a fork of that one, and runs the command once.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

LIGHT = ("numpy", "hydra", "omegaconf", "sacrebleu", "sentencepiece")
HEAVY = (*LIGHT, "torch", "safetensors.torch", "torch._dynamo")  # the last one is a second, and training needs it
REPORT = 16  # bytes of a number in a copy's report
WITHOUT_TORCH = ("preprocess", "score", "compare", "umbrella")

_MODELS = ("nmt.models.building", "nmt.models.recurrent.lstm", "nmt.models.transformer.transformer")
_TRANSLATING = (*_MODELS, "nmt.translation", "nmt.engines.native", "nmt.search.beam", "regex")
# Modules that a command imports when it needs them.
DEFERRED = {
    "train": (*_MODELS, "nmt.training.assemble", "nmt.optim.torch_optimizers"),
    "generate": (*_TRANSLATING, "nmt_cli.generate_job"),
    "serve": (*_TRANSLATING, "nmt.serving.server"),
    "align": (*_TRANSLATING, "nmt.translation.word_alignment"),
    "visualize": (*_TRANSLATING, "nmt.reporting.attention_page"),
    "average_checkpoints": (*_MODELS, "nmt.averaging"),
    "export": (*_TRANSLATING, "nmt.formats.exporting"),
    "import_": (*_MODELS, "nmt.formats.importing"),
    "umbrella": (
        "nmt_cli.shell.completion",
        "nmt_cli.shell.manual",
        "nmt_cli.score",
        "nmt_cli.serve",
        "nmt_cli.doctor",
    ),
}

# Variables that nothing reads while Python starts or a library is loaded: a copy sets them. Another variable needs an
# original of its own.
READ_LATER = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT COLUMNS PATH NMT_COMET NMT_METRICX "
    "PYTHON_EXEC PYTEST_CURRENT_TEST HF_ENDPOINT HF_HOME HF_TOKEN HF_HUB_DISABLE_XET HF_HUB_DISABLE_TELEMETRY".split()
)
# Variables that nmt sets in this process when a test imports or calls it. A command sets them itself.
SET_BY_NMT = frozenset({"GOMP_SPINCOUNT", "KMP_INIT_AT_FORK", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"})
# What originals inherit; what a test has changed since then comes with a request, or needs an original of its own.
INHERITED = {name: value for name, value in os.environ.items() if name not in SET_BY_NMT}


def run_copy(
    command: str,
    *arguments: str | Path,
    stdin: bytes = b"",
    cwd: Path | None = None,
    before: str = "",
    timeout: float | None = None,
    torch: bool = True,
    **environment: str | None,
) -> subprocess.CompletedProcess[bytes]:
    """As ``subprocess.run`` of ``python -c "from nmt_cli.COMMAND import main; main()"`` with its output captured.

    ``before``: Python that the copy runs first, when the command's modules are imported; ``torch``: false if the copy is to
    start without it; ``environment``: variables to set, or with None to unset.
    """
    copy = start_copy(command, *arguments, cwd=cwd, before=before, torch=torch, **environment)
    output, log = copy.communicate(stdin, timeout)
    return subprocess.CompletedProcess([command, *map(str, arguments)], copy.wait(), output, log)


def start_copy(
    command: str,
    *arguments: str | Path,
    cwd: Path | None = None,
    before: str = "",
    torch: bool = True,
    **environment: str | None,
) -> Copy:
    """Start the same and return it while it runs: as ``subprocess.Popen`` with three pipes."""
    changed = {name: os.environ.get(name) for name in (INHERITED.keys() | os.environ.keys()) - SET_BY_NMT}
    environment = {name: value for name, value in (changed | environment).items() if value != INHERITED.get(name)}
    later = {name: environment.pop(name) for name in READ_LATER & environment.keys()}
    libraries = HEAVY if torch and command not in WITHOUT_TORCH else LIGHT
    original = original_of(libraries, tuple(sorted(environment.items())), command)
    return original.start(
        runs=f"nmt_cli.{command}",
        before=before,
        cwd=packed(str(cwd or Path.cwd())),
        environment={name: value if value is None else packed(value) for name, value in later.items()},
        words=["-c", *(packed(str(argument)) for argument in arguments)],
    )


class Copy:
    """A running command, with what tests use of ``subprocess.Popen``."""

    def __init__(self, report: int, stdin: int, stdout: int, stderr: int) -> None:
        """``report``: where the process that waits for it writes its number, and its status when it ends."""
        self._report = report
        number = os.read(report, REPORT)
        assert number, "the process that forks copies has ended; it imports the modules in DEFERRED"
        self.pid = int(number)
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._report], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"copy {self.pid}", timeout or 0)
            self.returncode = int(os.read(self._report, REPORT))
            os.close(self._report)
        return self.returncode

    def communicate(self, given: bytes = b"", timeout: float | None = None) -> tuple[bytes, bytes]:
        """Its output and its log, when it has ended. It is killed if that takes longer than ``timeout`` seconds."""
        with self.stdout, self.stderr, ThreadPoolExecutor(3) as threads:
            threads.submit(self._feed, given)
            output, log = threads.submit(self.stdout.read), threads.submit(self.stderr.read)
            try:
                self.wait(timeout)
            except BaseException:  # its time is over
                self.send_signal(signal.SIGKILL)
                raise
        return output.result(), log.result()

    def _feed(self, given: bytes) -> None:
        with contextlib.suppress(BrokenPipeError), self.stdin:  # nobody has to read all
            self.stdin.write(given)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def packed(text: str) -> str:
    """The bytes of an argument, since the encoding of a copy may differ from ours."""
    return os.fsencode(text).decode("latin-1")


def _unpacked(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


@functools.cache
def original_of(
    libraries: tuple[str, ...], environment: tuple[tuple[str, str | None], ...], command: str | None
) -> _Original:
    """The original of a command; with None, the one that holds only libraries."""
    if command is None:
        return _Original.begin(libraries, dict(environment))
    deferred = DEFERRED.get(command, ()) if libraries == HEAVY or command in WITHOUT_TORCH else ()
    return original_of(libraries, environment, None).holding(f"nmt_cli.{command}", *deferred)


class _Original:
    """A process that forks copies of itself on request."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    @classmethod
    def begin(cls, libraries: tuple[str, ...], environment: dict[str, str | None]) -> _Original:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno()), *libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={name: value for name, value in (INHERITED | environment).items() if value is not None},
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        atexit.register(_end, ours, process)
        return cls(ours)

    def holding(self, *modules: str) -> _Original:
        """Fork an original that also imports these."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ask([theirs.fileno()], modules=modules)
        theirs.close()
        return _Original(ours)

    def start(self, **request: object) -> Copy:
        """``request``: cwd, environment, before, words, and what runs: a module with ``main``, or a file of Python."""
        (stdin, feed), (out, stdout), (err, stderr), (report, told) = (os.pipe() for _ in range(4))
        theirs = [stdin, stdout, stderr, told]
        self.ask(theirs, **request)
        for descriptor in theirs:
            os.close(descriptor)
        return Copy(report, feed, out, err)

    def ask(self, descriptors: list[int], **request: object) -> None:
        socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)


def _end(channel: socket.socket, process: subprocess.Popen[bytes]) -> None:
    channel.close()
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _serve(channel: socket.socket) -> dict[str, Any]:
    """Fork this process for each request; return in a copy, with its request."""
    running: dict[
        int, tuple[int, int]
    ] = {}  # the descriptor of a forked process -> its number, and where to report its end
    while True:
        ready, _, _ = select.select([channel.fileno(), *running], [], [])
        for ended in running.keys() & set(ready):
            _report_end(*running.pop(ended))
            os.close(ended)
        if channel.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(channel, 2**20, 4)
        if not message:
            os._exit(0)
        request: dict[str, Any] = json.loads(message)
        *streams, last = descriptors
        if fork := os.fork():
            running[os.pidfd_open(fork)] = fork, last
            for stream in streams:
                os.close(stream)
            continue
        channel.close()
        for descriptor, (_, report) in running.items():
            os.close(descriptor)
            os.close(report)
        if "modules" in request:
            channel, running = socket.socket(fileno=last), {}
            _load(request["modules"])
            continue
        os.write(last, f"{os.getpid():{REPORT}}".encode())
        os.close(last)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return request


def _report_end(number: int, report: int) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    with contextlib.suppress(BrokenPipeError):  # the test has gone
        os.write(report, f"{status:{REPORT}}".encode())
    os.close(report)


def _load(modules: list[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    # What a process does at its end, which takes longer than most commands: look through all of it for garbage, and take
    # the operators of torch apart.
    gc.freeze()
    for finalizer in weakref.finalize._registry:  # type: ignore[attr-defined]
        finalizer.atexit = False


def _prepare(cwd: str, environment: dict[str, str | None], words: list[str]) -> None:
    os.chdir(_unpacked(cwd))
    for name, value in environment.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = _unpacked(value)
    sys.argv = [_unpacked(word) for word in words]
    del sys.modules["__main__"].__file__  # as with -c: a process that multiprocessing spawns does not run it again
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    # Streams find out when they are opened whether they can seek, and whether they write each line at once.
    for number, (name, mode, newline) in enumerate(
        [("stdin", "rb", None), ("stdout", "wb", "\n"), ("stderr", "wb", "\n")]
    ):
        old = getattr(sys, name)
        unbuffered = old.write_through  # by PYTHONUNBUFFERED
        binary = open(number, mode, 0 if unbuffered and number else -1, closefd=False)  # noqa: SIM115
        by_line = not unbuffered and (name == "stderr" or os.isatty(number))
        stream = io.TextIOWrapper(binary, old.encoding, old.errors, newline, by_line, unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _run(runs: str) -> None:
    """Run a command and end the process, without taking all modules apart, which takes longer than most commands.

    An exit status that is not a number, and a full pipe, are left to Python.
    """
    try:
        if runs.endswith(".py"):
            sys.path[0] = str(Path(runs).resolve().parent)
            runpy.run_path(runs, run_name="__main__")
        else:
            importlib.import_module(runs).main()
        status = 0
    except SystemExit as request:
        if not isinstance(request.code, int | None):
            raise
        status = request.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (OSError, ValueError, AttributeError):  # full, closed by the command, or closed from the start
        sys.exit(status)
    os._exit(status % 256)


if __name__ == "__main__":
    sys.path[0] = ""  # as with -c
    _load(sys.argv[2:])
    wanted = _serve(socket.socket(fileno=int(sys.argv[1])))
    _prepare(wanted["cwd"], wanted["environment"], wanted["words"])
    exec(wanted["before"])
    _run(_unpacked(wanted["runs"]))
