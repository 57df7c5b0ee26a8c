"""Stages of made-up commands: what is done once, what again and why, and what is left when one is stopped."""

from __future__ import annotations

import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nmt.errors import DataError, NMTError, OutputError, UsageError
from nmt.pipelines.commands import Command, words_of
from nmt.pipelines.stages import Pipeline, PipelineStage, Standing
from nmt_cli.process import say

NOTE = "echo {name} >> {told}"


def shell(line: str) -> Any:
    return Command(("sh", "-c", line))


class Made:
    """Stages a, b, c, in which b reads a and a file from elsewhere, and c reads b; each notes that it ran."""

    def __init__(self, folder: Path) -> None:
        self.output, self.told, self.given = folder / "output", folder / "told", folder / "given"
        self.options = {"a": "1", "b": "1", "c": "1"}
        self.given.write_text("text\n")

    def pipeline(self) -> Any:
        lines = {
            "a": ["echo {option} > made"],
            "b": ["cat ../a/made > made; echo {option} >> made", "cat $0 >> made"],
            "c": ["cat ../b/made > made"],
        }
        made, before = [], None
        for name, commands in lines.items():
            commands = [line.format(option=self.options[name]) for line in commands]
            commands.append(NOTE.format(name=name, told=self.told))
            if name == "c":  # options of the last stage are in a word of their own
                commands[0] += f" # {self.options[name]}"
            words = [Command(("sh", "-c", line, str(self.given))) for line in commands]
            outside = {str(self.given): [self.given]} if name == "b" else {}
            if name != "b":
                words = [shell(line) for line in commands]
            made.append(PipelineStage(name, tuple(words), (before,) if before else (), outside))
            before = name
        return Pipeline(self.output, made, say)

    def run(self, *names: str, until: str = "c") -> list[str]:
        """The stages that ran: those of these names alone, or ``until`` and all that it needs."""
        self.told.unlink(missing_ok=True)
        pipeline = self.pipeline()
        pipeline.run([pipeline.stages[name] for name in names] or pipeline.until(until))
        return self.told.read_text().split() if self.told.exists() else []

    def states(self) -> dict[str, str]:
        pipeline = self.pipeline()
        return {name: str(pipeline.state(stage)) for name, stage in pipeline.stages.items()}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_a_finished_stage_is_passed_over(made: Made) -> None:
    assert made.states() == dict.fromkeys("abc", "to do")
    assert made.run() == ["a", "b", "c"]
    assert (made.output / "c" / "made").read_text() == "1\n1\ntext\n"
    assert made.states() == dict.fromkeys("abc", "done")
    assert made.run() == []


def test_an_option_that_changed_is_named_and_all_that_depends_on_it_is_done_again(made: Made) -> None:
    made.run()
    made.options["b"] = "2"
    states = made.states()
    assert states["a"] == "done" and states["c"] == "stale (b changed)"
    assert states["b"].startswith("stale (sh changed: ") and "echo 1" in states["b"] and "echo 2" in states["b"]
    assert made.run() == ["b", "c"]
    assert (made.output / "c" / "made").read_text() == "1\n2\ntext\n"
    assert sorted(path.name for path in made.output.iterdir()) == [".lock", "a", "b", "c"]
    made.options["b"] = "1"  # back again: what was made is not kept
    assert made.run() == ["b", "c"]


def test_the_last_stage_alone_is_done_again_for_its_own_option(made: Made) -> None:
    made.run()
    made.options["c"] = "2"
    assert made.run() == ["c"]


def test_a_file_from_elsewhere_counts_by_its_content(made: Made, tmp_path: Path) -> None:
    made.run()
    made.given = made.given.rename(tmp_path / "moved")
    assert made.run() == []
    made.given.write_text("other text\n")
    assert made.run() == ["b", "c"]
    assert (made.output / "c" / "made").read_text() == "1\n1\nother text\n"


def test_a_folder_of_stages_can_be_moved(made: Made, tmp_path: Path) -> None:
    made.run()
    made.output = made.output.rename(tmp_path / "elsewhere")
    assert made.run() == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("1")])
def test_an_output_that_is_not_as_it_was_written_is_made_again(made: Made, damage: Any) -> None:
    made.run()
    damage(made.output / "b" / "made")
    assert made.states()["b"] == "stale (made changed after the stage wrote it)"
    assert made.run() == ["b"]  # of the same things, so that c stays as it is


def test_what_reads_a_stage_that_came_out_otherwise_is_made_again(tmp_path: Path) -> None:
    outside, told, output = tmp_path / "outside", tmp_path / "told", tmp_path / "output"
    a = PipelineStage("a", (shell(f"cat {outside} > made"),))
    b = PipelineStage("b", (shell(f"cat ../a/made >> {told}"), shell(f"test -e {tmp_path / 'may'}")), ("a",))
    made = Pipeline(output, [a, b], say)

    def again(text: str) -> None:
        outside.write_text(text)
        shutil.rmtree(output / "a", ignore_errors=True)
        made.run([a])

    again("1\n")
    with pytest.raises(NMTError):
        made.run([b])
    assert str(made.state(b)) == "begun"
    again("2\n")
    assert str(made.state(b)) == "to do"  # what was begun read something else
    (tmp_path / "may").touch()
    made.run([b])
    again("2\n")
    assert str(made.state(b)) == "done"
    again("3\n")
    assert str(made.state(b)) == "stale (a was made again)"
    made.run([*made.stages.values()])
    assert told.read_text() == "1\n2\n3\n"


@pytest.mark.parametrize("name", ["a", "a.partial"])
@pytest.mark.parametrize("file", [False, True])
def test_a_folder_that_no_stage_made_is_left_alone(made: Made, name: str, file: bool) -> None:
    made.output.mkdir()
    precious = made.output / name if file else made.output / name / "precious"
    precious.parent.mkdir(exist_ok=True)
    precious.write_text("years of work")
    with pytest.raises(OutputError, match=f"{name} exists, but no stage of this pipeline made it; move it, or"):
        made.run()
    assert precious.read_text() == "years of work"


def test_a_removal_that_was_cut_short_is_finished(made: Made) -> None:
    made.run()
    old = made.output / ".a.old"
    (old / "made").mkdir(parents=True)
    made.options["a"] = "2"
    made.run()
    assert not old.exists() and (made.output / "a" / "made").read_text() == "2\n"


@pytest.mark.parametrize("damage", ["{}", "[]"])
def test_a_damaged_stamp_is_named(made: Made, damage: str) -> None:
    made.run()
    (made.output / "b" / "stage.json").write_text(damage)
    with pytest.raises(DataError, match=r"b/stage.json is damaged; delete its folder to run the stage again"):
        made.run()


def test_stages_are_chosen_by_name_or_up_to_one(made: Made) -> None:
    assert made.run(until="b") == ["a", "b"]
    made.options["a"] = "2"
    with pytest.raises(UsageError, match=r"c needs b, whose state is: stale \(a changed\); run that stage too"):
        made.run("c")
    with pytest.raises(UsageError, match=r"there is no stage 'd'.*; there are: a, b, c"):
        made.run(until="d")
    assert made.run("a") == ["a"]
    assert made.run("b", "c") == ["b", "c"]


def test_a_failed_command_leaves_its_message_and_its_status_and_the_next_start_goes_on_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told, mended = tmp_path / "told", tmp_path / "mended"
    commands = (
        shell(f"echo first >> {told}"),
        shell(f"echo news >&2; echo sh: a reason >&2; test -e {mended} || exit 65"),
        Command(("echo", "result"), "result"),
    )
    made = PipelineStage("made", commands)

    def run() -> None:
        pipeline = Pipeline(tmp_path / "output", [made], say)
        pipeline.run([*pipeline.stages.values()])

    with pytest.raises(NMTError, match=r"made failed: sh ended with status 65: sh: a reason \(") as caught:
        run()
    assert caught.value.exit_status == 65 and "a reason" in capfd.readouterr().err
    pipeline = Pipeline(tmp_path / "output", [made], say)
    assert pipeline.state(made).standing is Standing.begun and not (tmp_path / "output" / "made").exists()
    mended.touch()
    run()
    assert told.read_text() == "first\n"  # not twice
    assert (tmp_path / "output" / "made" / "result").read_text() == "result\n"
    log = (tmp_path / "output" / "made" / "log").read_text()
    assert log.count("\nsh: a reason\n") == 2 and "$ echo result > result" in log


def test_what_was_begun_with_other_options_is_begun_afresh(tmp_path: Path) -> None:
    def run(option: str) -> Any:
        made = PipelineStage("made", (shell(f"touch {option}"), shell(f"test {option} = good")))
        pipeline = Pipeline(tmp_path, [made], say)
        pipeline.run([*pipeline.stages.values()])

    with pytest.raises(NMTError):
        run("bad")
    run("good")
    assert {path.name for path in (tmp_path / "made").iterdir()} == {"good", "log", "stage.json"}


def test_what_replaces_a_stale_folder_goes_on_too_and_the_folder_stays_until_it_is_whole(tmp_path: Path) -> None:
    def pipeline(option: str) -> Any:
        commands = (shell(f"echo {option} > made"), shell(f"test {option} = 1 -o -e {tmp_path / 'mended'}"))
        return Pipeline(tmp_path, [PipelineStage("made", commands)], say)

    def state(option: str) -> str:
        made = pipeline(option)
        return str(made.state(made.stages["made"]))

    pipeline("1").run([*pipeline("1").stages.values()])
    with pytest.raises(NMTError):
        pipeline("2").run([*pipeline("2").stages.values()])
    assert (state("1"), state("2")) == ("done", "begun")
    assert (tmp_path / "made" / "made").read_text() == "1\n"
    (tmp_path / "mended").touch()
    pipeline("2").run([*pipeline("2").stages.values()])
    assert state("2") == "done" and (tmp_path / "made" / "made").read_text() == "2\n"


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, [PipelineStage("made", (Command(("no-such-program",)),))], say)
    with pytest.raises(NMTError, match="made cannot start no-such-program: No such file"):
        pipeline.run([*pipeline.stages.values()])


@pytest.mark.parametrize("stale", [False, True])
def test_stopped_before_a_whole_folder_has_its_name_it_gets_it_at_the_next_start(made: Made, stale: bool) -> None:
    made.run()
    if stale:  # what is replaced stands there still
        made.options["a"] = "2"
        (made.output / "a").rename(made.output / "before")
        made.run("a")
    (made.output / "a").rename(made.output / "a.partial")
    if stale:
        (made.output / "before").rename(made.output / "a")
    assert made.states()["a"] == "done"
    assert "a" not in made.run()
    assert (made.output / "a" / "made").read_text() == ("2\n" if stale else "1\n")
    assert not (made.output / "a.partial").exists() and not (made.output / ".a.old").exists()


DRIVER = """
import signal, sys
from pathlib import Path
from nmt.pipelines.commands import Command
from nmt.pipelines.stages import Pipeline, PipelineStage
from nmt_cli.process import Terminated, cleaning_up_on_sigterm, say

signal.signal(signal.SIGINT, signal.default_int_handler)
{early}
def shell(line):
    return Command(("sh", "-c", line))

# The second command says where it runs, and ends when it is told to, or when it may.
slow = 'echo $$ > ../pid; trap "echo saved > saved; exit 75" TERM; while ! test -e ../may_end; do sleep 0.05; done'
pipeline = Pipeline(Path(sys.argv[1]), [PipelineStage("made", (shell("echo first >> ../told"), shell(slow)))], say)
try:
    with cleaning_up_on_sigterm():
        pipeline.run([*pipeline.stages.values()])
except KeyboardInterrupt as interrupt:
    sys.exit(143 if isinstance(interrupt, Terminated) else 130)
"""


# A signal comes when the second command runs and before its start has returned.
EARLY = """
import subprocess, time
from pathlib import Path
class Popen(subprocess.Popen):
    def __init__(self, *words, **options):
        super().__init__(*words, **options)
        if "trap" in words[0][2]:
            while not (Path(sys.argv[1]) / "pid").exists():
                time.sleep(0.001)
            signal.raise_signal({number})
subprocess.Popen = Popen
"""


def start(output: Path, early: str = "") -> subprocess.Popen[str]:
    code = DRIVER.format(early=early)
    return subprocess.Popen([sys.executable, "-c", code, str(output)], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_being_started_is_asked_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, EARLY.format(number=int(number)))
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert (tmp_path / "made.partial" / "saved").exists()


def number_of_the_slow_command(output: Path) -> int:
    for _ in range(600):
        if (output / "pid").exists() and (text := (output / "pid").read_text().strip()):
            return int(text)
        time.sleep(0.05)
    raise AssertionError("the second command never began")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_stopped_at_any_time_it_goes_on_where_it_stopped(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path)
    slow = number_of_the_slow_command(tmp_path)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == (-9 if number is signal.SIGKILL else 128 + number)
    while Path(f"/proc/{slow}").exists() and Path(f"/proc/{slow}/stat").read_text().split()[2] != "Z":
        time.sleep(0.05)
    assert (tmp_path / "made.partial" / "saved").exists()  # the command was asked to stop, and could save
    assert not (tmp_path / "made").exists()
    assert json.loads((tmp_path / "made.partial" / "begun.json").read_text())["ended"] == 1
    (tmp_path / "may_end").touch()
    process = start(tmp_path)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0 and "made: resumes" in said
    assert (tmp_path / "told").read_text() == "first\n"
    assert (tmp_path / "made" / "stage.json").exists()


def test_two_pipelines_do_not_work_in_one_folder(made: Made) -> None:
    made.output.mkdir()
    with open(made.output / ".lock", "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            OutputError, match="output is being written by another process; wait, or use another folder"
        ):
            made.run()
    assert made.run() == ["a", "b", "c"]


def test_commands_of_ours_are_those_of_this_python() -> None:
    assert Command(("nmt-average-checkpoints", "--inputs", "x")).arguments() == [
        sys.executable,
        "-m",
        "nmt_cli.average_checkpoints",
        "--inputs",
        "x",
    ]
    script = Command(("text.py", "split"), scripts=Path("/scripts"))
    assert script.arguments() == [sys.executable, "/scripts/text.py", "split"]


def test_a_function_runs_in_the_folder_of_its_stage_and_its_words_identify_it(tmp_path: Path) -> None:
    def pipeline(words: str) -> Pipeline:
        command = Command(("file", words), action=lambda folder: (folder / "file").write_text(words) and None)
        return Pipeline(tmp_path, [PipelineStage("made", (command,))], say)

    pipeline("first").run([*pipeline("first").stages.values()])
    assert (tmp_path / "made" / "file").read_text() == "first"
    second = pipeline("second")
    assert list(second.described([*second.stages.values()])) == [
        "made: stale (file changed: first -> second)",
        "    (file second)",
    ]


def test_options_become_words() -> None:
    options = {"max_epoch": 8, "adam_betas": [0.9, 0.98], "model": "x", "model.norm": "pre", "drop_copies": True}
    options |= {"async_checkpoints": False, "patience": None, "validation.interval": None, "dropout": 1}
    assert words_of(options, "train") == [
        *["--max-epoch", "8", "--adam-betas", "0.9,0.98", "--model", "x", "model.norm=pre", "--drop-copies"],
        *["--async-checkpoints=false", "validation.interval=null", "--dropout", "1"],
    ]
    with pytest.raises(
        UsageError, match="train.model is a group of options; set them one by one, train.model.KEY=VALUE"
    ):
        words_of({"model": {"norm": "pre"}}, "train")
