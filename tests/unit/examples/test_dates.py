"""The generator of the date task, read back by a parser that shares no code with it."""

from __future__ import annotations

import gzip
import importlib.util
import json
import random
import re
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "date"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"date_{name}", FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


generate, convert = load("generate"), load("convert")

MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
ROMAN = ["i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii"]


def parse(text: str) -> date:
    """The one reading that the conventions leave: an oracle that works from the text alone."""
    text = re.sub(r"(\d)(st|nd|rd|th)\b", r"\1", text.lower())
    if re.fullmatch(r"\d{8}", text):
        return date(int(text[:4]), int(text[4:6]), int(text[6:]))
    if numbers := re.fullmatch(r"(\d{4})([-/.])(\d+)\2(\d+)", text):
        return date(int(numbers[1]), int(numbers[3]), int(numbers[4]))
    if numbers := re.fullmatch(r"(\d+)/(\d+)/(\d+)", text):
        return date(full_year(numbers[3]), int(numbers[1]), int(numbers[2]))
    if numbers := re.fullmatch(r"(\d+)\. ?(\d+)\. ?(\d+)", text):
        return date(full_year(numbers[3]), int(numbers[2]), int(numbers[1]))
    month = next(number for word in re.findall(r"[a-z]+", text) if (number := month_number(word)))
    numbers_left = re.findall(r"'?\d+", text)
    if len(numbers_left[0]) == 4:
        year, day = numbers_left
    else:
        day, year = numbers_left
    return date(full_year(year), month, int(day))


def full_year(digits: str) -> int:
    digits = digits.lstrip("'")
    return int(digits) if len(digits) == 4 else 1900 + int(digits) + (100 if int(digits) < 69 else 0)


def month_number(word: str) -> int | None:
    if word in ROMAN:
        return ROMAN.index(word) + 1
    if word[:3] in MONTHS and word != "monday" and word != "mon":
        return MONTHS.index(word[:3]) + 1
    return None


SAMPLE = [date(1950, 1, 1) + timedelta(days=13 * step) for step in range(2809)]


def test_there_are_at_least_twenty_formats_with_names_of_their_own() -> None:
    assert len({form.name for form in generate.FORMATS}) == len(generate.FORMATS) >= 20


@pytest.mark.parametrize("form", generate.FORMATS, ids=lambda form: form.name)
def test_every_format_reads_back(form: object) -> None:
    for when in SAMPLE:
        if form not in generate.formats_for(when):
            continue
        text = form.write(when)  # type: ignore[attr-defined]
        assert {parse(text), parse(text.lower()), parse(text.upper())} == {when}, text


def test_no_text_has_two_readings() -> None:
    """Dates of years in which day, month and two-digit year look alike."""
    readings: dict[str, date] = {}
    for when in (date(2000, 1, 1) + timedelta(days=offset) for offset in range(13 * 365)):
        for form in generate.formats_for(when):
            text = form.write(when).lower()
            assert readings.setdefault(text, when) == when, text


@pytest.mark.parametrize("when", [date(1968, 12, 31), date(1950, 1, 1)])
def test_years_outside_the_two_digit_rule_are_written_in_full(when: date) -> None:
    assert all(str(when.year) in form.write(when) for form in generate.formats_for(when))


ORDINALS = {
    1: "1st",
    2: "2nd",
    3: "3rd",
    4: "4th",
    11: "11th",
    12: "12th",
    13: "13th",
    21: "21st",
    22: "22nd",
    31: "31st",
}


@pytest.mark.parametrize(("day", "text"), ORDINALS.items())
def test_ordinals(day: int, text: str) -> None:
    assert generate.ordinal(day) == text


def test_held_out_dates_occur_in_no_other_set() -> None:
    sets = generate.generate(size=5000, held_out=300, seed=3)
    dates = {name: {target for _, target in pairs} for name, pairs in sets.items()}
    assert dates["train"].isdisjoint(dates["valid"] | dates["test"])
    assert dates["valid"].isdisjoint(dates["test"])
    assert len(dates["valid"]) == len(dates["test"]) == 300


def test_pairs_are_right_and_sources_vary() -> None:
    pairs = generate.generate(size=3000, held_out=10, seed=5)["train"]
    assert all(parse(source).isoformat() == target for source, target in pairs)
    shapes = {re.sub(r"\d+", "9", re.sub(r"[A-Z]+", "A", re.sub(r"[a-z]+", "a", source))) for source, _ in pairs}
    assert len(shapes) > len(generate.FORMATS)  # formats, and the ways of writing letters


def test_the_seed_decides_everything() -> None:
    assert generate.generate(50, 5, seed=7) == generate.generate(50, 5, seed=7)
    assert generate.generate(50, 5, seed=7) != generate.generate(50, 5, seed=8)


def test_command_writes_parallel_files(tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "generate.py", tmp_path, "--size", "40", "--held-out", "7", "--seed", "2"]
    subprocess.run(command, check=True)
    counts = {file.name: len(file.read_text(encoding="utf-8").split("\n")) - 1 for file in tmp_path.iterdir()}
    expected = {"train": 40, "valid": 7, "test": 7}
    assert counts == {f"{name}.{suffix}": n for name, n in expected.items() for suffix in ("src", "tgt")}


def test_upper_and_lower_case_occur() -> None:
    form = next(form for form in generate.FORMATS if form.name == "month_day_year")
    generator = random.Random(1)
    texts = {generate.write(date(1994, 9, 27), form, generator) for _ in range(100)}
    assert texts == {"September 27, 1994", "september 27, 1994", "SEPTEMBER 27, 1994"}


def test_conversion_follows_the_textbooks_split(tmp_path: Path) -> None:
    lines = [f"{f'september {day}, 1994':<29}_1994-09-{day:02d}" for day in range(1, 31)]
    file = tmp_path / "date.txt"
    file.write_text("\n".join(lines) + "\n")
    subprocess.run([sys.executable, FOLDER / "convert.py", file, tmp_path / "out"], check=True)
    np.random.seed(1984)
    order = np.arange(30)
    np.random.shuffle(order)
    sources = [f"september {number + 1}, 1994" for number in order]
    assert (tmp_path / "out" / "train.src").read_text().split("\n") == [*sources[:27], ""]
    assert (tmp_path / "out" / "valid.src").read_text().split("\n") == [*sources[27:], ""]
    assert (tmp_path / "out" / "valid.tgt").read_text().startswith(f"1994-09-{order[27] + 1:02d}\n")


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


TEN = "".join(f"{day} May 1976 _1976-05-{day:02}\n" for day in range(1, 11)).encode()


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        (TEN + b"no separator\n", 65, "date.txt:11: no underscore between source and target: 'no separator'"),
        (TEN[:46], 65, "date.txt has 2 lines; give at least 10, because a tenth is for validation"),
        (TEN + b"\xff_\n", 65, "date.txt:11:"),
        (gzip.compress(TEN, mtime=0)[:-9], 65, "it was cut short"),
        (None, 66, "date.txt: No such file or directory"),
    ],
)
def test_a_file_that_is_no_task_is_one_sentence(
    content: bytes | None, status: int, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "date.txt"
    if content is not None:
        file.write_bytes(content)
    result = run("convert.py", file, tmp_path / "out")
    assert (result.returncode, result.stderr.count("\n")) == (status, 1)
    assert message in result.stderr


@pytest.mark.parametrize("script", ["convert.py", "generate.py"])
def test_a_folder_that_cannot_be_made_is_one_sentence(script: str, tmp_path: Path) -> None:
    (tmp_path / "date.txt").write_bytes(TEN)
    folder = tmp_path / "date.txt" / "text"
    given = [tmp_path / "date.txt", folder] if script == "convert.py" else [folder, "--size", 1, "--held-out", 1]
    result = run(script, *given)
    assert (result.returncode, result.stderr.count("\n")) == (73, 1)
    assert f"cannot create {folder}" in result.stderr


def run_folder(path: Path, *scores: float) -> Path:
    path.mkdir()
    events = [
        {"event": "valid", "update": 10 * epoch, "epoch": epoch, "exact": score}
        for epoch, score in enumerate(scores, 1)
    ]
    (path / "log.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events), encoding="utf-8")
    return path


def compare(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run("compare.py", *arguments)


def test_runs_are_compared_in_one_picture(tmp_path: Path) -> None:
    picture = tmp_path / "comparison.svg"
    result = compare(picture, run_folder(tmp_path / "one", 1.0, 99.0), run_folder(tmp_path / "two", 0.0))
    assert result.returncode == 0 and result.stdout == f"comparison: {picture}\n"
    assert picture.read_text().startswith("<svg")


def test_a_run_without_exact_match_is_named(tmp_path: Path) -> None:
    result = compare(tmp_path / "comparison.svg", run_folder(tmp_path / "empty"))
    assert result.returncode != 0 and "empty" in result.stderr and "--valid-metrics exact" in result.stderr
    assert not (tmp_path / "comparison.svg").exists()


def ended(run: Path) -> Path:
    """The same run with what begins and ends a log."""
    log = (run / "log.jsonl").read_text(encoding="utf-8")
    ends = [{"event": "start", "update": 0, "model": {"parameters": 5}}, {"event": "end", "update": 40, "seconds": 60}]
    (run / "log.jsonl").write_text(log + "".join(f"{json.dumps(event)}\n" for event in ends), encoding="utf-8")
    return run


def test_the_comparison_keeps_the_first_epochs_and_the_last(tmp_path: Path) -> None:
    run = ended(run_folder(tmp_path / "one", 1.0, 50.0, 70.0, 99.0))
    kept = tmp_path / "results.json"
    result = compare(tmp_path / "comparison.svg", run, "--results", kept)
    assert result.returncode == 0, result.stderr
    results = json.loads(kept.read_text(encoding="utf-8"))
    assert [(one["row"], one["metric"], one["ours"]) for one in results] == [
        ("one", "exact match, % after epoch 1", 1.0),
        ("one", "exact match, % after epoch 2", 50.0),
        ("one", "exact match, % after epoch 4", 99.0),
    ]
    (signature,) = {one["signature"] for one in results}
    assert signature.startswith("nrefs:1|case:mixed|unit:line|version:nmt-")


def test_the_comparison_keeps_rows_epochs_and_what_was_published(tmp_path: Path) -> None:
    runs = [ended(run_folder(tmp_path / name, 1.0, 50.0, 70.0, 99.0)) for name in ("one", "two")]
    kept = tmp_path / "results.json"
    named = ["--rows", "an LSTM", "a Transformer", "--epochs", 3, "--setting", "few dates"]
    published = ["--published", "a Transformer", 3, "60.5"]
    result = compare(tmp_path / "comparison.svg", *runs, *named, *published, "--results", kept)
    assert result.returncode == 0, result.stderr
    results = json.loads(kept.read_text(encoding="utf-8"))
    assert [(one["row"], one["metric"][-7:], one.get("published")) for one in results] == [
        ("an LSTM", "epoch 3", None),
        ("an LSTM", "epoch 4", None),
        ("a Transformer", "epoch 3", 60.5),
        ("a Transformer", "epoch 4", None),
    ]
    assert {one["setting"] for one in results} == {"few dates"}
    assert "a Transformer" in (tmp_path / "comparison.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--rows", "a", "b"], 2, "--rows has 2 names for 1 run; give one for each"),
        (["--published", "two", "1", "9"], 2, "--published names the unknown row 'two'; the rows are one"),
        (["--published", "one", "1", "many"], 2, "epoch and figure must be numbers, not 1 and many"),
        (["--results", "results.json"], 65, "has not ended: train it to its end first"),
    ],
)
def test_what_cannot_be_kept_is_one_sentence(
    options: list[str], status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = compare("comparison.svg", run_folder(tmp_path / "one", 1.0), *options)
    assert result.returncode == status
    assert message in result.stderr and "Traceback" not in result.stderr


def test_two_runs_of_one_name_are_told_apart_or_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    runs = [run_folder(tmp_path / "a" / "run", 1.0), run_folder(tmp_path / "b" / "run", 2.0)]
    result = compare(tmp_path / "comparison.svg", *runs)
    assert result.returncode == 2
    assert "two runs have the same name (run, run); give them different names with --rows" in result.stderr
    assert compare(tmp_path / "comparison.svg", *runs, "--rows", "a", "b").returncode == 0
