"""The student's pipeline: what it does to lines, which commands it gives, and (at night) the smoke preset as a whole."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nmt.errors import DataError, MissingInputError, UsageError
from nmt.pipelines.stages import Pipeline
from tests.documents import COMMANDS, CommandLine, compose

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "student"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module  # the scripts import each other by these names
    specification.loader.exec_module(module)
    return module


steps, text, speed, report, pipeline = (load(name) for name in ("steps", "text", "speed", "report", "pipeline"))


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def run(*words: object) -> None:
    arguments = text.parser().parse_args(list(map(str, words)))
    arguments.function(arguments)


def test_the_last_lines_give_one_side_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "t.en.gz", tmp_path / "t.de"
    source.write_bytes(gzip.compress(b"a\nb\nc\nd\ne\n"))
    write(target, *"ABCDE")
    line = ["split", "--source", source, "--target", target, "--languages", "en", "de", "--output", tmp_path]
    run(*line, "--source-lines", 1, "--target-lines", 2)
    found = {name: read(tmp_path / name) for name in ("train.en", "train.de", "only.en", "only.de")}
    assert found == {"train.en": ["a", "b"], "train.de": ["A", "B"], "only.en": ["c"], "only.de": ["D", "E"]}
    run(*line, "--only-target", write(tmp_path / "given", "X", "", "Y"))
    assert read(tmp_path / "only.de") == ["X", "Y"] and read(tmp_path / "train.en") == list("abcde")
    run(*line, "--only-target", tmp_path / "given", "--target-lines", 2, "--source-lines", 1)
    assert read(tmp_path / "train.en") == list("abcd") and read(tmp_path / "only.en") == ["e"]
    run(*line, "--lines", 3, "--target-lines", 1)
    assert read(tmp_path / "train.en") == ["a", "b"] and read(tmp_path / "only.de") == ["C"]
    run(*line, "--only-source", write(tmp_path / "long", "x" * 6, "y" * 5, ""), "--longest", 5)
    assert read(tmp_path / "only.en") == ["y" * 5]
    assert "only.en: 1 of 2 lines are longer than 5 characters; skipped them" in capsys.readouterr().err
    with pytest.raises(UsageError, match="has only 5 lines, but 3 and 2 are to be set aside"):
        run(*line, "--source-lines", 2, "--target-lines", 3)
    write(target, *"ABCD")
    with pytest.raises(DataError, match="t.de has 4 lines, but .*t.en.gz has 5"):
        run(*line)


def test_of_several_translations_the_nearest_to_the_reference_is_chosen_where_there_is_one(tmp_path: Path) -> None:
    lists = [("one", ["ein Hund", "ein Hund läuft"]), ("two", [""]), ("three", ["drei", "3"])]
    lines = [json.dumps({"source": source, "hypotheses": [{"text": one} for one in texts]}) for source, texts in lists]
    nbest, references = write(tmp_path / "nbest", *lines), write(tmp_path / "references", "ein Hund läuft", "zwei")
    outputs = [tmp_path / "s", tmp_path / "t"]
    run("choose", "--nbest", nbest, "--references", references, "--by", "bleu", "--output", *outputs)
    assert [read(path) for path in outputs] == [["one", "three"], ["ein Hund läuft", "drei"]]
    run("choose", "--nbest", nbest, "--output", *outputs)
    assert read(outputs[1]) == ["ein Hund", "drei"]
    for wrong in ("not JSON", '["a list"]', '{"source": "one"}', '{"source": "one", "hypotheses": [{"text": null}]}'):
        write(nbest, lines[0], wrong)
        with pytest.raises(DataError, match="nbest:2 is not a line of nmt-generate --format jsonl"):
            run("choose", "--nbest", nbest, "--output", *outputs)


def test_the_pairs_with_the_lowest_scores_and_repetitions_are_dropped(tmp_path: Path) -> None:
    source, target = write(tmp_path / "s", *"abcac"), write(tmp_path / "t", *"ABCAD")
    run("reversed", "--source", source, "--target", target, "--output", tmp_path / "reversed")
    assert json.loads(read(tmp_path / "reversed")[0]) == {"text": "A", "reference": "a"}
    scores = [json.dumps({"source": "x", "hypotheses": [{"score": score}]}) for score in (-1.0, -9.0, -2.0, -1.0, -3.0)]
    line = ["drop", "--source", source, "--target", target, "--scores", write(tmp_path / "scores", *scores)]
    line += ["--output", tmp_path / "k.s", tmp_path / "k.t", "--share"]
    run(*line, 0.2)
    assert read(tmp_path / "k.s") == list("acc") and read(tmp_path / "k.t") == list("ACD")
    scores[1] = json.dumps({"source": "x", "hypotheses": []})  # whatever has no score is the least likely
    write(tmp_path / "scores", *scores)
    run(*line, 0.2)
    assert read(tmp_path / "k.s") == list("acc")
    with pytest.raises(UsageError, match="--share 1 must be at least 0 and less than 1"):
        run(*line, 1)
    write(tmp_path / "scores", *scores[1:])
    with pytest.raises(DataError, match="has 4 scores for 5 pairs"):
        run(*line, 0.2)


def test_a_key_with_a_point_is_changed_or_added_also_in_braces(texts: list[str]) -> None:
    config = configured(
        "multi30k", *texts, "++student={model.d_model:64}", "student.model.norm=pre", "teacher.train.model.norm=pre"
    )
    assert {"model.d_model": 64, "model.norm": "pre", "model.d_ff": 256}.items() <= config.student.items()
    assert {"model": "transformer_tiny", "model.norm": "pre"}.items() <= config.teacher.train.items()


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Overrides that name small parallel texts of made-up words."""
    draw = random.Random(1)
    words = "a man woman dog cat boy girl runs sits jumps looks plays in on the red blue green street park".split()
    (tmp_path / "text").mkdir()
    for name, count in (("train", 400), ("valid", 30), ("test", 20)):
        lines = [[draw.choice(words) for _ in range(draw.randint(3, 9))] for _ in range(count)]
        write(tmp_path / "text" / f"{name}.en", *map(" ".join, lines))
        write(tmp_path / "text" / f"{name}.de", *(" ".join(f"{word[::-1]}x" for word in line) for line in lines))
    files = {name: tmp_path / "text" / name for name in ("train", "valid", "test")}
    return [f"text.train={files['train']}", f"text.valid={files['valid']}", f"text.tests=[{files['test']}]"]


def configured(preset: str, *overrides: str) -> Any:
    return pipeline.configuration([f"preset={preset}", "output=out", *overrides])


@pytest.mark.parametrize("preset", ["multi30k", pytest.param("smoke", marks=pytest.mark.nightly)])
def test_every_command_of_a_preset_composes(preset: str, texts: list[str]) -> None:
    made = steps.Steps(configured(preset, *texts)).stages()
    names = (
        "split clean reverse back-translate teacher-1 teacher-2 distill filter align student shortlist export evaluate"
    )
    assert [stage.name for stage in made] == names.split()
    lines = {  # of commands that differ in names alone, the last
        (stage.name.rstrip("-12"), command.words[0], len(command.words)): command.words
        for stage in made
        for command in stage.commands
        if command.words[0].startswith("nmt-")
    }
    programs = {f"nmt-{name}" for name in "preprocess train generate align shortlist export score".split()}
    assert {program for program, *_ in lines.values()} == programs
    for program, *arguments in lines.values():
        line = CommandLine(f"preset {preset}", program, tuple(arguments))
        assert isinstance(compose(line), COMMANDS[program][1])


def test_a_name_stands_for_its_numbers(tmp_path: Path, texts: list[str]) -> None:
    made = Pipeline(tmp_path, steps.Steps(configured("multi30k", *texts)).stages(), print)

    def chosen(*more: str) -> list[str]:
        return [stage.name for stage in pipeline.choose(made, configured("multi30k", *texts, *more))]

    assert chosen("stages=[teacher,student]") == ["teacher-1", "teacher-2", "student"]
    assert chosen("until=teacher")[-2:] == ["teacher-1", "teacher-2"] and "clean" in chosen("until=teacher")
    assert chosen() == [*made.stages]


def test_without_text_to_translate_back_there_is_no_such_stage(texts: list[str]) -> None:
    config = configured("smoke", *texts, "text.target_lines=0", "teacher.seeds=[5]")
    made = {stage.name: stage for stage in steps.Steps(config).stages()}
    assert "back-translate" not in made and "teacher-2" not in made
    assert made["teacher-1"].needs == ("clean",)
    assert made["teacher-1"].commands[0].words[:6] == (
        "nmt-train",
        "../clean/corpus",
        "--save-dir",
        "run",
        "--seed",
        "5",
    )
    assert not any("ensemble" in command.words for command in made["evaluate"].commands)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["text.train=/nowhere/train"], "there is no /nowhere/train.en, plain or packed"),
        (["text.only_target=/nowhere/news"], "there is no file /nowhere/news"),
        (["distillation.choose_by=luck"], "distillation.choose_by=luck is unknown; choose search or bleu"),
        (["teacher.seeds=[]"], "teacher.seeds=\\[\\] gives no teacher; name at least one"),
        (["distillation.drop_share=5"], "distillation.drop_share=5 must be at least 0 and less than 1"),
        (["evaluation.rounds=0"], "evaluation.rounds=0 must be at least 1"),
        (["student={model:{norm:pre}}"], r"model is a group of options; .* train.model.KEY=VALUE"),
        (["text.tests=[]"], "name a test text"),
        (["text.lines=-3"], "text.lines=-3 must be at least 0"),
        (["threads=0"], "threads=0 must be at least 1"),
        (["text.target_lang=en"], "text.source_lang and text.target_lang are both en; name two languages"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is(texts: list[str], overrides: list[str], says: str) -> None:
    with pytest.raises((UsageError, MissingInputError), match=says):
        steps.Steps(configured("smoke", *texts, *overrides)).stages()


def test_options_of_systems_are_told_apart() -> None:
    line = "--rounds 2 --system a --path x:y --no-forbid-unk --beam 5 --end --system b --path z --forbid-unk --end"
    others, systems = speed.systems_in(line.split())
    assert others == ["--rounds", "2"]
    assert systems == {"a": {"path": "x:y", "beam": 5, "forbid_unk": False}, "b": {"path": "z", "forbid_unk": True}}
    assert speed.options_in(["--no-repeat-ngram-size", "3", "--search", "greedy", "--forbid-unk=false"]) == {
        "no_repeat_ngram_size": 3,
        "search": "greedy",
        "forbid_unk": False,
    }
    with pytest.raises(UsageError, match="search.lenpen=1 is not a flag"):
        speed.options_in(["--beam", "5", "search.lenpen=1"])
    with pytest.raises(UsageError, match="--system needs a name and --end"):
        speed.systems_in(["--system", "a", "--path", "x"])
    with pytest.raises(UsageError, match="--system a has no model; give it a --path"):
        speed.systems_in(["--system", "a", "--beam", "5", "--end"])


@pytest.mark.parametrize(
    ("script", "arguments", "says"),
    [
        (
            "speed",
            ["--input", "x", "--output", "y", "--rounds", "0", "--system", "a", "--path", "p", "--end"],
            "--rounds 1",
        ),
        (
            "speed",
            ["--input", "x", "--output", "y", "--lines", "-1", "--system", "a", "--path", "p", "--end"],
            "--lines 0",
        ),
        ("speed", ["--input", "here", "--output", "y", "--system", "a", "--path", "p", "--end"], "here has no line"),
        (
            "report",
            ["--experiment", "x", "--speeds", "none", "--teacher", "a", "--tests", "t", "--systems", "a"],
            "0.a.json",
        ),
        ("text", ["reversed", "--source", "here", "--target", "here", "--output", "/dev/null/x"], "text.py reversed: "),
    ],
)
def test_a_wrong_argument_of_a_script_is_one_sentence(
    script: str, arguments: list[str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "here").touch()
    command = [sys.executable, str(FOLDER / f"{script}.py"), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode not in (0, 1) and says in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_where_the_teacher_scores_nothing_there_is_no_share() -> None:
    scores = {name: [{"bleu": {"score": 0.0}, "chrf": {"score": 1.0}}] for name in ("teacher-1", "student")}
    speeds = {name: {"cpu": {"median": 2.0}} for name in scores}
    assert report.verdict(scores, speeds, ["test"], "teacher-1") == (
        "The student keeps no BLEU, as teacher-1 has none, on test, at 1.0 times its sentences a second."
    )


def test_the_verdict_is_of_medians_and_of_the_first_test() -> None:
    scores = {
        name: [{"bleu": {"score": bleu}, "chrf": {"score": 60.0}}]
        for name, bleu in (("teacher-1", 40.0), ("student", 39.4))
    }
    speeds = {
        name: {"cpu": {"median": rate}, "clock": {"median": 1.0}}
        for name, rate in (("teacher-1", 100), ("student", 620))
    }
    assert report.verdict(scores, speeds, ["test"], "teacher-1") == (
        "The student keeps 98.5 % of the BLEU of teacher-1 on test, at 6.2 times its sentences a second."
    )
    assert (
        report.table(scores, speeds, ["test"], "teacher-1").splitlines()[-1]
        == "| student | 39.40 | 60.00 | 620.0 | 1.0 | 6.20 |"
    )


def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "pipeline.py"), *arguments]
    without = {name: value for name, value in os.environ.items() if name != "NMT_DATA"}
    return subprocess.run(command, capture_output=True, text=True, env={**without, **environment}, check=False)


HERE = str(Path(__file__).with_suffix(""))
TEXTS = [
    f"text.train={HERE}",
    f"text.valid={HERE}",
    f"text.tests=[{HERE}]",
    "text.source_lang=py",
    "text.target_lang=py",
]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["output=x", "teacher.seed=3"], "unknown option teacher.seed (did you mean 'teacher.seeds'?)"),
        (["output=x", "preset=smok"], "there is no preset 'smok' (did you mean 'smoke'?); there are: multi30k, smoke"),
        (["output=x", "until"], "until is not KEY=VALUE; --help explains the options"),
        (["output=x"], "text.train=${oc.env:NMT_DATA}/multi30k/train cannot be resolved: KeyError raised"),
        (["output=", *TEXTS], "output= is empty; name a folder"),
        (["output=x", "until=clean", "stages=[student]", *TEXTS], "until= (a stage and all it needs) and stages="),
    ],
)
def test_a_wrong_configuration_is_one_sentence(arguments: list[str], says: str) -> None:
    done = started(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"pipeline.py: {says}")


def test_an_output_that_cannot_be_written_is_one_sentence(texts: list[str]) -> None:
    done = started("output=/dev/null/x", *texts, "until=split")
    assert (done.returncode, done.stdout) == (73, "")
    assert done.stderr.startswith("pipeline.py: cannot create /dev/null/x/.lock: Not a directory; ")


def test_a_dry_run_shows_states_and_commands_and_makes_nothing(texts: list[str], tmp_path: Path) -> None:
    done = started("preset=smoke", f"output={tmp_path / 'out'}", *texts, "dry_run=true", "until=clean")
    assert done.returncode == 0 and not (tmp_path / "out").exists()
    lines = done.stdout.split("\n")
    assert lines[0] == "split: to do" and lines[1].startswith("    text.py split --source ") and "clean: to do" in lines
    assert not any(line.startswith("reverse") for line in lines)


def test_a_wrong_option_of_a_late_command_is_said_before_anything_runs(texts: list[str], tmp_path: Path) -> None:
    done = started("preset=smoke", f"output={tmp_path / 'out'}", *texts, "+student.foo_bar=1", "stages=[student]")
    assert (done.returncode, done.stdout, (tmp_path / "out").exists()) == (2, "", False)
    assert done.stderr == "pipeline.py: student cannot run: nmt-train: unknown flag --foo-bar; --help all lists them\n"


@pytest.mark.slow
def test_a_wrong_option_of_the_speed_is_said_before_anything_runs(texts: list[str], tmp_path: Path) -> None:
    wrong = ["++evaluation.student={search.max_len_b:9}", "stages=[evaluate]"]
    done = started("preset=smoke", f"output={tmp_path / 'out'}", *texts, *wrong)
    assert (done.returncode, done.stdout, (tmp_path / "out").exists()) == (2, "", False)
    assert done.stderr == (
        "pipeline.py: evaluate cannot run: speed.py: search.max_len_b=9 is not a flag; give the options of a system as "
        "flags, such as --beam 5\n"
    )


@pytest.mark.nightly
def test_the_smoke_preset_makes_a_student_and_is_then_passed_over(texts: list[str], tmp_path: Path) -> None:
    arguments = ["preset=smoke", f"output={tmp_path / 'out'}", *texts]
    first = started(*arguments, PYTHONPATH=str(FOLDER.parents[1]))
    assert first.returncode == 0, first.stderr[-3000:]
    assert first.stdout.split("\n")[-2].startswith("The student keeps ")
    evaluated = tmp_path / "out" / "evaluate"
    results = json.loads((evaluated / "results.json").read_text())
    assert {result["row"] for result in results} >= {"teacher 1", "teacher 2", "all teachers together", "student"}
    assert len(read(evaluated / "0.student")) == len(read(evaluated / "0.student.links")) == 20
    assert (tmp_path / "out" / "export" / "model" / "model.safetensors").exists()
    again = started(*arguments, "until=student", PYTHONPATH=str(FOLDER.parents[1]))
    assert again.returncode == 0 and again.stderr.count(": already done\n") == 10 == again.stderr.count("\n")
    changed = started(*arguments, "+student.ema_decay=0.9", "dry_run=true", PYTHONPATH=str(FOLDER.parents[1]))
    states = dict(line.split(": ", 1) for line in changed.stdout.split("\n") if line and not line.startswith(" "))
    assert states["align"] == states["shortlist"] == "done"
    assert states["student"] == "stale (nmt-train changed: nothing -> --ema-decay 0.9)"
    assert states["export"] == states["evaluate"] == "stale (student changed)"
