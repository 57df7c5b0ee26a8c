"""The launcher in real processes: exit statuses, one-line messages, streams, several jobs, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# A command like any other, with the light schema of nmt-score; `sys` chooses what happens.
SCRIPT = """
import logging, pathlib, sys, time
from nmt.config.commands import ScoreConfig
from nmt import errors
from nmt.storage.files import atomic_write
from nmt_cli.launch import launch

def run(config):
    logging.getLogger("nmt.test").info("at work")
    match "".join(config.sys):
        case "print": print(config.tokenize)
        case "echo": sys.stdout.write(sys.stdin.read())
        case "many": [print("line", number) for number in range(100_000)]
        case "data": raise errors.DataError("x.en: line 3:\\n not UTF-8")
        case "stop": raise errors.Interrupted("saved; the same command continues", 75)
        case "defect": raise RuntimeError("a defect")
        case "pipe": raise BrokenPipeError("of another kind")
        case "closed": raise PermissionError(13, "Permission denied", "a/closed/file")
        case "keys": raise KeyboardInterrupt
        case "value": return len(config.tokenize)
        case "": print("nothing")
        case "wait":
            with atomic_write(pathlib.Path("out")):
                print("waiting", flush=True)
                time.sleep(60)

launch(ScoreConfig, run)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("launch") / "toy.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def start(script: Path, *arguments: str, cwd: Path, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, str(script), *arguments],
        cwd=cwd,
        stderr=subprocess.PIPE,
        **{"stdout": subprocess.PIPE, **options},
    )


@pytest.mark.parametrize(
    ("what", "status", "message"),
    [
        ("data", 65, "nmt-score: x.en: line 3: not UTF-8"),
        ("stop", 75, "nmt-score: saved; the same command continues"),
        ("keys", 130, "nmt-score: interrupted"),
        (
            "closed",
            66,
            "nmt-score: cannot use a/closed/file: Permission denied; check its name, its permissions, and "
            "those of its parent folders",
        ),
    ],
)
def test_a_users_fault_is_one_line_and_its_status(
    script: Path, tmp_path: Path, what: str, status: int, message: str
) -> None:
    done = start(script, "--sys", what, cwd=tmp_path)
    lines = done.stderr.decode().splitlines()
    assert (done.returncode, lines[-1]) == (status, message)
    assert [line for line in lines[:-1] if not line.endswith("| INFO | at work")] == []


@pytest.mark.parametrize(("what", "error"), [("defect", b"RuntimeError: a defect"), ("pipe", b"BrokenPipeError: of")])
def test_a_defect_keeps_its_traceback(script: Path, tmp_path: Path, what: str, error: bytes) -> None:
    done = start(script, "--sys", what, cwd=tmp_path)
    assert done.returncode == 1
    assert b"Traceback" in done.stderr and error in done.stderr
    assert done.stdout == b""


def test_the_log_goes_to_stderr_and_nothing_is_left_behind(script: Path, tmp_path: Path) -> None:
    done = start(script, "--sys", "print", "--tokenize", "none", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"none\n")
    assert done.stderr.count(b"at work") == 1
    assert list(tmp_path.iterdir()) == []


def test_streams_are_utf8_in_any_locale(script: Path, tmp_path: Path) -> None:
    text = "Zürich \u2028 日本\r\n".encode()
    environment = {
        **os.environ,
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONUTF8": "0",
    }
    done = start(script, "--sys", "echo", cwd=tmp_path, input=text, env=environment)
    assert (done.returncode, done.stdout) == (0, text)


def test_a_reader_that_leaves_ends_the_command_quietly(script: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(script), "--sys", "many"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    complaints = [line for line in process.stderr.read().splitlines() if b"at work" not in line]
    process.stderr.close()
    assert (process.wait(), complaints) == (141, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_named(script: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = start(script, "--sys", "print", cwd=tmp_path, stdout=full)
    assert done.returncode == 74
    assert done.stderr.decode().splitlines()[-1] == "nmt-score: writing failed: No space left on device"


def test_in_a_multirun_a_failing_job_does_not_stop_the_others(script: Path, tmp_path: Path) -> None:
    done = start(script, "sys=[data],[print],[defect]", "--multirun", cwd=tmp_path)
    assert done.stdout == b"13a\n"
    assert done.stderr.count(b"nmt-score: job 0 (sys=[data]): x.en: line 3: not UTF-8") == 1
    assert done.stderr.count(b"RuntimeError: a defect") == 1
    assert b"Error executing job" not in done.stderr
    assert done.returncode == 65  # of the first job that failed


def test_the_jobs_of_a_sweep_do_not_share_standard_input(script: Path, tmp_path: Path) -> None:
    """The first one would leave nothing to the others."""
    done = start(script, "tokenize=13a,none", "--multirun", cwd=tmp_path, input=b"a line\n")
    said = "cannot share standard input; give them a file: --sys FILE"
    assert (done.returncode, done.stdout, done.stderr.decode().count(said)) == (2, b"", 2)


def test_a_sweep_that_can_make_no_folder_says_which_option_names_it(script: Path, tmp_path: Path) -> None:
    (tmp_path / "multirun").write_text("mine")
    done = start(script, "sys=[print],[value]", "--multirun", cwd=tmp_path)
    message = done.stderr.decode().splitlines()[-1]
    assert done.returncode == 73 and message.startswith("nmt-score: cannot create multirun/")
    assert message.endswith("choose another hydra.sweep.dir=FOLDER")


def test_a_job_that_is_asked_to_stop_ends_the_multirun(script: Path, tmp_path: Path) -> None:
    done = start(script, "sys=[stop],[print]", "--multirun", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (75, b"")


def test_the_value_of_a_job_reaches_hydra(script: Path, tmp_path: Path) -> None:
    (tmp_path / "listening.py").write_text(
        "from hydra.experimental.callback import Callback\n"
        "class Listener(Callback):\n"
        "    def on_job_end(self, config, job_return, **rest):\n"
        "        print('returned', job_return.return_value)\n"
    )
    callback = "+hydra.callbacks.listen={_target_: listening.Listener}"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])}
    done = start(script, "sys=value", "tokenize=a,abc", "-m", callback, cwd=tmp_path, env=environment)
    assert done.stdout == b"returned 1\nreturned 3\n"


@pytest.mark.parametrize(
    ("closed", "what", "status"),
    [
        ("<&-", "echo", 0),
        (">&-", "print", 0),
        ("2>&-", "print", 0),
        ("2>&-", "data", 65),
        ("<&- >&- 2>&-", "data", 65),
        ("2>/dev/full", "print", 0),
        ("2>/dev/full", "data", 65),
        ("2>/dev/full", "keys", 130),
        ("2>/dev/full", "defect", 1),
    ],
)
def test_a_stream_that_is_closed_or_full_changes_no_status(
    script: Path, tmp_path: Path, closed: str, what: str, status: int
) -> None:
    line = f'"$@" {closed}'
    result = subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, str(script), "--sys", what], cwd=tmp_path, capture_output=True
    )
    assert (result.returncode, b"Traceback" in result.stderr) == (status, False)


def test_sigterm_unwinds_so_that_temporary_files_are_removed(script: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, str(script), "--sys", "wait"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"waiting\n"
    assert list(tmp_path.glob(".out.*.tmp"))
    process.terminate()
    _, complaint = process.communicate()
    assert process.returncode == 75 and b"nmt-score: stopped by SIGTERM" in complaint
    assert not list(tmp_path.glob(".out*"))
