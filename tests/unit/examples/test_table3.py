"""Table 3: its rows at both sizes, and what is collected of a sweep."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, MissingInputError
from tests.commands import run_copy
from tests.tiny_models import write_tiny_corpus

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "table3"
RECIPES = FOLDER / "miniatures/conf/recipe"


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[ModuleType, ModuleType]]:
    """``rows`` and ``collect``, which finds the former beside itself."""
    before = [*sys.path]
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("rows"), importlib.import_module("collect")
    finally:
        sys.path[:] = before
        for name in ("rows", "collect", "results"):
            sys.modules.pop(name)


def changed(text: str) -> dict[str, Any]:
    """Options on a command line, as a mapping."""
    return {key: yaml.safe_load(value) for key, value in (word.split("=") for word in text.split())}


def reduced(recipe: str) -> dict[str, Any]:
    """What a reduced recipe says, by key."""
    content = yaml.safe_load((RECIPES / f"table3_{recipe}.yaml").read_text(encoding="utf-8"))
    parts = {name: options for name, options in content.items() if name != "defaults"}
    return {f"{part}.{key}": value for part, options in parts.items() for key, value in options.items()}


def test_one_vocabulary_explains_all_published_sizes_but_that_of_the_big_model(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    rows, _ = modules
    published = [row for row in rows.ROWS if row.millions and row.part != "big"]
    assert len(published) == 10
    for pieces in (41_004, 41_208):
        assert all(abs(rows.parameters(row, pieces) / 1e6 - row.millions) <= 0.5 for row in published)
    for pieces in (41_003, 41_209):
        assert any(abs(rows.parameters(row, pieces) / 1e6 - row.millions) > 0.5 for row in published)
    big = rows.ROWS[-1]
    assert [abs(rows.parameters(big, pieces) / 1e6 - 213) <= 0.5 for pieces in (35_367, 35_368, 36_344, 36_345)] == [
        False,
        True,
        True,
        False,
    ]


def test_each_reduced_row_changes_an_eighth_of_the_widths_and_half_of_the_layers(
    modules: tuple[ModuleType, ModuleType],
) -> None:
    rows, _ = modules
    scale = {"d_model": 8, "d_ff": 8, "d_k": 8, "d_v": 8, "encoder_layers": 2, "decoder_layers": 2, "num_heads": 1}
    base = reduced("base")
    assert (base["model.d_model"], base["model.d_ff"], base["model.encoder_layers"]) == (512 / 8, 2048 / 8, 6 / 2)
    for row in rows.ROWS[1:-1]:
        full, small = changed(row.options), reduced(row.recipe)
        for key, value in full.items():
            divisor = scale.get(key.split(".")[1], 1)
            assert small[key] == (value / divisor if divisor > 1 else value), (row, key)
        # Where keys alone are narrower, values keep the width that they have by themselves at the paper's size.
        assert small.keys() - full.keys() <= ({"model.d_v"} if row.part == "B" else set()), row


def test_every_row_has_a_recipe_and_is_trained(modules: tuple[ModuleType, ModuleType]) -> None:
    rows, _ = modules
    stored = {path.stem for path in RECIPES.iterdir()}
    trained = (FOLDER / "run.sh").read_text(encoding="utf-8").replace("\\\n", "").split("recipe=")[1].split()[0]
    assert trained.split(",") == [f"table3_{row.recipe}" for row in rows.ROWS]
    assert stored == set(trained.split(","))


def undated(file: Path) -> list[dict[str, Any]]:
    """The results of a file, without the commit and the date of their recording."""
    results = json.loads(file.read_text(encoding="utf-8"))
    return [{name: value for name, value in result.items() if name not in ("commit", "date")} for result in results]


def test_the_readme_has_the_table_that_the_script_prints(modules: tuple[ModuleType, ModuleType]) -> None:
    rows, _ = modules
    assert rows.table(rows.ROWS, rows.PIECES) in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_the_counts_that_are_kept_are_those_of_the_script(
    modules: tuple[ModuleType, ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = modules
    rows.main(["--results", str(tmp_path / "results.json")])
    assert capsys.readouterr().out == rows.table(rows.ROWS, rows.PIECES) + "\n"
    counted, kept = (
        {one["row"]: one for one in undated(file) if one["metric"] == METRIC}
        for file in (tmp_path / "results.json", FOLDER / "results.json")
    )
    assert len(counted) == 11 and counted == kept
    big = counted["big: width 1024, dropout 0.3"]
    assert (big["published"], big["ours"], big["parameters"], big["comparable"]) == (213, 214.2, 214_171_648, True)


METRIC = "million parameters"


def test_a_vocabulary_without_room_for_a_piece_is_refused(
    modules: tuple[ModuleType, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    rows, _ = modules
    with pytest.raises(SystemExit) as stopped:
        rows.main(["--pieces", "3"])
    assert stopped.value.code == 2 and "--pieces 3 is too few for a vocabulary" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_reader_that_has_seen_enough_of_the_table_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, str(FOLDER / "rows.py")], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def write_sweep(folder: Path, reached: dict[tuple[str, int], tuple[float | None, float]]) -> Path:
    """As nmt-train -m writes it; test_a_real_sweep_is_collected shows that it does."""
    folder.mkdir()
    records = []
    for (recipe, seed), (perplexity, bleu) in reached.items():
        run = folder / f"{recipe}-{seed}"
        run.mkdir()
        events: list[dict[str, Any]] = [
            {"event": "start", "update": 0, "model": {"parameters": 7}, "environment": {"sacrebleu": "2.5.1"}},
            {"event": "valid", "update": 5, "ppl": 77.0, "bleu": 0.0},
            {"event": "valid", "update": 10, "ppl": perplexity, "bleu": bleu},
            {"event": "end", "update": 10, "seconds": 60.0},
        ]
        (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        (run / "config.yaml").write_text(f"seed: {seed}\n", encoding="utf-8")
        overrides = [f"recipe=table3_{recipe}"]  # nmt-train -m lists options with several values alone
        for status in ("running", "finished"):
            records.append({"overrides": overrides, "folder": run.name, "status": status})
    records.append({"overrides": ["recipe=table3_big"], "folder": "nowhere", "status": "failed"})
    (folder / "sweep.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


REACHED = {("base", 1): (10.0, 30.0), ("base", 2): (11.0, 31.0), ("a_1_head", 1): (12.0, 29.0)}


def test_the_last_validation_of_each_finished_run_is_collected(
    tmp_path: Path, modules: tuple[ModuleType, ModuleType]
) -> None:
    _, collect = modules
    runs = collect.collected(tmp_path / "none.json", collect.read(write_sweep(tmp_path / "sweep", REACHED)))
    assert [(run.recipe, run.seed, run.perplexity, run.bleu) for run in runs] == [
        ("base", 1, 10.0, 30.0),
        ("base", 2, 11.0, 31.0),
        ("a_1_head", 1, 12.0, 29.0),
    ]
    lines = collect.table(runs).splitlines()[2:]
    assert lines == [
        "| base | 6 layers, width 512 | 4.92 | 10.50 \u00b1 0.71 | 25.8 | 30.50 \u00b1 0.71 | +0.0 | +0.00 |",
        "| A | 1 head of 512 | 5.29 | 12.00 | 24.9 | 29.00 | -0.9 | -1.50 |",
    ]


def test_runs_of_another_machine_are_counted_in(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    """A second sweep has a seed more and one again, which replaces what was collected of it."""
    _, collect = modules
    (tmp_path / "out").mkdir()
    collect.main([str(write_sweep(tmp_path / "here", REACHED)), str(tmp_path / "out")])
    there = write_sweep(tmp_path / "there", {("base", 3): (12.0, 35.0), ("base", 2): (11.0, 34.0)})
    for log in there.glob("*/log.jsonl"):
        events = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        events[0]["environment"] |= {"processors": 4, "processor": "a Cray-1"}
        log.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
    collect.main([str(there), str(tmp_path / "out")])
    base = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))[1]
    assert (base["ours"], base["spread"], base["runs"], base["minutes"]) == (33.0, 2.6, 3, 3.0)
    assert base["hardware"].endswith(" and 4 cores of a Cray-1")
    kept = json.loads((tmp_path / "out/runs.json").read_text(encoding="utf-8"))
    assert [(run["recipe"], run["seed"], run["bleu"]) for run in kept] == [
        ("base", 1, 30.0),
        ("base", 2, 34.0),
        ("base", 3, 35.0),
        ("a_1_head", 1, 29.0),
    ]


@pytest.mark.parametrize("content", ["{", "[3]", '[{"recipe": "base"}]', '[{"facts": {}}]', "3"])
def test_damaged_runs_are_refused(tmp_path: Path, modules: tuple[ModuleType, ModuleType], content: str) -> None:
    _, collect = modules
    (tmp_path / "runs.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"runs\.json is not a file of runs that collect\.py wrote"):
        collect.collected(tmp_path / "runs.json", [])


def test_the_runs_that_are_kept_give_the_results_that_are_kept(
    tmp_path: Path, modules: tuple[ModuleType, ModuleType]
) -> None:
    _, collect = modules
    runs = collect.collected(FOLDER / "runs.json", [])
    assert {run.recipe for run in runs} == set(collect.RECIPES)
    collect.add_all(tmp_path / "results.json", collect.results(runs))
    made, kept = (
        {(one["row"], one["metric"]): one for one in undated(file)}
        for file in (tmp_path / "results.json", FOLDER / "results.json")
    )
    assert len(made) == 40 and made.items() <= kept.items()
    assert collect.table(runs) in (FOLDER / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_real_sweep_is_collected(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    """Two runs of two updates, with recipes of the miniatures; the second call starts elsewhere than the sweep."""
    _, collect = modules
    corpus = write_tiny_corpus(tmp_path, joint=BpeConfig(vocab_size=40, hard_vocab_limit=False))
    options = ["--user-dir", str(FOLDER / "miniatures"), "--save-dir", "sweep", "--valid-subset", "train"]
    options += [
        "--max-update",
        "2",
        "--warmup-updates",
        "1",
        "--validate-interval-updates",
        "2",
        "validation.max_sentences=4",
    ]
    words = [*options, "--no-count-flops", "--no-html", "--device", "cpu", "recipe=table3_base,table3_b_keys_16", "-m"]
    done = run_copy("train", str(corpus), *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    collect.main([str(tmp_path / "sweep"), str(tmp_path / "out")])
    results = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert [(one["row"], one["metric"]) for one in results] == [
        (row, metric)
        for row in ("base: 6 layers, width 512", "B: keys of 16")
        for metric in ("perplexity", "BLEU, development set")
    ] + [("all rows", "picture")]
    assert all(one["updates"] == 2 and one["ours"] >= 0 and "cores of" in one["hardware"] for one in results[:-1])
    assert results[1]["signature"].endswith(metadata.version("sacrebleu"))


def test_the_script_writes_results_and_a_picture(
    tmp_path: Path, modules: tuple[ModuleType, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    _, collect = modules
    collect.main([str(write_sweep(tmp_path / "sweep", REACHED)), str(tmp_path)])
    assert capsys.readouterr().out.startswith("| row | change |")
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert [(one["row"], one["metric"], one.get("ours", one.get("picture"))) for one in results] == [
        ("base: 6 layers, width 512", "perplexity", 10.5),
        ("base: 6 layers, width 512", "BLEU, development set", 30.5),
        ("A: 1 head of 512", "perplexity", 12.0),
        ("A: 1 head of 512", "BLEU, development set", 29.0),
        ("all rows", "picture", "images/table3.svg"),
    ]
    assert results[0]["minutes"] == 2.0
    assert results[1]["signature"] == "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1"
    assert (tmp_path / "images/table3.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_a_folder_without_a_sweep_is_refused(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    _, collect = modules
    with pytest.raises(MissingInputError, match=r"has no sweep\.jsonl"):
        collect.read(tmp_path)


def test_a_run_that_was_not_scored_is_refused(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    _, collect = modules
    sweep = write_sweep(tmp_path / "sweep", REACHED)
    (sweep / "base-1/log.jsonl").write_text('{"event": "valid", "ppl": 3.0}\n', encoding="utf-8")
    with pytest.raises(DataError, match="no validation with BLEU"):
        collect.read(sweep)


def test_a_run_that_diverged_is_named(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    _, collect = modules
    with pytest.raises(DataError, match=r"a_1_head-2 diverged: its perplexity is not a number; remove the folder"):
        collect.read(write_sweep(tmp_path / "sweep", REACHED | {("a_1_head", 2): (None, 0.0)}))


def test_a_run_without_a_seed_is_named(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    _, collect = modules
    sweep = write_sweep(tmp_path / "sweep", REACHED)
    (sweep / "base-2/config.yaml").unlink()
    with pytest.raises(DataError, match=r"base-2 has no config\.yaml with its seed"):
        collect.read(sweep)


@pytest.mark.parametrize("line", ["{", "3", '{"status": "finished"}'])
def test_a_damaged_record_is_shown(tmp_path: Path, modules: tuple[ModuleType, ModuleType], line: str) -> None:
    _, collect = modules
    (tmp_path / "sweep.jsonl").write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match="is damaged: this line is not a record of a run: "):
        collect.read(tmp_path)


def test_a_record_may_hold_any_text(tmp_path: Path, modules: tuple[ModuleType, ModuleType]) -> None:
    _, collect = modules
    sweep = write_sweep(tmp_path / "sweep", REACHED)
    failed = {"overrides": ["recipe=x"], "folder": "x", "status": "failed", "error": "a\u2028b"}
    with open(sweep / "sweep.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(failed, ensure_ascii=False) + "\n")
    assert len(collect.read(sweep)) == len(REACHED)


@pytest.mark.parametrize("name", ["out", "out/images"])
def test_a_folder_that_cannot_be_made_is_one_sentence(
    name: str, tmp_path: Path, modules: tuple[ModuleType, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    _, collect = modules
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("", encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        collect.main([str(write_sweep(tmp_path / "sweep", REACHED)), str(tmp_path / "out")])
    assert stopped.value.code and "cannot create" in capsys.readouterr().err


def test_without_a_finished_run_nothing_is_written(
    tmp_path: Path, modules: tuple[ModuleType, ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    _, collect = modules
    with pytest.raises(SystemExit) as stopped:
        collect.main([str(write_sweep(tmp_path / "sweep", {})), str(tmp_path / "out")])
    assert stopped.value.code == 65 and "has no finished run" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_matplotlib_all_but_the_picture_is_there(
    tmp_path: Path,
    modules: tuple[ModuleType, ModuleType],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, collect = modules
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit) as stopped:
        collect.main([str(write_sweep(tmp_path / "sweep", REACHED)), str(tmp_path / "out")])
    said = capsys.readouterr()
    assert stopped.value.code == 2 and "pip install '.[plots]'" in said.err
    assert said.out.startswith("| row | change |")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["results.json", "runs.json"]


def test_the_sweep_does_not_begin_without_matplotlib(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHON": "false", "NMT_DATA": str(tmp_path)}
    command = ["bash", str(FOLDER / "run.sh"), "runs"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install '.[plots]'" in done.stderr and not [*tmp_path.iterdir()]
