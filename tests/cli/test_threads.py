"""Threads of the commands: how idle ones wait, and how many there are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nmt_cli.preprocess
import nmt_cli.train  # noqa: F401 - both register the components of their options
from nmt.config.option import flags_of
from nmt.threads import SPIN_COUNT, WAIT_VARIABLES
from nmt_cli.command_line.programs import COMMANDS, options_class
from tests.commands import run_copy
from tests.tiny_models import in_english, write_tiny_model

ROOT = Path(__file__).resolve().parents[2]
COMPUTING = {"train", "generate", "serve", "visualize", "align", "average_checkpoints", "export", "doctor"}
REPORT = "import sys, torch; torch.set_num_threads = lambda count: print(f'torch gets {count}', file=sys.stderr)"


def spin_count_read(module: str, **environment: str) -> str | None:
    """The spin count that torch's OpenMP runtime takes if ``module`` is imported before torch; None: no GNU runtime."""
    bare = {name: value for name, value in os.environ.items() if name not in WAIT_VARIABLES}
    command = [sys.executable, "-c", f"import {module}, torch"]
    given = bare | {"OMP_DISPLAY_ENV": "verbose"} | environment
    done = subprocess.run(command, env=given, cwd=ROOT, check=True, capture_output=True, text=True)
    counts = [line.split("'")[1] for line in done.stderr.splitlines() if "GOMP_SPINCOUNT" in line]
    assert len(set(counts)) <= 1, "the runtimes of torch and sentencepiece read the same"
    return counts[0] if counts else None


@pytest.mark.parametrize("command", ["train", "align"])
def test_a_command_limits_spinning_before_openmp_is_loaded(command: str) -> None:
    found = spin_count_read(f"nmt_cli.{command}")
    if found is None:
        pytest.skip("torch is built with another OpenMP runtime than GNU's")
    assert found == str(SPIN_COUNT)


def test_a_spin_count_of_the_user_stays() -> None:
    assert spin_count_read("nmt_cli.train", GOMP_SPINCOUNT="77") in (None, "77")  # None: no GNU runtime


def test_importing_the_library_changes_no_variable() -> None:
    bare = {name: value for name, value in os.environ.items() if name not in WAIT_VARIABLES}
    code = "import os; before = dict(os.environ); import nmt, nmt.devices; nmt.load; assert before == dict(os.environ)"
    subprocess.run([sys.executable, "-c", code], env=bare, cwd=ROOT, check=True)


def test_every_command_that_computes_takes_a_number_of_threads() -> None:
    having = {
        command
        for command, config in ((command, options_class(command)) for command in COMMANDS)
        if any(flag.name == "--threads" for flag in flags_of(config))
    }
    assert having == COMPUTING


@pytest.mark.parametrize("command", sorted(COMPUTING))
def test_more_threads_than_any_processor_has_cores_for_are_refused(command: str) -> None:
    done = run_copy(command, "--threads", "4097")
    assert done.returncode == 2
    assert "threads=4097 is more than 4096; omit it for one per core (--threads)" in done.stderr.decode()


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("align", ("--path", "model", "--src", "text.de", "--ref", "text.en")),
        ("visualize", ("--path", "model", "--input", "text.de", "--output", "attention.svg")),
        ("visualize", ("--path", "model", "--positions", "--output", "positions.svg")),
        ("visualize", ("--path", "model", "--embeddings", "--output", "embeddings.svg")),
        ("average_checkpoints", ("--inputs", "model", "--output", "mean", "--no-validate")),
        ("export", ("--path", "model", "--format", "safetensors", "--output", "exported", "--sentences", "2")),
        ("generate", ("--path", "model", "--input", "text.de", "--engine", "torch", "--workers", "1")),
    ],
)
def test_torch_computes_with_the_threads_that_were_asked_for(
    command: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    write_tiny_model(tmp_path / "model", model="transformer", updates=20)
    (tmp_path / "text.de").write_text("ein mann\n", encoding="utf-8")
    (tmp_path / "text.en").write_text(f"{in_english('ein mann')}\n", encoding="utf-8")
    done = run_copy(command, *options, "--threads", "3", cwd=tmp_path, before=REPORT)
    assert done.returncode == 0, done.stderr.decode()
    assert "torch gets 3" in done.stderr.decode()
