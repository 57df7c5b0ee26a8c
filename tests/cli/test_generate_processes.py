"""nmt-generate in several processes, after a kill, and in a dialogue."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from nmt import Translator
from tests.commands import run_copy, start_copy
from tests.distributed.processes import finish, start_two
from tests.tiny_models import in_english, some_lines, write_tiny_model

LINES = some_lines(200, seed=9, longest=5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


@pytest.fixture(scope="module")
def expected(model: Path) -> str:
    return "".join(f"{line}\n" for line in Translator.load(model, device="cpu").translate(LINES))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", ["one process", "workers", "reranked"])
def test_lines_through_a_pipe_are_answered_one_by_one(model: Path, tmp_path: Path, case: str) -> None:
    """Like a coprocess of a shell: the next line is written when the last one is answered."""
    options = ["--path", str(model), "--progress", "none"]
    if case == "workers":
        options += ["--workers", "2", "--batch-size", "1"]
    if case == "reranked":
        options += ["--rerank", str(write_tiny_model(tmp_path / "back", reverse=True)), "--workers", "2"]
    process = start_copy("generate", *options)
    for lines in ([""], ["ein mann"], ["rot", "", "zwei hunde", "schnee"], ["rot"], [""]):
        process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        process.stdin.flush()
        for line in lines:
            assert process.stdout.readline().decode() == (f"{in_english(line)}\n" if line else "\n")
    process.communicate(timeout=60)
    assert process.wait() == 0


def test_a_typed_line_is_answered_before_the_next_is_typed(model: Path) -> None:
    """At a terminal, where the end of the input is a key."""
    terminal, inside = pty.openpty()
    switch_echo_off(inside)
    command = [sys.executable, "-m", "nmt_cli.generate", "--path", str(model), "--progress", "none", "--workers", "2"]
    with subprocess.Popen(command, stdin=inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(inside)
        assert process.stdout is not None and process.stderr is not None
        for line in ("ein mann", "", "zwei hunde"):
            os.write(terminal, f"{line}\n".encode())
            assert process.stdout.readline() == (f"{in_english(line)}\n" if line else "\n")
        os.write(terminal, b"\x04")  # Ctrl-D
        assert process.wait(timeout=60) == 0
        assert "reading from the terminal, one sentence a line; end with Ctrl-D" in process.stderr.read()
    os.close(terminal)


def switch_echo_off(terminal: int) -> None:
    """Nobody reads what the terminal would repeat."""
    modes = termios.tcgetattr(terminal)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def test_several_workers_write_what_one_does(model: Path, source: Path, tmp_path: Path, expected: str) -> None:
    output = tmp_path / "out"
    options = ["--workers", "3", "--batch-size", "7", "--buffer-size", "50", "--progress", "none"]
    run_copy("generate", "--path", model, "--input", source, "--output", output, *options).check_returncode()
    assert output.read_text(encoding="utf-8") == expected


def test_two_ranks_write_what_one_process_does(model: Path, source: Path, tmp_path: Path, expected: str) -> None:
    options = ["--path", model, "--input", source, "--device", "cpu", "--format", "jsonl", "--nbest", "2"]
    one = ["--output", tmp_path / "one", "--workers", "1", "--progress", "none"]
    run_copy("generate", *options, *one).check_returncode()
    ranks = start_two(*options, "--output", tmp_path / "two", "--buffer-size", "30", command="generate")
    status, log = finish(ranks)
    assert status == 0 and "translated 200 of 200 lines" in log, log
    pairs = list(zip(*(hypotheses(tmp_path / name) for name in ("one", "two")), strict=True))
    assert [ours[0]["text"] for _, ours in pairs] == expected.splitlines()
    for theirs, ours in pairs:
        assert [one["tokens"] for one in ours] == [one["tokens"] for one in theirs]
        assert [one["score"] for one in ours] == pytest.approx([one["score"] for one in theirs], abs=1e-4)


def test_two_ranks_have_no_standard_input_to_share(model: Path) -> None:
    status, log = finish(start_two("--path", model, command="generate"))
    assert status != 0 and "cannot share standard input; name a file: --input FILE" in log


def hypotheses(path: Path) -> list[list[dict[str, Any]]]:
    return [json.loads(line)["hypotheses"] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("form", "workers", "others"),
    [
        ("jsonl", 1, 1),
        ("text", 3, 3),
        pytest.param("text", 1, 1, marks=pytest.mark.nightly),
        pytest.param("fairseq", 1, 1, marks=pytest.mark.nightly),
        pytest.param("text", 2, "two ranks", marks=pytest.mark.nightly),
    ],
)
def test_an_output_goes_on_after_a_kill(
    model: Path, source: Path, tmp_path: Path, form: str, workers: int, others: int | str
) -> None:
    """``others``: the workers that go on with it, or two ranks."""
    whole, output = tmp_path / "whole", tmp_path / "out"
    options = ["--path", model, "--input", source, "--format", form, "--nbest", "2", "--batch-size", "1"]
    options += ["--buffer-size", "5", "--progress", "none"]
    run_copy("generate", *options, "--workers", "1", "--output", whole).check_returncode()
    options += ["--output", output, "--resume-output"]
    process = start_copy("generate", *options, "--workers", str(workers))
    _wait_for(tmp_path / "out.partial", 2000)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert not output.exists()
    if others == "two ranks":
        status, log = finish(start_two(*options, command="generate"))
    else:
        status, log = finish([start_copy("generate", *options, "--workers", str(others))])
    assert status == 0 and "resuming after " in log, log
    assert output.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source", "whole"]


def _wait_for(path: Path, size: int) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or path.stat().st_size < size:
        assert time.monotonic() < deadline
        time.sleep(0.005)
