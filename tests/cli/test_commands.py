"""A copy of a process that has torch already ends, reads and writes as the command that a user starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands import DEFERRED, HEAVY, SET_BY_NMT, run_copy

# What a process has from its start, besides its modules. Numbers drawn in two processes differ; the others are compared.
STATE = """
import faulthandler, gc, json, locale, logging, multiprocessing, os, random, resource, signal, sys, threading, warnings
import numpy, torch
streams = [sys.stdin, sys.stdout, sys.stderr]
limits = [name for name in dir(resource) if name.startswith("RLIMIT")]
umask = os.umask(0)
os.umask(umask)
drawn = [random.random(), numpy.random.rand(), torch.rand(1).item()]
print(json.dumps({
    "folder, path, words": [os.getcwd(), sys.path, sys.argv],
    "main": [hasattr(sys.modules["__main__"], name) for name in ("__file__", "__path__")],
    **os.environ,
    "umask": umask,
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "blocked": [str(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "wakeup": signal.set_wakeup_fd(-1),
    "open files": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "streams": [[one.encoding, one.errors, one.newlines, one.line_buffering, one.write_through] for one in streams],
    "seek": [one.seekable() for one in streams],
    "same": [sys.__stdin__ is sys.stdin, sys.__stdout__ is sys.stdout, sys.__stderr__ is sys.stderr],
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in limits},
    "priority": [os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))],
    "threads": sorted(one.name for one in threading.enumerate()),
    "children": len(multiprocessing.active_children()),
    "flags": [str(sys.flags), sys.warnoptions, sys.getrecursionlimit(), gc.isenabled(), faulthandler.is_enabled()],
    "warnings": [str(one) for one in warnings.filters],
    "logging": [logging.root.level, str(logging.root.handlers), logging.root.manager.disable],
    "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__, sys.gettrace() is None],
    "locale": locale.setlocale(locale.LC_ALL),
    "torch": [torch.get_num_threads(), str(torch.get_default_dtype()), torch.is_grad_enabled()],
    "modes": [torch.are_deterministic_algorithms_enabled(), str(torch.get_default_device())],
    "drawn": drawn,
}))
"""


@pytest.mark.parametrize(
    ("command", "arguments", "given", "status"),
    [
        ("score", ["--ref", "text", "--metrics", "exact"], "größer\n", 0),
        ("score", ["--ref", "text", "--metrics", "exact"], "a\n" * 100_000, 65),
        ("score", ["--user-dir", "plugin"], "", 1),
        ("generate", ["--path", "größer"], "a\n" * 100_000, 66),  # nobody reads that
    ],
    ids=["a figure", "a complaint", "a traceback", "a folder that is missing"],
)
def test_a_copy_is_like_the_command(
    command: str, arguments: list[str], given: str, status: int, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("größer\n", encoding="utf-8")
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "__init__.py").write_text("import a_module_that_nobody_has\n")
    whole = subprocess.run(
        [sys.executable, "-c", f"from nmt_cli.{command} import main; main()", *arguments],
        input=given.encode(),
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0"},
        check=False,
    )
    copy = run_copy(command, *arguments, stdin=given.encode(), cwd=tmp_path, LC_ALL="C", PYTHONUTF8="0")
    assert copy.returncode == whole.returncode == status
    assert copy.stdout == whole.stdout
    assert copy.stderr == whole.stderr


def test_a_copy_that_is_killed_ends_by_its_signal(tmp_path: Path) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin" / "__init__.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert run_copy("score", "--user-dir", "plugin", cwd=tmp_path).returncode == -9


def test_a_copy_has_its_arguments_folder_and_environment_and_leaves_no_trace(tmp_path: Path) -> None:
    report = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get('COLUMNS'), os.environ.get('TERM'))"
    shown = [
        run_copy("score", "--version", "ü", cwd=folder, before=report, **variables).stdout.decode().splitlines()[0]
        for folder, variables in ((tmp_path, {"COLUMNS": "7", "TERM": "x"}), (Path("/"), {"COLUMNS": None}))
    ]
    assert shown[0] == f"['--version', 'ü'] {tmp_path} 7 x"
    assert shown[1] == f"['--version', 'ü'] / None {os.environ.get('TERM')}"


@pytest.mark.parametrize("command", DEFERRED)
def test_the_modules_that_an_original_imports_early_exist(command: str) -> None:
    assert [name for name in DEFERRED[command] if find_spec(name) is None] == []


@pytest.mark.nightly
def test_a_copy_starts_in_the_state_of_a_fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open files, signals, random numbers, limits, warnings, streams and the rest: nothing is left of other copies."""
    monkeypatch.setenv("OF_THIS_TEST", "ü")
    monkeypatch.chdir(tmp_path)
    modules = [*HEAVY, "nmt_cli.generate", *DEFERRED["generate"]]
    code = f"import importlib\nfor name in {modules}: importlib.import_module(name)\n{STATE}"
    command = [sys.executable, "-c", code, "--version"]
    # Without what readline adds for the processes that Python starts, and what other tests have made nmt set here.
    environment = {name: value for name, value in os.environ.items() if name not in SET_BY_NMT}
    done = subprocess.run(command, input=b"", capture_output=True, check=True, env=environment)
    fresh = json.loads(done.stdout)
    copies = [json.loads(run_copy("generate", "--version", before=STATE).stdout.splitlines()[0]) for _ in range(2)]
    drawn = [state.pop("drawn") for state in (fresh, *copies)]
    for number in range(3):
        assert len({state[number] for state in drawn}) == 3
    for copy in copies:
        assert {name: value for name, value in copy.items() if value != fresh.get(name)} == {}
        assert fresh.keys() - copy.keys() == set()


@pytest.mark.nightly
def test_an_original_hides_nothing_that_its_imports_write() -> None:
    """A copy begins after the imports: what these print, a user sees and a test of a copy does not."""
    modules = [
        *HEAVY,
        *(f"nmt_cli.{command}" for command in DEFERRED),
        *(name for all in DEFERRED.values() for name in all),
    ]
    code = f"import importlib\nfor name in {modules}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout + done.stderr == b""


def test_results_do_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    """Copies of one original share its hash seed, so only copies of two originals can show a dependence on it."""
    lines = "".join(f"{chr(97 + first)} {chr(98 + second)}\n" for first in range(9) for second in range(9))
    (tmp_path / "train.a").write_text(lines, encoding="utf-8")
    (tmp_path / "train.b").write_text(lines[::-1].strip() + "\n", encoding="utf-8")
    line = ["--source-lang", "a", "--target-lang", "b", "--trainpref", "train", "--vocab-size", "24"]
    for seed in "12":
        done = run_copy("preprocess", *line, "--destdir", seed, cwd=tmp_path, PYTHONHASHSEED=seed)
        assert done.returncode == 0, done.stderr
    files = [sorted(path.relative_to(tmp_path / seed) for path in (tmp_path / seed).rglob("*.*")) for seed in "12"]
    assert files[0] == files[1] != []
    different = [
        name for name in files[0] if (tmp_path / "1" / name).read_bytes() != (tmp_path / "2" / name).read_bytes()
    ]
    assert [str(name) for name in different] == ["manifest.json"]  # it names the folder
