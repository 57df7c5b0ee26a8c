"""Completion in real shells: keys are pressed in bash and zsh on a terminal, and fish is asked what it would offer."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt.errors import OutputError, UsageError
from nmt_cli.shell.completion import PLACES, complete, script
from tests.shells import Shell

LONGEST_ANSWER = 0.2  # seconds
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")

Candidates = Callable[[str], list[str]]

# A line, and the words that complete its last word.
CASES: list[tuple[str, list[str]]] = [
    ("nmt tr", ["train"]),
    ("nmt average", ["average-checkpoints"]),
    ("nmt train --ar", ["--arch"]),
    ("nmt completion i", ["install"]),
    ("nmt train --help opti", ["optimizer", "options"]),
    ("nmt man i", ["install"]),
    ("nmt-generate --be", ["--beam", "--beam-patience"]),
    ("nmt-train --arch transformer_ti", ["transformer_tiny"]),
    ("nmt-train --arch=gnmt_", ["--arch=gnmt_4", "--arch=gnmt_tiny", "--arch=gnmt_wmt"]),
    ("nmt-train data-bin/x recipe=vaswani_big", ["recipe=vaswani_big", "recipe=vaswani_big_en_fr"]),
    ("nmt-train optimi", ["optimizer.", "optimizer="]),
    ("nmt-train model.d_", ["model.d_ff=", "model.d_k=", "model.d_model=", "model.d_v="]),
    ("nmt-train dry_run=", ["dry_run=false", "dry_run=true"]),
    ("nmt-train --no-async", ["--no-async-checkpoints"]),
    ("nmt-train --lr 0.1 model=transformer_ti", ["model=transformer_tiny"]),
    ("nmt-train --compile la", ["layers"]),
    ("nmt-train --cfg j", ["job"]),
    ("nmt-train --save-dir ru", ["runs/"]),
    ("nmt-train --save-dir=ru", ["--save-dir=runs/"]),
    ("nmt-train checkpoint.save_dir=ru", ["checkpoint.save_dir=runs/"]),
    ("nmt-train ru", ["runs/"]),
    ("nmt-train --lr ", []),
    ("nmt-train --source", ["--source-embeddings"]),
    ("nmt-score --metrics bleu,te", ["bleu,ter"]),
    ("nmt-average-checkpoints --inputs runs/a ru", ["runs/"]),
    ("nmt-export ru", []),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a run, and the scripts of all shells."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "runs" / "a").mkdir(parents=True)
    for shell in PLACES:
        (folder.parent / f"{folder.name}.{shell}").write_text(script(shell), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=[*PLACES])
def candidates(folder: Path, request: pytest.FixtureRequest) -> Iterator[Candidates]:
    """What a shell offers for a line."""
    name = require(request.param)
    file = folder.parent / f"{folder.name}.{name}"
    if name == "fish":
        yield lambda line: offers_of_fish(file, folder, line)
        return
    with Shell(name, folder, f"source {file}") as shell:
        yield lambda line: [word + "/" * (word.endswith("runs")) for word in shell.candidates(line)]


def require(shell: str) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    return shell


def offers_of_fish(file: Path, folder: Path, line: str) -> list[str]:
    command = ["fish", "--no-config", "-c", f"source {file}; complete -C '{line}'"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return [offer.partition("\t")[0] for offer in done.stdout.splitlines()]


@pytest.mark.parametrize(("line", "words"), CASES, ids=[case[0] for case in CASES])
def test_a_word_is_completed(candidates: Candidates, line: str, words: list[str]) -> None:
    found = candidates(line)
    last = line.rpartition(" ")[2]
    start = last[: last.rfind("=") + 1]  # readline inserts it once
    assert sorted({word if word.startswith(start) else start + word for word in found}) == words


def test_a_key_press_completes_the_word_and_adds_a_space_only_after_whole_words(folder: Path) -> None:
    for name in filter(shutil.which, ("bash", "zsh")):
        with Shell(name, folder, f"source {folder.parent / folder.name}.{name}") as shell:
            assert shell.completed("nmt tra") == "nmt train "
            assert shell.completed("nmt-train model=transformer_bi") == "nmt-train model=transformer_big "
            assert shell.completed("nmt-train model.d_mo") == "nmt-train model.d_model="
            assert shell.completed("echo 'x' | nmt-generate --output-f") == "echo 'x' | nmt-generate --output-f"
            assert shell.completed("cd runs && nmt-score --met") == "cd runs && nmt-score --metrics "


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_an_answer_takes_less_than_a_fifth_of_a_second(folder: Path, name: str) -> None:
    with Shell(require(name), folder, f"source {folder.parent / folder.name}.{name}") as shell:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            shell.completed("nmt-train model.d_mo")
            times.append(time.perf_counter() - start)
    assert min(times) < LONGEST_ANSWER


def test_fish_answers_in_less_than_a_fifth_of_a_second_and_shows_meanings(folder: Path) -> None:
    file = folder.parent / f"{folder.name}.fish"
    asking = "for i in (seq 10); complete -C 'nmt-train --arch'; end"
    times = []
    for code in ("", asking):
        start = time.perf_counter()
        command = [require("fish"), "--no-config", "-c", f"source {file}; {code}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
    assert (times[1] - times[0]) / 10 < LONGEST_ANSWER
    assert done.stdout.splitlines()[0] == "--arch\tModel architecture"


def test_zsh_shows_meanings(folder: Path) -> None:
    with Shell(require("zsh"), folder, f"source {folder.parent / folder.name}.zsh") as shell:
        assert re.search(r"--max-update +-- Maximum number of updates", shell.shown("nmt-train --max-"))


# --- installing ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_bash_loads_the_installed_script_for_each_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not BASH_COMPLETION.exists():
        pytest.skip("bash-completion is not installed")
    (home / ".bashrc").write_text(f"source {BASH_COMPLETION}\n")
    complete(["install", "bash"])
    file = home / ".local/share/bash-completion/completions/nmt"
    assert capsys.readouterr().out.startswith(f"{file}: written; start a new shell to use it\n")
    with Shell("bash", home, f"source {BASH_COMPLETION}") as shell:
        assert shell.completed("nmt-train --arc") == "nmt-train --arch "
        assert shell.completed("nmt gener") == "nmt generate "


def test_without_bash_completion_the_line_for_the_startup_file_is_told(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/bin/bash")
    complete(["install"])
    *_, advice, line = capsys.readouterr().out.splitlines()
    assert advice == "If the Tab key does not complete there, add to ~/.bashrc:"
    with Shell("bash", home, line) as shell:
        assert shell.completed("nmt-train --arc") == "nmt-train --arch "


def test_zsh_finds_the_installed_script_with_the_line_that_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require("zsh")
    complete(["install", "zsh"])
    line = capsys.readouterr().out.splitlines()[-1]
    with Shell("zsh", home, line.replace("compinit", "compinit -u")) as shell:
        assert shell.completed("nmt-train --arc") == "nmt-train --arch "


def test_fish_finds_the_installed_script_of_each_command(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require("fish")
    complete(["install", "fish"])
    for program in ("nmt", "nmt-train"):  # fish completes programs that it finds
        (home / program).write_text("#!/bin/sh\n")
        (home / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:{os.environ['PATH']}")
    for line, word in (("nmt-train --arc", "--arch"), ("nmt gener", "generate")):
        done = subprocess.run(["fish", "-c", f"complete -C '{line}'"], capture_output=True, text=True, check=True)
        assert done.stdout.startswith(f"{word}\t"), done.stderr


def test_a_file_of_another_program_is_not_replaced(home: Path) -> None:
    other = home / ".config/fish/completions/nmt-score.fish"
    other.parent.mkdir(parents=True)
    other.write_text("complete -c nmt-score\n")
    with pytest.raises(OutputError, match="nmt-score.fish is not a file of nmt; remove it"):
        complete(["install", "fish"])
    assert [*other.parent.iterdir()] == [other] and other.read_text() == "complete -c nmt-score\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "nmt completion: give install [SHELL] or bash, zsh, fish"),
        (["instal"], "did you mean 'install'?"),
        (["install", "tcsh"], "completion is for bash, zsh, fish, not for 'tcsh'"),
        (["install"], "completion is for bash, zsh, fish, not for 'nushell'"),
    ],
)
def test_other_words_are_refused(words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/usr/bin/nushell")
    with pytest.raises(UsageError) as refusal:
        complete(words)
    assert message in str(refusal.value)
