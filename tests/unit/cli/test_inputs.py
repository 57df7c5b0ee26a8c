"""Lines that say what is asked of their translations."""

from __future__ import annotations

import pytest

from nmt.config.choices import InputFormat
from nmt.errors import DataError
from nmt.translation import Line
from nmt_cli.formats import parse_lines


def read(form: InputFormat, *lines: str | None) -> list[str | Line | None]:
    return list(parse_lines(lines, form, "file"))


def test_plain_lines_stay_what_they_are() -> None:
    assert read(InputFormat.text, "a\tb", "", None, "{}") == ["a\tb", "", None, "{}"]


def test_phrases_follow_the_sentence_after_tabs() -> None:
    found = read(InputFormat.tsv, "ein mann", "ein mann\ta man\t!the man\t!a", "", None)
    assert found == [Line("ein mann"), Line("ein mann", include=("a man",), exclude=("the man", "a")), "", None]


def test_objects_hold_everything_by_name() -> None:
    line = '{"text": "ein mann", "prefix": "a", "include": ["man"], "exclude": ["the"]}'
    assert read(InputFormat.jsonl, line, '{"text": ""}', " ") == [
        Line("ein mann", "a", ("man",), ("the",)),
        Line(""),
        " ",
    ]
    assert read(InputFormat.jsonl, '{"text": "rot", "min_length": 2, "max_length": 2}') == [
        Line("rot", min_length=2, max_length=2)
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("ein mann", "file, line 2 is not JSON"),
        ('["ein mann"]', 'file, line 2 must be an object with a string as "text"'),
        ('{"prefix": "a"}', 'must be an object with a string as "text"'),
        ('{"text": "a", "prefx": "b"}', "has the unknown key 'prefx' .did you mean 'prefix'?"),
        ('{"text": "a", "prefix": 1}', '"prefix" must be a string'),
        ('{"text": "a", "include": "b"}', '"include" must be a list of strings'),
        ('{"text": "a", "exclude": [1]}', '"exclude" must be a list of strings'),
        ('{"text": "a", "include": [" "]}', "line 2 has an empty phrase"),
        ('{"text": "a", "min_length": 2.0}', 'file, line 2: "min_length" must be a whole number of tokens'),
        ('{"text": "a", "max_length": true}', 'line 2: "max_length" must be a whole number of tokens'),
        ('{"text": "a", "max_length": null}', 'line 2: "max_length" must be a whole number of tokens'),
        (
            '{"text": "a", "min_length": -1}',
            "file, line 2: min_length=-1 must be a whole number of tokens, from 1 to 10,000",
        ),
        (
            '{"text": "a", "min_length": 1000000000}',
            "line 2: min_length=1000000000 must be a whole number of tokens, from",
        ),
        ('{"text": "a", "max_length": 0}', "line 2: max_length=0 must be a whole number of tokens, from 1 to"),
        ('{"text": "a", "max_length": 1e99}', "must be a whole number"),
        (f'{{"text": "a", "max_length": {10**30}}}', "line 2: max_length=10+ must be a whole number of tokens, from 1"),
        (
            '{"text": "a", "min_length": 3, "max_length": 2}',
            "line 2: min_length=3 is more than max_length=2; lower min_length",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(line: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint.replace("?", r"\?")):
        read(InputFormat.jsonl, '{"text": "good"}', line)


@pytest.mark.parametrize("line", ["ein mann\t", "ein mann\t!", "ein mann\ta\t \tb"])
def test_an_empty_phrase_is_refused(line: str) -> None:
    with pytest.raises(DataError, match="file, line 1 has an empty phrase"):
        read(InputFormat.tsv, line)


@pytest.mark.parametrize(
    ("form", "line", "complaint"),
    [
        (InputFormat.jsonl, '{"text": "rot"}', "file, line 1 should have both a sentence and its reference"),
        (InputFormat.jsonl, '{"text": "", "reference": "red"}', "should have both a sentence and its reference"),
        (
            InputFormat.jsonl,
            '{"text": "rot", "reference": "red", "prefix": "r"}',
            "reads only a sentence and its reference; delete the other fields",
        ),
        (
            InputFormat.jsonl,
            '{"text": "rot", "reference": "red", "max_length": 3}',
            "reads only a sentence and its reference; delete the other fields",
        ),
        (InputFormat.tsv, "\tred", "should have both a sentence and its reference"),
        (InputFormat.tsv, "rot\tred\tx", "should have two fields"),
        (InputFormat.jsonl, "[" * 100_000, "is not JSON"),
    ],
)
def test_where_references_are_scored_every_line_has_one(form: InputFormat, line: str, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        list(parse_lines([line], form, "file", references=True))


def test_references_stand_beside_their_sentences() -> None:
    for form, line in ((InputFormat.tsv, "rot\tred"), (InputFormat.jsonl, '{"text": "rot", "reference": "red"}')):
        assert list(parse_lines([line, ""], form, "file", references=True)) == [Line("rot", reference="red"), ""]
