"""The fault catalogue for the text that nmt-generate and nmt-score are given; the numbers are those of the catalogue."""

from __future__ import annotations

import os
import pty
import random
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.commands import run_copy
from tests.tiny_models import WORDS, in_english, some_lines, write_tiny_model

KNOWN = tuple(word for word in WORDS if word not in ("schnee", "snow"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


def translated(model: Path, stdin: str, *options: str | Path, status: int = 0) -> tuple[list[str], str]:
    """The lines that come out, and what is said."""
    done = run_copy("generate", "--path", model, "--cpu", "--beam", "2", *options, stdin=stdin.encode())
    said = done.stderr.decode()
    assert done.returncode == status and "Traceback" not in said, said
    return done.stdout.decode().split("\n")[:-1], said


def test_fault_6_no_character_of_a_line_ends_a_line_of_the_output(tmp_path: Path) -> None:
    """The dictionary has words with them, which stand in for those that the model does not know."""
    unlearned = write_tiny_model(tmp_path / "model", words=KNOWN)
    breaks = "\u2028\u2029\x85\v\f\x1c"
    (tmp_path / "dictionary").write_bytes(f"schnee snow{breaks}flake\n".encode())
    options = ("--replace-unk", "--unk-dictionary", tmp_path / "dictionary", "--max-source-length", "1")
    lines, _ = translated(unlearned, f"schnee\nrot{breaks}rot\n", *options)
    assert lines[0] == f"snow{' ' * len(breaks)}flake" and len(lines) == len("\n".join(lines).splitlines()) == 2


def test_fault_13_a_line_of_100000_words_is_translated_in_parts_and_named(model: Path) -> None:
    long = "rot " * 100_000
    lines, said = translated(model, f"rot\n{long}\nein mann\n", "--max-len-a", "0", "--max-len-b", "3", "--beam", "1")
    assert len(lines) == 3 and (lines[0], lines[2]) == ("red", "a man") and lines[1].startswith("red")
    assert "line 2 has 100000 tokens; it is translated in 98 parts" in said


def test_fault_15_words_that_spell_a_special_are_words(model: Path) -> None:
    lines, _ = translated(model, "</s>\nrot </s> rot\n<pad>\n<s>\n", "--format", "jsonl")
    assert len(lines) == 4


def test_fault_16_a_lone_surrogate_written_in_json_is_bad_data(model: Path) -> None:
    given = '{"text": "rot"}\n{"text": "ro\\udcfft"}\n'
    _, said = translated(model, given, "--input-format", "jsonl", status=65)
    assert "U+DCFF" in said.splitlines()[-1] and "2" in said.splitlines()[-1]


@pytest.mark.parametrize("command", ["generate", "score"])
def test_fault_20_an_input_that_is_closed_is_an_empty_one(command: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "ref").write_text("a\n")
    given = f"--path {model} --cpu" if command == "generate" else "--ref ref"
    line = f"{sys.executable} -m nmt_cli.{command} {given} <&-"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, check=False)
    said = done.stderr.decode()
    if command == "generate":
        assert (done.returncode, done.stdout) == (0, b""), said
    else:
        assert (done.returncode, done.stdout) == (65, b"") and "standard input has 0 lines, ref has 1" in said


def test_fault_20_at_a_terminal_it_is_said_how_to_end(model: Path) -> None:
    terminal, inside = pty.openpty()
    modes = termios.tcgetattr(inside)
    modes[3] &= ~termios.ECHO  # nobody reads what the terminal would repeat
    termios.tcsetattr(inside, termios.TCSANOW, modes)
    line = [sys.executable, "-m", "nmt_cli.generate", "--path", str(model), "--cpu", "--progress", "none"]
    with subprocess.Popen(line, stdin=inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(inside)
        os.write(terminal, b"rot\n\x04")  # Ctrl-D
        try:
            lines, said = process.communicate(timeout=120)
        finally:
            process.kill()
    os.close(terminal)
    assert (process.returncode, lines) == (0, "red\n"), said
    assert "reading from the terminal, one sentence a line; end with Ctrl-D" in said


def test_fault_84_lines_in_another_order_have_their_translations_in_that_order(model: Path) -> None:
    lines = some_lines(40, seed=5)
    shuffled = random.Random(1).sample(lines, len(lines))
    options = ("--max-tokens", "40", "--buffer-size", "40")
    one, _ = translated(model, "".join(f"{line}\n" for line in lines), *options)
    other, _ = translated(model, "".join(f"{line}\n" for line in shuffled), *options)
    assert dict(zip(lines, one)) == dict(zip(shuffled, other))
    assert one == [in_english(line) for line in lines]


def test_faults_2_and_3_bytes_that_are_no_text_are_named_when_scoring(tmp_path: Path) -> None:
    (tmp_path / "ref").write_bytes(b"a\nb\n")
    for content, said in (
        (b"a\n\xff\n", "hyp:2:0: byte 0xff is not UTF-8"),
        (b"a\0\nb\n", "hyp:1:1: byte 0x00 is NUL"),
    ):
        (tmp_path / "hyp").write_bytes(content)
        done = run_copy("score", "--sys", "hyp", "--ref", "ref", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (65, b"")
        assert done.stderr.decode().startswith(f"nmt-score: {said}") and done.stderr.count(b"\n") == 1
