"""nmt-compare as a user starts it: a page or data, warnings, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nmt.config.comparing import CompareConfig
from tests.commands import run_copy
from tests.unit.comparing.test_comparison import BASE, BIG, REFERENCE, SOURCE
from tests.unit.reporting.test_attention_page import data_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    (folder / "other").mkdir()
    for name, lines in {
        "base.txt": BASE,
        "big.txt": BIG,
        "other/big.txt": BASE,
        "ref": REFERENCE,
        "second": [line.upper() for line in REFERENCE],
        "src": SOURCE,
        "train": ["the the the the the", "cat"],
        "train-in-pieces": [" ".join(["\u2581the"] * 5), "\u2581c at"],
        "short": BASE[:3],
        "empty": [],
        "cut": ["the c@@ at"] * 5,
    }.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "latin").write_bytes(b"h\xf6rt\n" + b"a\n" * 4)
    return folder


def compare(place: Path, line: str, stdin: str = "") -> tuple[int, str, list[str]]:
    done = run_copy("compare", *line.split(), cwd=place, stdin=stdin.encode(), LC_ALL="C")
    return done.returncode, done.stdout.decode(), done.stderr.decode().splitlines()


def as_data(place: Path, line: str, stdin: str = "") -> dict:
    status, output, log = compare(place, f"{line} --output x.json --overwrite", stdin)
    assert (status, output) == (0, "x.json\n"), log
    return json.loads((place / "x.json").read_text(encoding="utf-8"))


def test_a_page_is_written_and_its_name_is_printed(place):
    status, output, log = compare(place, "base.txt big.txt --ref ref --src src --output page.html --resamples 50")
    assert (status, output, log) == (0, "page.html\n", [])
    given = data_of((place / "page.html").read_text(encoding="utf-8"))
    assert (given["systems"], given["metrics"]) == (["base.txt", "big.txt"], ["BLEU", "chrF2"])
    assert given["sentences"]["1"]["source"] == SOURCE[0]


def test_figures_are_those_of_nmt_score(place):
    found = as_data(place, "base.txt big.txt --ref ref --metrics bleu,ter --resamples 100")["figures"]
    line = "--sys base.txt big.txt --ref ref --metrics bleu,ter --confidence --paired bootstrap --resamples 100"
    done = run_copy("score", *line.split(), "--format", "json", cwd=place)
    assert list(found.values()) == [system["scores"] for system in json.loads(done.stdout)]


def test_systems_have_the_names_that_they_are_given_else_those_of_their_files(place):
    line = "--ref ref --paired none --resamples 5"
    assert as_data(place, f"base.txt big.txt {line} --names old,new")["systems"] == ["old", "new"]
    assert as_data(place, f"other/big.txt big.txt {line}")["systems"] == ["other/big.txt", "big.txt"]
    stdin = "".join(f"{text}\n" for text in BIG)
    assert as_data(place, f"other/big.txt - {line}", stdin)["systems"] == ["big.txt", "standard input"]


def test_options_reach_the_comparison(place):
    line = (
        "base.txt big.txt --ref ref second --lowercase --tokenize none --count 1 --paired randomization --resamples 50"
    )
    found = as_data(place, f"{line} --train train --metrics chrf")
    assert (found["num_references"], found["lowercase"], found["tokenize"]) == (2, True, "none")
    assert found["counted_in"] == "training text" and len(found["pairs"][0]["gains"]) == 1
    signature = found["figures"]["big.txt"][0]["signature"]
    assert "nrefs:2" in signature and "ar:50" in signature and "case:lc" in signature


def test_lines_keep_their_numbers_where_others_are_left_out(place):
    found = as_data(place, "latin big.txt --ref ref --on-invalid-utf8 skip --paired none --resamples 5 --metrics chrf")
    assert found["lines"] == 4 and [one["number"] for one in found["sentences"]] == [2, 3, 4]


def test_text_in_pieces_is_joined_or_warned_of(place):
    line = "cut big.txt --ref ref --output x.html --overwrite --paired none --resamples 5"
    status, _, log = compare(place, line)
    assert status == 0 and any("contain subword marks" in one for one in log)
    joined = as_data(place, "cut big.txt --ref ref --remove-bpe --paired none --resamples 5")
    assert joined["sentences"][0]["translations"]["cut"]["text"] == "the cat"


def test_training_text_that_is_not_in_pieces_keeps_its_words(place):
    (place / "sp").write_text("\u2581the \u2581c at\n" * 5, encoding="utf-8")
    line = "sp base.txt --ref ref --remove-bpe sentencepiece --paired none --resamples 5"
    found = as_data(place, f"{line} --train train")
    assert 5 in [band["least"] for band in found["frequencies"]]  # "the" stands there five times
    assert found == as_data(place, f"{line} --train train-in-pieces")


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("base.txt --ref ref --output x.html", 2, "two files or more"),
        ("--ref ref --output x.html", 2, "two files or more"),
        ("base.txt base.txt --ref ref --output x.html", 2, "--sys names base.txt twice"),
        ("base.txt big.txt --output x.html", 2, "name the reference to compare with: --ref FILE"),
        ("base.txt big.txt --ref ref", 2, "name the file to write"),
        ("base.txt big.txt --ref ref --output x.txt", 2, "must end in .html or .json"),
        ("base.txt big.txt --ref ref --output x.html --names one", 2, "--names has 1 name for 2 systems"),
        ("base.txt big.txt --ref ref --output x.html --names one,one", 2, "--names contains one twice"),
        ("base.txt big.txt --ref ref --output x.html --metrics bluu", 2, "did you mean 'bleu'"),
        ("base.txt big.txt --ref ref --output x.html --tokenize 13b", 2, "unknown tokenizer '13b'"),
        ("base.txt big.txt --ref ref --output x.html --metrics comet", 2, "comet"),
        ("base.txt big.txt --ref ref --output x.html --count 0", 2, "count=0"),
        ("base.txt big.txt --ref ref --output x.html --resamples 0", 2, "resamples=0"),
        ("base.txt big.txt --ref ref --output none/x.html", 73, "none is not a folder"),
        ("base.txt none --ref ref --output x.html", 66, "none"),
        ("base.txt big.txt --ref none --output x.html", 66, "none"),
        ("base.txt big.txt --ref ref --src none --output x.html", 66, "none"),
        ("base.txt big.txt --ref ref --train none --output x.html", 66, "none"),
        ("base.txt big.txt --ref ref --train empty --output x.html", 65, "empty is empty"),
        ("base.txt short --ref ref --output x.html", 65, "base.txt has 5 lines, short has 3"),
        ("base.txt big.txt --ref short --output x.html", 65, "needs its reference on the same line"),
        ("base.txt big.txt --ref ref --src short --output x.html", 65, "base.txt has 5 lines, short has 3"),
        ("empty big.txt --ref ref --output x.html", 65, "empty has 0 lines, big.txt has 5"),
        ("latin big.txt --ref ref --output x.html", 65, "UTF-8"),
        ("base.txt big.txt --ref ref --train latin --output x.html", 65, "UTF-8"),
        ("base.txt big.txt --ref ref --metrics aer --output x.html", 65, "base.txt:1: 'the' is not a link"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(place, line, status, said):
    found, output, log = compare(place, f"{line} --overwrite")
    complaints = [one for one in log if one.startswith("nmt-compare: ")]
    assert (found, output) == (status, "") and len(complaints) == 1 and said in complaints[0], log


def test_empty_files_are_refused(place):
    (place / "nothing").write_text("", encoding="utf-8")
    status, _, log = compare(place, "empty nothing --ref empty --output x.html --overwrite")
    assert status == 65 and "empty is empty: there are no lines to score" in log[0]


def test_a_file_that_exists_is_kept_and_one_that_is_read_is_never_replaced(place):
    (place / "kept.html").write_text("mine", encoding="utf-8")
    status, _, log = compare(place, "base.txt big.txt --ref ref --output kept.html")
    assert status == 73 and "--overwrite" in log[0]
    (place / "read.json").write_text("\n" * 5, encoding="utf-8")
    status, _, log = compare(place, "base.txt read.json --ref ref --output read.json --overwrite")
    assert status == 73 and "would replace the input read.json" in log[0]
    assert (place / "kept.html").read_text(encoding="utf-8") == "mine"


def test_lines_that_are_all_alike_make_a_page_too(place):
    line = "base.txt other/big.txt --ref ref --output same.html --overwrite"
    assert compare(place, line)[0] == 0
    (pair,) = data_of((place / "same.html").read_text(encoding="utf-8"))["pairs"]
    assert (pair["better"], pair["worse"], pair["right"], pair["wrong"]) == (0, 0, [], [])


def test_intervals_and_a_test_are_made_unless_told_otherwise(place):
    config = CompareConfig()
    assert (config.paired.value, config.metrics, config.count) == ("bootstrap", ["bleu", "chrf"], 100)
    plain = as_data(place, "base.txt big.txt --ref ref --paired none --resamples 20")["figures"]["big.txt"][0]
    assert plain["interval"] > 0 and "p_value" not in plain
