"""nmt-score with several systems: every figure is that of sacreBLEU's command line."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nmt.config.choices import ScoreFormat
from nmt.scoring.tables import table_lines
from tests.commands import run_copy

WORDS = "The quick brown fox jumps over a lazy dog and runs into the dark , old forest .".split()
COUNT = 120


def changed(line: str, share: float, chosen: random.Random) -> str:
    return " ".join(chosen.choice(WORDS) if chosen.random() < share else word for word in line.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """References, and systems of which b is better than a, and c nearly as good as b."""
    folder, chosen = tmp_path_factory.mktemp("systems"), random.Random(1)
    references = [" ".join(chosen.choices(WORDS, k=chosen.randint(3, 40))) for _ in range(COUNT)]
    texts = {"ref": references, "src": [line.upper() for line in references]}
    texts |= {
        name: [changed(line, share, chosen) for line in references]
        for name, share in (("a", 0.4), ("b", 0.2), ("c", 0.22))
    }
    texts["labels"] = [f"domain {number % 3}" for number in range(COUNT)]
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def score(folder: Path, *arguments: str, status: int = 0, **environment: str) -> str:
    done = run_copy("score", *arguments, cwd=folder, **environment)
    assert done.returncode == status, done.stderr.decode()
    return (done.stdout if status == 0 else done.stderr).decode()


def as_json(folder: Path, *arguments: str, **environment: str) -> Any:
    return json.loads(score(folder, *arguments, "--format", "json", **environment))


def sacrebleu(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "sacrebleu", "ref", *arguments, "--format", "json", "--force", "-w", "6"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


METRICS = ("--metrics", "bleu,chrf,ter")


def test_intervals_are_those_of_sacrebleu(folder: Path) -> None:
    theirs = sacrebleu(folder, "-i", "a", "-m", "bleu", "chrf", "ter", "--ter-case-sensitive", "--confidence")
    ours = as_json(folder, "--sys", "a", "--ref", "ref", *METRICS, "--confidence")["scores"]
    for our, their in zip(ours, theirs, strict=True):
        assert our["score"] == pytest.approx(their["score"], abs=1e-5)
        assert our["mean"] == pytest.approx(their["confidence_mean"], abs=1e-5)
        assert our["interval"] == pytest.approx(their["confidence_var"], abs=1e-5)
        assert our["signature"] == their["signature"]


TESTED = re.compile(r"([\d.]+) \(([\d.]+) ± ([\d.]+)\)")
PROBABLE = re.compile(r"\(p = ([\d.]+)\)")


def of_sacrebleus_test(folder: Path, *arguments: str) -> tuple[list[tuple[float, ...]], list[float]]:
    """Score, mean and interval, and the p-values, row by row: its JSON cannot hold all of these figures."""
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "a", "b", "c", "-m", "bleu", "chrf", "ter", *arguments]
    options = ["--ter-case-sensitive", "--format", "text", "--force", "-w", "6"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True, check=True)
    figures = [tuple(map(float, found)) for found in TESTED.findall(done.stdout)]
    return figures, [float(found) for found in PROBABLE.findall(done.stdout)]


def test_p_values_and_intervals_of_a_paired_bootstrap_are_those_of_sacrebleu(folder: Path) -> None:
    figures, probable = of_sacrebleus_test(folder, "--paired-bs", "--paired-bs-n", "300")
    found = paired(folder, "bootstrap")
    assert len(figures) == len(found) == 9 and len(probable) == 6
    for figure, (value, mean, interval) in zip(found, figures):
        assert figure["score"] == pytest.approx(value, abs=1e-5)
        assert (figure["mean"], figure["interval"]) == pytest.approx((mean, interval), abs=1e-5)
    assert [figure["p_value"] for figure in found[3:]] == pytest.approx(probable, abs=6e-5)
    assert "p_value" not in found[0] and max(probable[:3]) < 0.01


@pytest.mark.parametrize("test", ["bootstrap", "randomization"])
def test_a_system_does_not_differ_from_itself(folder: Path, test: str) -> None:
    options = ("--metrics", "bleu,exact", "--paired", test, "--resamples", "50")
    (folder / "same").write_bytes((folder / "a").read_bytes())
    _, same = as_json(folder, "--sys", "a", "same", "--ref", "ref", *options)
    assert [figure["p_value"] for figure in same["scores"]] == [1.0, 1.0]


def test_p_values_of_a_randomization_are_those_of_sacrebleu(folder: Path) -> None:
    _, probable = of_sacrebleus_test(folder, "--paired-ar", "--paired-ar-n", "300")
    found = paired(folder, "randomization")
    assert len(probable) == 6
    assert [figure["p_value"] for figure in found[3:]] == pytest.approx(probable, abs=6e-5)
    assert "|bs:1000|ar:300|seed:12345|" in found[0]["signature"]  # the intervals are those of resampled texts
    alone = as_json(folder, "--sys", "b", "--ref", "ref", *METRICS, "--confidence")["scores"]
    assert [(one["mean"], one["interval"]) for one in alone] == [(one["mean"], one["interval"]) for one in found[3:6]]


def paired(folder: Path, test: str) -> list[dict[str, Any]]:
    """The figures of three systems, one after the other."""
    asked = ("--paired", test, "--resamples", "300", "--confidence")
    ours = as_json(folder, "--sys", "a", "b", "c", "--ref", "ref", *METRICS, *asked)
    assert [one["sys"] for one in ours] == ["a", "b", "c"]
    return [figure for one in ours for figure in one["scores"]]


def test_a_table_names_systems_and_marks_differences_that_are_hardly_chance(folder: Path) -> None:
    lines = score(
        folder, "--sys", "b", "a", "c", "--ref", "ref", "--paired", "bootstrap", "--resamples", "200"
    ).splitlines()
    assert lines[0].split() == ["system", "BLEU"]
    assert [line.split()[0] for line in lines[1:4]] == ["b", "a", "c"]
    assert "(p = 0.0050)*" in lines[2] and "*" not in lines[3] and "p" not in lines[1]
    assert lines[5].startswith("BLEU|nrefs:1|bs:200|seed:12345|")
    assert lines[6] == "p: probability of the difference to b by chance; *: below 0.05"
    assert len(lines) == 7


def test_an_interval_stands_in_the_line_of_one_system(folder: Path) -> None:
    (line,) = score(folder, "--sys", "a", "--ref", "ref", "--confidence", "--resamples", "50").splitlines()
    assert line.startswith("BLEU|nrefs:1|bs:50|seed:12345|case:mixed") and " (μ = " in line and " ± " in line


def test_tables_for_markdown_and_latex(folder: Path) -> None:
    markdown = score(
        folder, "--sys", "a", "b", "--ref", "ref", "--format", "markdown", "--confidence", "--resamples", "50"
    )
    assert markdown.splitlines()[0].startswith("| system | BLEU")
    assert set(markdown.splitlines()[1]) == {"|", "-"}
    latex = score(folder, "--sys", "a", "b", "--ref", "ref", "--format", "latex", "--confidence", "--resamples", "50")
    assert latex.startswith("\\begin{tabular}{ll}") and r"$\pm$" in latex
    assert latex.splitlines()[-1].startswith("% BLEU|nrefs:1")
    assert table_lines(["a_b|c"], [["5 %"]], ScoreFormat.latex)[2:5] == [r"a\_b|c \\", "\\hline", r"5 \% \\"]
    assert table_lines(["a|b"], [], ScoreFormat.markdown)[0] == r"| a\|b |"


def test_scores_of_each_line_are_those_of_sacrebleu(folder: Path) -> None:
    command = [sys.executable, "-m", "sacrebleu", "ref", "-i", "a", "-m", "bleu", "--sentence-level", "-b", "-w", "6"]
    theirs = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    (ours,) = as_json(folder, "--sys", "a", "--ref", "ref", "--sentence")
    assert ours["scores"] == pytest.approx([float(score) for score in theirs], abs=1e-4)
    lines = score(folder, "--sys", "a", "b", "--ref", "ref", "--sentence", "--metrics", "bleu,exact").splitlines()
    assert lines[0].split("\t") == ["line", "a bleu", "a exact", "b bleu", "b exact"] and len(lines) == COUNT + 1
    assert lines[1].split("\t")[:2] == ["1", f"{float(theirs[0]):.2f}"]


def test_parts_of_a_text_are_scored_as_texts_of_their_own(folder: Path) -> None:
    references, hypotheses = ((folder / name).read_text().splitlines() for name in ("ref", "a"))
    found = as_json(folder, "--sys", "a", "--ref", "ref", "--split-by", "length", "--src", "src")
    assert [one.get("part") for one in found] == [None, *[f"{b}-{b + 9} words" for b in (0, 10, 20, 30)], "40-49 words"]
    assert sum(one["lines"] for one in found[1:]) == found[0]["lines"] == COUNT
    short = [number for number, line in enumerate(references) if len(line.split()) < 10]
    for name, lines in (("few", references), ("few.a", hypotheses)):
        (folder / name).write_text("".join(f"{lines[number]}\n" for number in short), encoding="utf-8")
    assert as_json(folder, "--sys", "few.a", "--ref", "few")["scores"][0]["score"] == found[1]["scores"][0]["score"]
    assert as_json(folder, "--sys", "a", "--ref", "ref", "--split-by", "length") == found
    by_label = score(folder, "--sys", "a", "b", "--ref", "ref", "--split-by", "labels").splitlines()
    assert by_label[0].split() == ["part", "lines", "system", "BLEU"]
    assert [line[:8] for line in by_label[3:9:2]] == ["domain 0", "domain 1", "domain 2"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--sys", "a", "b", "a"], 2, "--sys names a twice; omit one"),
        (
            ["--sys", "a", "--paired", "bootstrap"],
            2,
            "--paired compares the first system with others; name at least two",
        ),
        (["--sys", "a", "--sentence", "--confidence"], 2, "--sentence prints scores of single lines"),
        (["--sys", "a", "--resamples", "9"], 2, "--resamples 9 is for --confidence and --paired"),
        (["--sys", "a", "--src", "src"], 2, "--src src is for --signs, --split-by length and"),
        (["--sys", "a", "b", "--confidence", "--resamples", "0"], 2, "resamples"),
        (["--sys", "a", "gone"], 66, "gone"),
        (["--sys", "a", "few"], 65, "few has"),
        (["--sys", "a", "--split-by", "few"], 65, "each hypothesis needs its counterpart on the same line"),
        (["--sys", "a", "--split-by", "unlabelled"], 65, "unlabelled:2: the line has no label"),
        (["--sys", "a", "--ref", "blank"], 65, "blank has only empty lines"),
        (
            ["--sys", "a", "--metrics", "word_overlap", "--user-dir", "plugin.py", "--confidence"],
            2,
            "has no scores of single lines",
        ),
    ],
)
def test_what_does_not_go_together_is_said_in_one_line(
    folder: Path, arguments: list[str], status: int, says: str
) -> None:
    (folder / "few").write_text("one line\n", encoding="utf-8")
    (folder / "unlabelled").write_text("domain\n \n" + "domain\n" * (COUNT - 2), encoding="utf-8")
    (folder / "blank").write_text(" \n" * COUNT, encoding="utf-8")
    (folder / "plugin.py").write_text(
        "from dataclasses import dataclass\nfrom nmt.scoring import scorers\n@dataclass\nclass C: ...\n"
        "@scorers.register('word_overlap', C)\nclass W:\n    def __init__(self, config, text): ...\n",
        encoding="utf-8",
    )
    message = score(folder, *arguments, "--ref", "ref", status=status)
    assert says in message.splitlines()[-1] and "Traceback" not in message


@pytest.mark.parametrize(
    ("changed", "references", "said"),
    [
        (str.lower, "ref", "the hypotheses are in lower case, but the references are not; --lowercase"),
        (str.upper, "ref", "the hypotheses are in upper case, but the references are not; --lowercase"),
        (str, "src", "the references are in upper case, but the hypotheses are not; --lowercase"),
    ],
)
def test_another_casing_is_told(folder: Path, changed: Callable[[str], str], references: str, said: str) -> None:
    (folder / "cased").write_text(changed((folder / "ref").read_text()), encoding="utf-8")
    asked = ("--sys", "cased", "--ref", references, "--tokenize", "none")
    (line,) = run_copy("score", *asked, cwd=folder).stderr.decode().splitlines()
    assert said in line
    done = run_copy("score", *asked, "--lowercase", cwd=folder)
    assert done.returncode == 0 and not done.stderr


def test_lines_without_letters_say_nothing_of_casing(tmp_path: Path) -> None:
    for name, line in (("hyp", ""), ("zh", "\u732b"), ("ref", "The Cat")):
        (tmp_path / name).write_text(f"{line}\n" * 3, encoding="utf-8")
    for asked in (("--sys", "hyp", "--ref", "ref"), ("--sys", "ref", "--ref", "zh")):
        done = run_copy("score", *asked, cwd=tmp_path)
        assert done.returncode == 0 and not done.stderr


def test_warnings_name_the_system_or_the_references(tmp_path: Path) -> None:
    texts = {"plain": "The cat, too.", "cut": "The c@@ at, too.", "tokenized": "The cat , too ."}
    for name, line in texts.items():
        (tmp_path / name).write_text(f"{line}\n" * 3, encoding="utf-8")
    lines = run_copy("score", "plain", "cut", "--ref", "plain", cwd=tmp_path).stderr.decode().splitlines()
    assert len(lines) == 1 and "3 of 3 hypotheses of cut contain subword marks" in lines[0]
    assert "the hypotheses of cut are in subword tokens, the references in words" in lines[0]
    lines = run_copy("score", "plain", "cut", "--ref", "cut", cwd=tmp_path).stderr.decode().splitlines()
    assert len(lines) == 2 and "the references are in subword tokens, the hypotheses of plain in words" in lines[0]
    lines = run_copy("score", "plain", "--ref", "tokenized", cwd=tmp_path).stderr.decode().splitlines()
    assert len(lines) == 1 and " the references look tokenized (spaces around punctuation)" in lines[0]
    asked = ("plain", "tokenized", "--ref", "tokenized")
    (line,) = run_copy("score", *asked, cwd=tmp_path).stderr.decode().splitlines()
    assert " the hypotheses of tokenized, the references look tokenized" in line


def test_scores_of_lines_have_their_numbers_in_the_files(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_bytes(b"\xff\nb\n\xff\nd\n")
    (tmp_path / "ref").write_text("a\nb\nc\nx\n", encoding="utf-8")
    asked = ("--ref", "ref", "--sentence", "--metrics", "exact", "--on-invalid-utf8", "skip")
    assert score(tmp_path, "hyp", *asked).splitlines() == ["line\texact", "2\t100.00", "4\t0.00"]
    (found,) = as_json(tmp_path, "hyp", *asked)
    assert found == {"sys": "hyp", "metric": "exact", "numbers": [2, 4], "scores": [100.0, 0.0]}


def test_labels_are_no_text_that_is_joined(tmp_path: Path) -> None:
    for name, text in (("hyp", "the c@@ at\nx\n"), ("ref", "the cat\ny\n"), ("labels", "a@@ b\nc\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    asked = ("--ref", "ref", "--metrics", "exact", "--remove-bpe", "--split-by", "labels")
    found = as_json(tmp_path, "hyp", *asked)
    assert [(one.get("part"), one["scores"][0]["score"]) for one in found] == [
        (None, 50.0),
        ("a@@ b", 100.0),
        ("c", 0.0),
    ]


def test_rouge_l_is_the_longest_common_subsequence(tmp_path: Path) -> None:
    (tmp_path / "hyp").write_text("police kill the gunman\nthe gunman kill police\nx\n")
    (tmp_path / "ref").write_text("police killed the gunman\npolice killed the gunman\n\n")
    (figure,) = as_json(tmp_path, "--sys", "hyp", "--ref", "ref", "--metrics", "rouge_l")["scores"]
    assert figure["score"] == pytest.approx(100 * (3 / 4 + 2 / 4 + 0) / 3)
    assert figure["name"] == "ROUGE-L" and figure["signature"].startswith(
        "nrefs:1|case:mixed|tok:13a|f:1|mean:lines|version:nmt-"
    )


def test_the_bleu_of_the_paper_has_intervals_and_p_values(folder: Path) -> None:
    pytest.importorskip("sacremoses", reason="sacremoses is not installed: nmt-toolkit[moses]")
    asked = ("--metrics", "paper_bleu", "--language", "en", "--paired", "bootstrap", "--resamples", "100")
    found = as_json(folder, "--sys", "a", "b", "--ref", "ref", *asked, "--confidence")
    first, second = (one["scores"][0] for one in found)
    assert first["name"] == "paper BLEU" and "tok:moses-en" in first["signature"]
    assert first["interval"] > 0 and second["p_value"] < 0.05
    assert score(folder, "--sys", "a", "--ref", "ref", *asked[:4], "--sentence").count("\n") == COUNT + 1


def test_a_reference_that_is_no_tree_is_named_by_file_and_line(tmp_path: Path) -> None:
    for name, lines in (("a", ["(S (NN x))"] * 3), ("gold", ["(S (NN x))", "(S (NP (NN x)))", "(S (NN x)"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    message = score(tmp_path, "--sys", "a", "--ref", "gold", "--metrics", "brackets", status=65)
    assert message.splitlines()[-1].endswith("gold:3: the bracket at character 1 is not closed")
    (tmp_path / "gold").write_bytes(b"(S (NN x))\n\xff\n(S (NN x)\n")
    skipped = ("--on-invalid-utf8", "skip")
    message = score(tmp_path, "--sys", "a", "--ref", "gold", "--metrics", "brackets", *skipped, status=65)
    assert "gold:3: " in message.splitlines()[-1]


def test_brackets_have_intervals(tmp_path: Path) -> None:
    lines = {"a": ["(S (NP (NN x)))", "(S (NN x))"] * 10, "gold": ["(S (NP (NN x)))"] * 20}
    for name, trees in lines.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in trees), encoding="utf-8")
    (figure,) = as_json(tmp_path, "--sys", "a", "--ref", "gold", "--metrics", "brackets", "--confidence")["scores"]
    assert figure["score"] == pytest.approx(100 * 60 / 70) and 0 < figure["interval"] < 20


def test_a_line_that_is_no_alignment_is_named_by_file_and_line(tmp_path: Path) -> None:
    for name, text in (("a", "0-0\n1-1\n"), ("b", "0-0\n1:1\n"), ("gold", "0-0 1?1\n0-0\n"), ("bad", "0-0\n0-0 x\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    asked = ("--metrics", "aer", "--paired", "bootstrap", "--resamples", "10")
    message = score(tmp_path, "--sys", "a", "b", "--ref", "gold", *asked, status=65)
    assert message.splitlines()[-1].endswith(
        "b:2: '1:1' is not a link; write 0-0 (in a reference, a possible link: 0?0 or 0p0)"
    )
    message = score(tmp_path, "--sys", "a", "--ref", "bad", "--metrics", "aer", status=65)
    assert "bad:2: 'x' is not a link" in message
    assert score(tmp_path, "--sys", "a", "--ref", "gold", "--metrics", "aer").startswith("AER|nrefs:1|links:pharaoh|")


@pytest.fixture
def troubled(tmp_path: Path) -> Path:
    texts = {
        "src": ["ein Hund", "zwei Hunde", "drei", "vier"],
        "ref": ["a dog", "two dogs", "three", "four"],
        "good": ["a dog", "two dogs", "three", "four"],
        "bad": ["ein Hund", "", "three " * 12, "fo|ur"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path


def test_signs_of_trouble_stand_below_the_scores(troubled: Path) -> None:
    asked = ("--ref", "ref", "--signs", "--src", "src", "--metrics", "exact")
    lines = score(troubled, "--sys", "good", "bad", *asked).splitlines()
    assert lines[4:6] == [lines[4], ""] and lines[4].startswith("exact match|")
    assert [re.split(r"  +", line) for line in lines[6:]] == [
        ["sign of trouble", "good", "bad"],
        ["length ratio", "1.000", "2.500"],
        ["empty", "0 (0.0 %)", "1 (25.0 %)"],
        ["over-long", "0 (0.0 %)", "1 (25.0 %)"],
        ["repeated n-grams", "0 (0.0 %)", "1 (25.0 %)"],
        ["copies of the source", "0 (0.0 %)", "1 (25.0 %)"],
        ["length far from the source", "0 (0.0 %)", "2 (50.0 %)"],
    ]
    lines = score(troubled, "--sys", "bad", "--ref", "ref", "--signs", "--metrics", "exact").splitlines()
    assert (
        lines[0].startswith("exact match|") and len(lines) == 7 and lines[2].split() == ["sign", "of", "trouble", "bad"]
    )


def test_signs_in_other_formats(troubled: Path) -> None:
    asked = ("--sys", "bad", "--ref", "ref", "--signs", "--src", "src")
    found = as_json(troubled, *asked)["signs"]
    assert found["length_ratio"] == 2.5 and found["empty"] == {"count": 1, "share": 0.25}
    assert list(found) == ["length_ratio", "empty", "over_long", "repeated", "copies", "unusual_length"]
    parts = as_json(troubled, *asked, "--split-by", "length")
    assert ["signs" in one for one in parts] == [True, False]
    markdown = score(troubled, *asked, "--format", "markdown").splitlines()
    assert "| copies of the source       | 1 (25.0 %) |" in markdown
    latex = score(troubled, *asked, "--format", "latex")
    assert r"copies of the source & 1 (25.0 \%) \\" in latex and latex.count("\\begin{tabular}") == 2
    message = score(troubled, *asked, "--sentence", status=2)
    assert "omit --confidence, --paired, --split-by and --signs" in message


FAKE_COMET = """#!{python}
import json, sys
given = dict(zip(sys.argv[1::1], sys.argv[2::1]))
with open({log!r}, "a") as log:
    log.write(" ".join(word for word in sys.argv[1:] if "/" not in word) + "\\n")
columns = [open(given[flag]).read().splitlines() for flag in ("-s", "-t", "-r")]
scores = [(len(set(m.split()) & set(r.split())) + len(s) / 1000) / (len(r.split()) + 1) for s, m, r in zip(*columns)]
json.dump({{given["-t"]: [{{"COMET": score}} for score in scores]}}, open(given["--to_json"], "w"))
"""
FAKE_METRICX = """#!{python}
import json, sys
given = dict(zip(sys.argv[1::1], sys.argv[2::1]))
with open(given["--output_file"], "w") as output:
    for line in open(given["--input_file"]):
        row = json.loads(line)
        row["prediction"] = 25.0 * (row["hypothesis"] != row["reference"]) + len(row["source"]) / 1000
        output.write(json.dumps(row) + "\\n")
"""
BROKEN = """#!/bin/sh
echo starting; echo 'no GPU was found' >&2; exit 3
"""


@pytest.fixture
def programs(folder: Path) -> Path:
    """Programs in a folder ``bin``, and the calls of the first one in a file."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    texts = {"comet-score": FAKE_COMET, "fake-metricx": FAKE_METRICX, "broken": BROKEN}
    for name, text in texts.items():
        filled = text if name == "broken" else text.format(python=sys.executable, log=str(folder / "calls"))
        (place / name).write_text(filled, encoding="utf-8")
        (place / name).chmod(0o755)
    (folder / "calls").write_text("", encoding="utf-8")
    return folder


def with_programs(folder: Path, **variables: str) -> dict[str, str]:
    """An environment with these programs on PATH."""
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "NMT_COMET": "", "NMT_METRICX": "", **variables}


def comet_by_hand(folder: Path, system: str) -> list[float]:
    lines = zip(*((folder / name).read_text().splitlines() for name in ("src", system, "ref")))
    return [100 * (len(set(m.split()) & set(r.split())) + len(s) / 1000) / (len(r.split()) + 1) for s, m, r in lines]


def test_comet_is_the_mean_of_what_its_program_says(programs: Path) -> None:
    asked = ("--ref", "ref", "--src", "src", "--metrics", "comet")
    (figure,) = as_json(programs, "--sys", "a", *asked, **with_programs(programs))["scores"]
    expected = comet_by_hand(programs, "a")
    assert figure["score"] == pytest.approx(sum(expected) / COUNT)
    assert figure["signature"].startswith("nrefs:1|model:default|mean:lines|scale:100|version:nmt-")
    (lines,) = as_json(programs, "--sys", "a", *asked, "--sentence", **with_programs(programs))
    assert lines["scores"] == pytest.approx(expected, abs=1e-4)


def test_the_program_runs_once_for_a_system_with_parts_and_tests(programs: Path) -> None:
    environment = with_programs(programs, NMT_COMET="comet-score --model some/model --gpus 0")
    asked = ("--ref", "ref", "--src", "src", "--metrics", "comet", "--split-by", "length")
    tests = ("--paired", "bootstrap", "--resamples", "100", "--confidence")
    found = as_json(programs, "--sys", "a", "b", *asked, *tests, **environment)
    calls = (programs / "calls").read_text().splitlines()
    assert calls == ["--model --gpus 0 -s -t -r --quiet --to_json"] * 2
    assert "|model:some/model|" in found[0]["scores"][0]["signature"]
    assert found[1]["scores"][0]["p_value"] < 0.05 and found[0]["scores"][0]["interval"] > 0
    numbers = [
        number for number, line in enumerate((programs / "src").read_text().splitlines()) if len(line.split()) < 10
    ]
    expected = comet_by_hand(programs, "a")
    assert found[2]["part"] == "0-9 words"
    assert found[2]["scores"][0]["score"] == pytest.approx(sum(expected[n] for n in numbers) / len(numbers))


def test_metricx_counts_errors(programs: Path) -> None:
    environment = with_programs(programs, NMT_METRICX="fake-metricx --model_name_or_path=some/metricx")
    asked = ("--ref", "ref", "--src", "src", "--metrics", "metricx")
    line = score(programs, "--sys", "ref", *asked, **environment)
    mean = sum(map(len, (programs / "src").read_text().splitlines())) / COUNT / 1000
    assert line.startswith("MetricX|nrefs:1|model:some/metricx|mean:lines|") and line.endswith(f" = {mean:.2f}\n")
    (figure,) = as_json(programs, "--sys", "a", *asked, **environment)["scores"]
    assert figure["higher_is_better"] is False and 20 < figure["score"] < 25.5


def test_what_hinders_a_learned_metric_is_said_in_one_line(programs: Path) -> None:
    def said(metric: str, *more: str, status: int = 2, **variables: str) -> str:
        asked = ("--sys", "a", "--ref", "ref", "--metrics", metric, *more)
        message = score(programs, *asked, status=status, **with_programs(programs, **variables))
        assert "Traceback" not in message
        return message.splitlines()[-1]

    src = ("--src", "src")
    assert "the metric 'comet' needs the sources: --src FILE" in said("comet")
    assert "runs a command that NMT_METRICX names: install MetricX" in said("metricx", *src)
    assert "takes one reference, not 2" in said("comet", *src, "--ref", "b")
    absent = said("comet", *src, NMT_COMET="no-such-program")
    assert "runs the program no-such-program, which is not installed: pip install unbabel-comet" in absent
    assert "NMT_COMET=a 'b is not a valid command line" in said("comet", *src, NMT_COMET="a 'b")
    broken = said("comet", *src, status=1, NMT_COMET="broken")
    assert broken.endswith("broken ended with status 3: no GPU was found")
    silent = said("comet", *src, status=1, NMT_COMET="true")
    assert silent.endswith("true wrote no scores: no output")
    assert "cannot read the scores that sh" in said(
        "metricx", *src, status=1, NMT_METRICX="sh -c 'echo nonsense > $4' x"
    )
    (programs / "no-program").write_text("nonsense", encoding="utf-8")
    (programs / "no-program").chmod(0o755)
    unstarted = said("comet", *src, status=1, NMT_COMET=str(programs / "no-program"))
    assert unstarted.endswith("no-program cannot be started: Exec format error")
    line = '{\\"prediction\\": NaN}'
    nowhere = said(
        "metricx", *src, status=1, NMT_METRICX=f"sh -c 'for i in $(seq {COUNT}); do echo \"{line}\"; done > $4' x"
    )
    assert "cannot read the scores that sh wrote: ValueError('a score is not finite')" in nowhere
