"""Every script of ``examples/`` and ``benchmarks/`` starts: its imports exist, and it prints its help."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = sorted(path for folder in ("examples", "benchmarks") for path in (ROOT / folder).glob("**/*.py"))
SHELL_SCRIPTS = sorted((ROOT / "examples").glob("**/*.sh"))
OF_PEERS = (
    "import ctranslate2",
    "from transformers",
    "import lightning",
)  # optional packages; importing them takes seconds

# Import torch once. Then start each script in a fork, and print the status and output of those that fail.
STARTER = """
import contextlib, io, json, os, runpy, sys, traceback
import torch, nmt, nmt.testing.conformance, nmt.training.assemble, nmt.translation  # what scripts import

def start(script, arguments, name):
    sys.argv, sys.path[0] = [script, *arguments], os.path.dirname(script)
    output, status = io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            runpy.run_path(script, run_name=name)
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            status = traceback.format_exc()
    if name == "__main__" and "usage: " not in output.getvalue():
        status = status or "no help"
    return f"{status} {output.getvalue()}" if status else ""

failed = {}
for case in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(start(*case)[-2000:]).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        if (found := json.loads(file.read() or b'"killed"')):
            failed[case[0]] = found
print(json.dumps(failed))
"""


def case(path: Path) -> tuple[str, list[str], str]:
    """Return a script with its arguments and its ``__name__``: a script without a parser of arguments is imported."""
    is_command = "ArgumentParser(" in path.read_text(encoding="utf-8")
    return str(path), ["--help"] * is_command, "__main__" if is_command else "imported"


@pytest.mark.slow
def test_every_python_script_starts() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in SCRIPTS if path.name != "setup.py"}
    cases = [case(path) for path, text in texts.items() if not any(words in text for words in OF_PEERS)]
    done = subprocess.run(
        [sys.executable, "-c", STARTER, json.dumps(cases)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {}
    assert len([name for _, _, name in cases if name == "__main__"]) > 35


def test_every_script_of_other_toolkits_compiles() -> None:
    for path in (ROOT / "benchmarks" / "peers").glob("*.py"):
        compile(path.read_text(encoding="utf-8"), path, "exec")


def test_every_shell_script_can_be_parsed() -> None:
    done = subprocess.run(
        ["bash", "-c", 'for script; do bash -n "$script"; done', "bash", *map(str, SHELL_SCRIPTS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(SHELL_SCRIPTS) > 20 and done.stderr == ""
