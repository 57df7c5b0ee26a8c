"""Signals that reach a command before it has begun its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.config.composing.programs import program_of
from nmt_cli.command_line.programs import COMMANDS

STRIKE = """
import os, sys

class Strike:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Strike())
"""
SCRIPT = """
sys.argv[0] = {program!r}
from nmt_cli.start import {command}
{command}()
"""


def struck(command: str, module: str, number: signal.Signals, folder: Path, *arguments: str) -> tuple[int, str]:
    """Status and complaint of a console script that gets a signal when it first asks for ``module``."""
    script = SCRIPT.format(command=command, program=program_of(command))
    return ended(["-c", STRIKE.format(module=module, number=int(number)) + script, *arguments], folder)


def ended(words: list[str], folder: Path, **environment: str) -> tuple[int, str]:
    """Status and complaint of Python, which writes nothing else."""
    surroundings = {**os.environ, **environment}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=surroundings, capture_output=True, text=True)
    assert done.stdout == "" and list(folder.iterdir()) == []
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_sigterm_while_a_command_imports_its_modules_ends_it_with_75(command: str, tmp_path: Path) -> None:
    line = f"{program_of(command)}: stopped by SIGTERM before the end; run the same command again\n"
    assert struck(command, "nmt_cli.launch", signal.SIGTERM, tmp_path) == (75, line)


@pytest.mark.parametrize("module", ["nmt.config.sections", "nmt_cli.launch"])
@pytest.mark.parametrize("command", ["train", "generate"])
def test_sigterm_ends_a_module_of_python_like_the_console_script(command: str, module: str, tmp_path: Path) -> None:
    """As torchrun starts it. Python imports ``sitecustomize`` before anything else."""
    (folder := tmp_path / "first").mkdir()
    (folder / "sitecustomize.py").write_text(STRIKE.format(module=module, number=int(signal.SIGTERM)))
    (here := tmp_path / "here").mkdir()
    line = f"{command}.py: stopped by SIGTERM before the end; run the same command again\n"
    assert ended(["-m", f"nmt_cli.{command}"], here, PYTHONPATH=str(folder)) == (75, line)


@pytest.mark.parametrize(
    ("number", "status", "says"),
    [
        (signal.SIGTERM, 75, "stopped by SIGTERM"),
        (signal.SIGUSR1, 75, "stopped by SIGUSR1"),
        (signal.SIGINT, 130, "interrupted"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.parametrize("module", ["omegaconf", "hydra.core.plugins", "torch"])
def test_any_signal_before_training_begins_has_its_status(
    module: str, number: signal.Signals, status: int, says: str, tmp_path: Path
) -> None:
    ended, said = struck("train", module, number, tmp_path, "--help" if module == "omegaconf" else ".")
    *_, last = said.splitlines()  # with torch comes a line that says what is going to be trained
    assert ended == status and "Traceback" not in said, said
    assert last.startswith(f"nmt-train: {says}")


def test_a_command_under_nmt_handles_signals_as_early(tmp_path: Path) -> None:
    line = "nmt-train: stopped by SIGTERM before the end; run the same command again\n"
    assert struck("umbrella", "nmt_cli.launch", signal.SIGTERM, tmp_path, "train", ".") == (75, line)
