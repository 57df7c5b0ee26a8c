"""Files of results, and the page that is made of them."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nmt.errors import DataError, MissingInputError, UsageError
from nmt.threads import processor_name

SCRIPT = Path(__file__).resolve().parents[3] / "examples" / "results.py"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("examples_results", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))  # as for a script
        specification.loader.exec_module(module)
    return module


results = load()
Result = results.Result
page_of_results = sys.modules["results_page"]


TWO_CORES = {"device": "cpu", "processor": "Xeon", "processors": 2}


def write_run(
    folder: Path,
    *,
    seconds: float,
    updates: int,
    ended: bool = True,
    machines: Sequence[dict[str, Any]] = (TWO_CORES,),
    parameters: int = 1000,
) -> Path:
    """``machines``: the environment of each of its starts."""
    events: list[dict[str, Any]] = [
        {
            "event": "start",
            "update": 0,
            "model": {"parameters": parameters},
            "environment": machine,
            "devices": 4,
            "text": "A line\u2028of two",
        }
        for machine in machines
    ]
    if ended:
        events.append({"event": "end", "update": updates, "epoch": 3, "seconds": seconds})
    folder.mkdir()
    lines = [json.dumps(event, ensure_ascii=False) for event in events]
    (folder / "log.jsonl").write_text("\n".join([*lines, '{"event": "val', ""]), encoding="utf-8")  # the last one torn
    return folder


def cells(page: str) -> list[list[str]]:
    """The rows of the page's table, without its head."""
    rows = [line for line in page.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


def test_a_result_takes_the_place_of_the_one_with_its_names() -> None:
    first, second = Result("Table 4", "WSJ", "F1", ours=70.0), Result("Table 4", "WSJ", "tagging", ours=90.0)
    again = Result("Table 4", "WSJ", "F1", ours=71.0)
    assert results.added(results.added([first], second), again) == [again, second]


def test_what_was_not_run_goes_when_something_was_and_does_not_come_back() -> None:
    missing = Result("Table 4", "WSJ", "F1", published=91.3)
    measured = Result("Table 4", "WSJ", "F1", ours=81.0, published=91.3, setting="3,396 trees")
    other = Result("Table 4", "WSJ", "tagging")
    assert results.added([missing, other], measured) == [measured, other]
    assert results.added([measured, other], missing) == [measured, other]
    assert results.added([missing, other], Result("Table 4", "WSJ", "F1", setting="later")) == [
        Result("Table 4", "WSJ", "F1", setting="later"),
        other,
    ]
    drawn = Result("Table 4", "WSJ", "tagging", picture="images/x.svg")
    assert results.added([missing, other], drawn) == [missing, drawn]


def test_results_of_other_settings_stand_side_by_side() -> None:
    short, long = (Result("Table 4", "WSJ", "F1", ours=70.0, setting=f"{epochs} epochs") for epochs in (10, 30))
    assert results.added([short], long) == [short, long]


def example(folder: Path, *kept: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("", encoding="utf-8")
    results.write(folder / "results.json", kept)
    return folder


def test_results_of_a_run_are_kept_for_its_example(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, missing = Result("Table 4", "LSTM", "F1", ours=70.0), Result("Table 4", "WSJ", "F1", published=91.3)
    again, measured = Result("Table 4", "LSTM", "F1", ours=71.0), Result("Table 4", "WSJ", "F1", ours=81.0, setting="x")
    folder = example(tmp_path / "examples/parsing", old, missing)
    monkeypatch.setattr(results, "EXAMPLES", folder.parent)
    results.write(tmp_path / "runs/results.json", [measured, again])
    results.main(["keep", str(tmp_path / "runs/results.json"), "parsing"])
    kept = results.read(folder / "results.json")
    assert [dataclasses.replace(result, commit="", date="") for result in kept] == [again, measured]
    with pytest.raises(SystemExit):
        results.main(["keep", str(tmp_path / "runs/results.json"), "pasing"])
    assert "there is no example 'pasing'; the examples are parsing\n" in capsys.readouterr().err


def test_a_measured_result_says_when_and_at_which_commit_it_was_recorded(tmp_path: Path) -> None:
    measured, earlier = (
        Result("E", "a", "F1", ours=70.0),
        Result("E", "b", "F1", ours=71.0, commit="1", date="2026-01-02"),
    )
    results.add_all(tmp_path / "results.json", [measured, earlier, Result("E", "c", "F1")])
    now, then, missing = results.read(tmp_path / "results.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", now.date) and re.fullmatch(r"[0-9a-f]{8}|", now.commit)
    assert then == earlier and missing.date == ""
    cell = cells(results.page([("example", then)]))[0][8]
    assert cell == "`1`, 2026-01-02"


def test_what_cannot_be_kept_is_one_sentence(tmp_path: Path) -> None:
    folder = example(tmp_path / "parsing")
    with pytest.raises(MissingInputError, match="nothing.json is missing: run the script of the example first"):
        results.keep(tmp_path / "nothing.json", folder)
    with pytest.raises(UsageError, match="there is no example 'other'"):
        results.keep(folder / "results.json", tmp_path / "other")
    with pytest.raises(UsageError, match="there is no example 'examples'"):
        results.keep(folder / "results.json", results.EXAMPLES / "")


def test_a_picture_is_kept_with_its_result(tmp_path: Path) -> None:
    folder = example(tmp_path / "examples/parsing")
    (tmp_path / "drawn.svg").write_text("<svg/>", encoding="utf-8")
    words = "--experiment E --row r --metric picture --picture images/x.svg --drawn".split()
    results.main(["add", str(tmp_path / "runs/results.json"), *words, str(tmp_path / "drawn.svg")])
    results.keep(tmp_path / "runs/results.json", folder)
    assert (tmp_path / "docs/images/x.svg").read_text(encoding="utf-8") == "<svg/>"
    results.main(
        ["add", str(tmp_path / "runs/results.json"), *words, str(tmp_path / "runs/images/x.svg")]
    )  # in its place
    (tmp_path / "runs/images/x.svg").unlink()
    with pytest.raises(MissingInputError, match="x.svg is missing: run the script of the example again"):
        results.keep(tmp_path / "runs/results.json", folder)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--picture", "images/x.svg", "--drawn", "nowhere.svg"], "nowhere.svg is missing"),
        (["--drawn", "nowhere.svg"], "--drawn FILE needs a name"),
        (["--ours", "1", "--score", "score.json"], "--score also sets --ours; give only one of them"),
        (["--ours", "nan"], "--ours nan is not a number; omit it if nothing was run"),
        (["--setting", "{epochs} epochs"], "--setting has {epochs}, but no --run gives their number"),
    ],
)
def test_what_cannot_be_added_is_one_sentence(
    tmp_path: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        results.main(["add", str(tmp_path / "r.json"), *"--experiment E --row r --metric picture".split(), *words])
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1 and not (tmp_path / "r.json").exists()


@pytest.mark.parametrize("words", [["--ours", "1"], ["--picture", "images/x.svg"], []])
def test_hardware_is_said_of_what_was_run(tmp_path: Path, words: list[str]) -> None:
    file = tmp_path / "results.json"
    results.main(["add", str(file), "--experiment", "E", "--row", "r", "--metric", "m", *words])
    (result,) = results.read(file)
    assert result.hardware == (f"{os.cpu_count()} cores of {processor_name()}" if words else "")


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        results.main(["add", str(tmp_path / "file/r.json"), *"--experiment E --row r --metric m --ours 1".split()])
    assert stopped.value.code == 73 and capsys.readouterr().err.count("\n") == 1


def test_a_missing_score_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="score.json: it is missing"):
        results.of_scores([tmp_path / "score.json"])


def test_a_file_gives_back_what_was_written(tmp_path: Path) -> None:
    kept = [Result("Table 4", "WSJ", "F1", ours=0.0, runs=3, spread=0.5), Result("Student", "speed", "ratio")]
    results.write(tmp_path / "deep" / "results.json", kept)
    assert results.read(tmp_path / "deep" / "results.json") == kept


@pytest.mark.parametrize(
    "content", ["{", '[{"row": "WSJ"}]', '[{"experiment": "x", "row": "y", "metric": "z", "q": 1}]']
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match="is not a file of results"):
        results.read(tmp_path / "results.json")


def test_several_runs_add_their_minutes(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", seconds=90, updates=10), write_run(tmp_path / "b", seconds=60, updates=20)]
    assert results.of_runs(runs) == {
        "parameters": 1000,
        "updates": 20,
        "minutes": 2.5,
        "hardware": "2 cores of Xeon",
    }


def test_a_setting_names_the_epochs_that_were_trained(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", seconds=90, updates=10)
    words = ["--experiment", "E", "--row", "r", "--metric", "m", "--ours", "1", "--setting", "{epochs} epochs"]
    results.main(["add", str(tmp_path / "r.json"), *words, "--run", str(run)])
    assert results.read(tmp_path / "r.json")[0].setting == "3 epochs"


def test_hardware_is_what_the_runs_say_of_theirs(tmp_path: Path) -> None:
    """Not this machine's: a run on GPUs that a machine has besides, or one that went on elsewhere."""
    gpu = {"device": "cuda:0", "gpu": "NVIDIA A100", "processor": "EPYC", "processors": 64}
    run = write_run(tmp_path / "run", seconds=1, updates=1, machines=(TWO_CORES, gpu, gpu))
    assert results.of_runs([run])["hardware"] == "2 cores of Xeon and 4 x NVIDIA A100"


def test_a_log_that_names_no_processor_is_taken_to_be_of_this_machine(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seconds=1, updates=1, machines=({"device": "cpu", "processors": 3},))
    assert results.of_runs([run])["hardware"] == f"3 cores of {processor_name()}"


def test_a_run_that_has_not_ended_gives_no_result(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has not ended"):
        results.of_runs([write_run(tmp_path / "a", seconds=90, updates=10, ended=False)])


def test_a_run_that_is_prolonged_gives_none_until_it_ends_again(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", seconds=90, updates=10)
    with open(run / "log.jsonl", "a", encoding="utf-8") as log:
        log.write(json.dumps({"event": "train", "update": 12}) + "\n")
    with pytest.raises(DataError, match="has not ended"):
        results.of_runs([run])


def test_runs_of_several_sizes_have_no_number_of_parameters(tmp_path: Path) -> None:
    sizes = {"a": 1000, "b": 2000}
    runs = [write_run(tmp_path / name, seconds=1, updates=1, parameters=size) for name, size in sizes.items()]
    assert results.of_runs(runs)["parameters"] is None and results.of_runs(runs[:1])["parameters"] == 1000


def test_a_log_without_a_start_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"event": "end", "update": 1, "seconds": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match="is not a complete log of a run"):
        results.of_runs([tmp_path])


def test_rows_stand_in_the_order_of_the_paper_and_of_their_files() -> None:
    given = [("student", Result("Student", "b", "BLEU")), ("t4", Result("Table 4", "z", "F1"))]
    given += [("t3", Result("Table 3", "base", "BLEU")), ("t3", Result("Table 3", "A", "BLEU"))]
    assert [row[:2] for row in cells(results.page(given))] == [
        ["Table 3", "base"],
        ["Table 3", "A"],
        ["Table 4", "z"],
        ["Student", "b"],
    ]


def test_a_difference_is_shown_where_figures_can_be_compared() -> None:
    given = [
        ("x", Result("Table 3", "a", "million parameters", ours=63.0, published=65.0, comparable=True)),
        ("x", Result("Table 3", "b", "BLEU", ours=37.0, published=25.8)),
        ("x", Result("Table 3", "c", "BLEU", published=25.8, comparable=True)),
    ]
    assert [row[3:6] for row in cells(results.page(given))] == [
        ["65", "63", "-2"],
        ["25.8", "37", ""],
        ["25.8", "not run", ""],
    ]


def test_a_machine_has_a_letter_that_is_explained() -> None:
    given = [
        ("x", Result("Table 3", "a", "BLEU", ours=1.0, minutes=2.0, runs=3, hardware="2 cores of Xeon")),
        ("x", Result("Table 3", "b", "BLEU", ours=1.0, minutes=2.0)),
        ("x", Result("Table 3", "c", "BLEU", ours=1.0, hardware="1 x A100")),
    ]
    page = results.page(given)
    assert [row[7] for row in cells(page)] == ["2 min in all, B", "2 min", "A"]
    assert "A is 1 x A100; B is 2 cores of Xeon." in page


def test_published_systems_of_others_appear_only_once_they_are_measured() -> None:
    missing = Result("Table 2", "GNMT", "BLEU", published=24.6, setting=page_of_results.OTHERS)
    not_run = Result("Table 2", "base", "BLEU", published=27.3)
    measured = Result("Table 2", "ConvS2S", "BLEU", ours=1.0, setting=page_of_results.OTHERS)
    page = results.page([("x", missing), ("x", not_run), ("x", measured)])
    assert [row[1] for row in cells(page)] == ["base", "ConvS2S"]


def test_links_lead_from_the_page_to_examples_and_pictures() -> None:
    page = results.page([("date", Result("E", "r", "picture", picture="images/x.svg"))])
    assert cells(page)[0][4] == "[picture](../images/x.svg)"
    assert cells(page)[0][-1] == "[date](https://github.com/nmt-toolkit/nmt/blob/main/examples/date/README.md)"


def test_a_bar_in_a_name_does_not_end_its_cell() -> None:
    (row,) = [line for line in results.page([("x", Result("E", "a|b", "m", ours=1.0))]).splitlines() if "a\\|b" in line]
    assert row.replace("\\|", "").count("|") == len(page_of_results.COLUMNS) + 1


def test_the_script_adds_and_makes_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", seconds=120, updates=7)
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    added = ["add", file, "--experiment", "Table 4", "--row", "WSJ", "--metric", "F1", "--ours", "71.5", "--run", run]
    subprocess.run([sys.executable, SCRIPT, *map(str, added)], check=True)
    subprocess.run([sys.executable, SCRIPT, "page", str(page)], check=True)
    (result,) = results.read(file)
    assert (result.ours, result.minutes, result.updates) == (71.5, 2.0, 7)
    assert result.hardware == "2 cores of Xeon"
    assert page.read_text(encoding="utf-8").startswith("# Reproduce published results\n")


def test_a_missing_run_is_one_sentence(tmp_path: Path) -> None:
    added = ["add", "r.json", "--experiment", "E", "--row", "r", "--metric", "m", "--run", str(tmp_path / "nothing")]
    done = subprocess.run([sys.executable, SCRIPT, *added], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 66
    assert done.stderr.count("\n") == 1 and "nothing is not a run folder" in done.stderr


def write_score(path: Path, score: float, signature: str = "tok:13a") -> Path:
    path.write_text(json.dumps({"scores": [{"score": score, "signature": signature}]}), encoding="utf-8")
    return path


def test_scores_of_several_runs_have_a_mean_and_a_spread(tmp_path: Path) -> None:
    files = [write_score(tmp_path / f"{score}", score) for score in (37.0, 38.0, 39.0)]
    assert results.of_scores(files) == {"ours": 38.0, "spread": 1.0, "runs": 3, "signature": "tok:13a"}
    assert results.of_scores(files[:1]) == {"ours": 37.0, "spread": None, "runs": 1, "signature": "tok:13a"}


def test_scores_of_different_kinds_are_refused(tmp_path: Path) -> None:
    files = [write_score(tmp_path / "a", 37.0), write_score(tmp_path / "b", 37.0, "tok:none")]
    with pytest.raises(DataError, match="scores with different signatures have no mean: tok:13a, tok:none"):
        results.of_scores(files)


def test_a_file_that_is_no_score_is_refused(tmp_path: Path) -> None:
    (tmp_path / "score.json").write_text('{"scores": []}', encoding="utf-8")
    for file in (tmp_path / "score.json", write_score(tmp_path / "nan.json", math.nan)):
        with pytest.raises(DataError, match="is not output of nmt-score --format json"):
            results.of_scores([file])


def test_the_page_of_this_project_is_made_of_its_results() -> None:
    files = sorted(results.EXAMPLES.glob("*/results.json"))
    made = results.page([(file.parent.name, result) for file in files for result in results.read(file)])
    stored = (results.EXAMPLES.parent / "docs/results/reproduction.md").read_text(encoding="utf-8")
    assert stored == made, "run python examples/results.py page docs/results/reproduction.md"
