"""``nmt COMMAND`` is ``nmt-COMMAND``; ``nmt`` alone shows the commands."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import nmt
from nmt.config.composing.programs import program_of
from nmt_cli.command_line.programs import COMMANDS, word_of
from tests.commands import run_copy


def outcome(command: str, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    done = run_copy(command, *arguments, cwd=cwd, torch=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def umbrella(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    return outcome("umbrella", *arguments, cwd=cwd)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("score", ["--help"]),
        ("average_checkpoints", ["--input", "x"]),
        ("score", ["--sys", "text", "--ref", "text", "--metrics", "exact"]),
        ("score", ["absent", "--ref", "text"]),
        ("doctor", ["--version"]),
    ],
)
def test_a_command_under_nmt_has_the_same_output_messages_and_status(
    command: str, arguments: list[str], tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("a cat\n")
    assert umbrella(word_of(command), *arguments, cwd=tmp_path) == outcome(command, *arguments, cwd=tmp_path)


def test_the_first_page_has_every_command_in_the_order_of_an_experiment(tmp_path: Path) -> None:
    status, page, said = umbrella(cwd=tmp_path)
    places = [page.index(f"\n  {word_of(command)} ") for command in COMMANDS]
    assert (status, said, places) == (0, "", sorted(places))
    assert page.index("\n  preprocess") < page.index("\nexamples\n") < page.index(nmt.DOCUMENTATION)
    assert page.count("\n  nmt ") == 4  # three examples, and a sentence
    assert max(map(len, page.splitlines())) <= 80
    assert umbrella("--help", cwd=tmp_path) == (0, page, "")


@pytest.mark.parametrize("word", ["completion", "man"])
def test_completion_and_man_have_their_own_help(word: str, tmp_path: Path) -> None:
    status, page, said = umbrella(word, "--help", cwd=tmp_path)
    assert (status, said) == (0, "")
    assert page.startswith(f"nmt {word}: ") and f"\nusage: nmt {word} install [" in page
    assert f"\n  nmt {word} install" in page and "train  " not in page
    for words in ([word], [word, "install", "-h"]):
        assert umbrella(*words, cwd=tmp_path) == (0, page, "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "unknown command 'trian' (did you mean 'train'?); nmt --help lists the commands"),
        (["average_checkpoints"], "unknown command 'average_checkpoints' (did you mean 'average-checkpoints'?); nmt"),
        (["--vresion"], "unknown command '--vresion' (did you mean '--version'?); nmt --help lists the commands"),
        (["man", "train"], "nmt man train: give install [FOLDER]; then man nmt-train shows a page"),
        (
            ["completion", "bsh"],
            "nmt completion bsh: give install [SHELL] or bash, zsh, fish (did you mean 'bash'?)",
        ),
    ],
)
def test_a_wrong_word_gets_one_line_and_status_2(words: list[str], message: str, tmp_path: Path) -> None:
    status, out, said = umbrella(*words, cwd=tmp_path)
    assert (status, out, said.count("\n")) == (2, "", 1)
    assert said.startswith(f"nmt: {message}")


def test_version_names_the_distribution_and_what_it_runs_on(tmp_path: Path) -> None:
    status, out, _ = umbrella("--version", cwd=tmp_path)
    assert status == 0 and out.startswith(f"nmt {nmt.__version__}\nPython ")


def test_python_runs_the_package_as_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nmt", "scoer"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nmt: unknown command 'scoer' (did you mean 'score'?)")


def test_the_programs_are_installed_under_both_names() -> None:
    own = metadata.distribution(nmt.DISTRIBUTION).entry_points
    programs = {entry.name: entry.value for entry in own if entry.group == "console_scripts"}
    expected = {program_of(command): f"nmt_cli.start:{command}" for command in COMMANDS}
    assert programs == expected | {"nmt": "nmt_cli.start:umbrella"}
