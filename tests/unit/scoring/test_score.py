"""nmt.score: the figures of the command, as plain data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.errors import DataError, NMTError, UsageError
from tests.commands import run_copy

SYSTEMS = {
    "a": ["the cat sat on the mat", "a dog runs in a park", "two men play chess"],
    "b": ["the cat sat on a mat", "a dog is running in the park", "men play chess"],
}
REFERENCES = ["the cat sat on a mat", "a dog is running in the park", "two men are playing chess"]


def test_one_system_has_a_figure_for_each_metric() -> None:
    found = nmt.score(SYSTEMS["b"], REFERENCES, metrics=["exact", "chrf"])
    assert list(found) == ["exact", "chrf"]
    assert found["exact"].value == found["exact"].score.value == pytest.approx(200 / 3)
    assert found["chrf"].score.signature.startswith("nrefs:1|case:mixed|")
    assert found["chrf"].interval is None and found["chrf"].p_value is None


def test_several_systems_have_what_the_command_prints(tmp_path: Path) -> None:
    for name, lines in {**SYSTEMS, "ref": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    options = (
        "--metrics",
        "bleu,ter",
        "--confidence",
        "--paired",
        "randomization",
        "--resamples",
        "50",
        "--format",
        "json",
    )
    printed = json.loads(run_copy("score", "a", "b", "--ref", "ref", *options, cwd=tmp_path).stdout)
    found = nmt.score(
        SYSTEMS, REFERENCES, metrics=["bleu", "ter"], confidence=True, paired="randomization", resamples=50
    )
    for system in printed:
        for theirs in system["scores"]:
            figure = found[system["sys"]][theirs["metric"]]
            assert (figure.value, figure.mean, figure.interval) == (theirs["score"], theirs["mean"], theirs["interval"])
            assert figure.p_value == theirs.get("p_value")
            assert figure.score.signature == theirs["signature"]
    assert found["b"]["bleu"].p_value is not None


def test_several_references_are_lists() -> None:
    assert nmt.score(SYSTEMS["a"], [REFERENCES, SYSTEMS["a"]], metrics=["exact"])["exact"].value == 100


@pytest.mark.parametrize(
    ("arguments", "options", "kind", "message"),
    [
        ((SYSTEMS["a"], "one line"), {}, UsageError, "score takes lists of lines"),
        (("one line", ["one line"]), {}, UsageError, "score takes lists of lines"),
        (({"a": "one line"}, ["one line"]), {}, UsageError, "score takes lists of lines"),
        ((SYSTEMS["a"], [REFERENCES, "one line"]), {}, UsageError, "score takes lists of lines"),
        (({}, REFERENCES), {}, UsageError, "there is no system to score"),
        ((["0-0"] * 2, ["0-0", "x"]), {"metrics": ["aer"]}, DataError, "reference 1:2: 'x' is not a link"),
        ((SYSTEMS["a"], REFERENCES), {"metrics": "bleu"}, UsageError, "metrics='bleu' is not a list of words"),
        ((SYSTEMS["a"], REFERENCES), {"metrics": []}, UsageError, "name a metric"),
        ((SYSTEMS["a"], REFERENCES), {"metrics": ["blue"]}, NMTError, "did you mean 'bleu'"),
        ((SYSTEMS["a"], REFERENCES), {"metrics": ["comet"]}, UsageError, "'comet'"),
        (
            (SYSTEMS["a"], REFERENCES),
            {"lower": True},
            UsageError,
            "score has no option 'lower' (did you mean 'lowercase'?)",
        ),
        ((SYSTEMS["a"], REFERENCES[:2]), {}, DataError, "hypotheses has 3 lines, but the references have 2"),
        ((SYSTEMS, REFERENCES, ["one"]), {}, DataError, "sources has 1 line, but the references have 3"),
        (([], []), {}, DataError, "there are no lines to score"),
        ((SYSTEMS, []), {}, UsageError, "there are no references"),
        ((SYSTEMS["a"], REFERENCES), {"paired": "bootstrap"}, UsageError, "compares the first system with others"),
        ((SYSTEMS, REFERENCES), {"paired": "bootstrp"}, UsageError, "paired='bootstrp' must be one of none, bootstrap"),
        ((SYSTEMS["a"], REFERENCES), {"tokenize": "13"}, UsageError, "unknown tokenizer '13'"),
    ],
)
def test_what_cannot_be_scored_is_said(
    arguments: Any, options: dict[str, Any], kind: type[NMTError], message: str
) -> None:
    with pytest.raises(kind) as raised:
        nmt.score(*arguments, **options)
    assert message in str(raised.value)


def test_systems_are_no_option() -> None:
    with pytest.raises(UsageError, match="score has no option 'sys'.*; there are: metrics, confidence"):
        nmt.score(SYSTEMS["a"], REFERENCES, sys=["x"])
