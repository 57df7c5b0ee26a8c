"""Parallel text as it comes: two files, columns, JSON, standard input, and several of them one behind the other."""

from __future__ import annotations

import gzip
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.config.choices import InvalidText
from nmt.data.text.lines import Reading
from nmt.data.text.packed_files import zstd
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.preprocessing.input_text import find_texts
from tests.unit.preprocessing.small_text import SOURCE, TARGET, Text

PAIRS = list(zip(SOURCE, TARGET))


@pytest.fixture
def text(tmp_path: Path) -> Text:
    return Text(tmp_path)


def columns(pairs: list[tuple[str, str]], template: str = "{0}\t{1}") -> bytes:
    return "".join(template.format(*pair) + "\n" for pair in pairs).encode()


def objects(pairs: list[tuple[str, str]], **more: Any) -> bytes:
    lines = (json.dumps({"en": source, "de": target, **more}, ensure_ascii=False) for source, target in pairs)
    return "".join(f"{line}\n" for line in lines).encode()


def place(text: Text, name: str, content: bytes) -> str:
    (text.folder / name).write_bytes(content)
    return str(text.folder / name)


def found(text: Text, **options: Any) -> list[tuple[str | None, str | None]]:
    """The training pairs that options name."""
    texts = find_texts(replace(text.config, **({"trainpref": None} | options)), text.folder / "input")
    assert texts[0].split == "train" and texts[0].count(Reading()) == len(list(texts[0].pairs(Reading())))
    return list(texts[0].pairs(Reading()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.tsv", columns(PAIRS)),
        ("x.tsv.gz", gzip.compress(columns(PAIRS), mtime=0)),
        ("x.tsv.zst", zstd.compress(columns(PAIRS))),
        ("x.jsonl", objects(PAIRS)),
        ("x.jsonl.gz", gzip.compress(objects(PAIRS, score=3), mtime=0)),
    ],
)
def test_a_file_with_both_sides_is_known_by_its_name(text: Text, name: str, content: bytes) -> None:
    assert found(text, trainpref=place(text, name, content)) == PAIRS


def test_training_text_of_all_forms_stands_one_behind_the_other(text: Text) -> None:
    first, second = place(text, "one.tsv", columns(PAIRS[:3])), place(text, "other.jsonl", objects(PAIRS[3:5]))
    table, lines = place(text, "table.txt", columns(PAIRS[5:6])), place(text, "lines.txt", objects(PAIRS[6:7]))
    given = found(text, trainpref=f"{first}, {text.folder}/train,{second}", tsv=table, jsonl=lines)
    assert given == [*PAIRS[:3], *PAIRS, *PAIRS[3:5], *PAIRS[5:6], *PAIRS[6:7]]


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_a_corpus_is_the_same_whatever_form_its_text_has(text: Text, form: str) -> None:
    usual, _ = text.make(validpref=f"{text.folder}/valid")
    writer = {"tsv": columns, "jsonl": objects}[form]
    files = {name: place(text, f"{name}.{form}", writer(pairs)) for name, pairs in (("t", PAIRS), ("v", PAIRS[:2]))}
    other, _ = text.make(trainpref=files["t"], validpref=files["v"], destdir=f"{text.folder}/other")
    for split in ("train", "valid"):
        assert other.fingerprint(split) == usual.fingerprint(split)
    for side in ("en", "de"):
        assert (other.folder / f"valid.{side}.txt").read_bytes() == (usual.folder / f"valid.{side}.txt").read_bytes()


def test_columns_are_named_by_numbers(text: Text) -> None:
    path = place(text, "x.tsv", columns(PAIRS, "{1}\tscore\t{0}\tmore"))
    assert found(text, trainpref=path, columns=[3, 1]) == PAIRS


def test_fields_of_json_are_named_and_may_stand_in_another(text: Text) -> None:
    nested = place(
        text,
        "x.jsonl",
        b"".join(b'{"id": 1, "translation": ' + line + b"}\n" for line in objects(PAIRS).split(b"\n")[:-1]),
    )
    assert found(text, trainpref=nested, fields=["translation.en", "translation.de"]) == PAIRS
    dotted = place(text, "y.jsonl", b'{"a.b": "x", "c": "y"}\n')
    assert found(text, trainpref=dotted, fields=["a.b", "c"]) == [("x", "y")]


def test_line_breaks_within_a_field_of_json_are_spaces(text: Text) -> None:
    assert found(text, trainpref=place(text, "x.jsonl", b'{"en": "a\\nb\\r\\u2028c", "de": "d"}\n')) == [
        ("a b  c", "d")
    ]


@pytest.mark.parametrize(("option", "content"), [("tsv", columns(PAIRS)), ("jsonl", objects(PAIRS))])
def test_standard_input_is_read_like_a_file_and_leaves_none(
    text: Text, monkeypatch: pytest.MonkeyPatch, option: str, content: bytes
) -> None:
    usual, _ = text.make()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    before = {path.name for path in text.folder.iterdir()}
    piped, _ = text.make(trainpref=None, destdir=f"{text.folder}/piped", **{option: "-"})
    assert piped.fingerprint("train") == usual.fingerprint("train")
    assert {path.name for path in text.folder.iterdir()} - before == {"piped"}
    assert piped.manifest["text"] == [], "what nobody can look at again is no file of the text"


def test_a_fault_in_standard_input_is_named_so_and_leaves_nothing(text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"a\tb\nc\n")))
    before = {path.name for path in text.folder.iterdir()}
    with pytest.raises(DataError, match=r"^standard input:2: no column 2, only 1 tab-separated column \('c'\)"):
        text.make(trainpref=None, tsv="-")
    assert {path.name for path in text.folder.iterdir()} == before


def test_a_line_with_bad_bytes_is_left_out_on_both_sides(text: Text) -> None:
    path = place(text, "x.tsv", columns(PAIRS[:8]) + b"a\xff\tb\n")
    corpus, report = text.make(trainpref=path, on_invalid_utf8=InvalidText.skip)
    assert len(corpus.split("train")) == 8
    assert report.splits[0].dropped["bytes that are not text"].first_line == 9


def test_a_source_alone_needs_one_column(text: Text) -> None:
    known, _ = text.make()
    path = place(text, "x.tsv", b"".join(f"{source}\n".encode() for source in SOURCE))
    corpus, _ = text.make(
        trainpref=None, testpref=path, destdir=f"{text.folder}/test", srcdict=str(known.folder), only_source=True
    )
    assert len(corpus.split("test")) == len(SOURCE) and corpus.only_source


def test_alignments_stand_beside_each_part(text: Text) -> None:
    place(text, "x.tsv", columns(PAIRS[:2]))
    place(text, "x.align", b"0-0\n1-1 2-1\n")
    place(text, "train.align", b"0-0\n" * len(PAIRS))
    corpus, _ = text.make(trainpref=f"{text.folder}/x.tsv,{text.folder}/train", align_suffix="align")
    alignments = corpus.split("train").alignments
    assert alignments is not None
    assert [alignments[number].tolist() for number in (1, 2, 10)] == [[[1, 1], [2, 1]], [[0, 0]], [[0, 0]]]
    place(text, "x.align", b"0-0\n")
    with pytest.raises(DataError, match=r"x\.align has 1 line, but .*x\.tsv has 2"):
        text.make(trainpref=f"{text.folder}/x.tsv,{text.folder}/train", align_suffix="align", overwrite=True)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"[1]\n", r"x\.jsonl:1: no field 'en'; there is \[1\] \(set the fields"),
        (b'{"en": "a", "de": "b"}\n{"en": "a", "fr": "b"}\n', r"x\.jsonl:2: no field 'de'; there is en, fr"),
        (b'{"en": "a", "de": 3}\n', "field 'de' holds 3, which is not text"),
        (b'{"en": "a", "de": null}\n', "field 'de' holds null, which is not text"),
        (b'{"en": "a\\u0000", "de": "b"}\n', "field 'en' holds NUL"),
        (b'{"en": "\\ud800", "de": "b"}\n', r"field 'en' holds U\+D800, which is not a character"),
        (b"en: a\n", "'en: a' is not JSON; each line should be an object"),
        (b"[" * 100_000 + b"\n", "is not JSON"),
        (b"", "is empty"),
    ],
)
def test_a_line_that_is_no_pair_is_named(text: Text, content: bytes, says: str) -> None:
    with pytest.raises(DataError, match=says):
        text.make(trainpref=place(text, "x.jsonl", content))
    assert not (text.folder / "corpus").exists()


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"trainpref": "no/x.tsv"}, MissingInputError, r"no/x\.tsv does not exist \(working directory"),
        ({"tsv": "."}, MissingInputError, r"\. is a folder"),
        ({"trainpref": "-"}, UsageError, "standard input must hold both sides of each pair; give --tsv - or --jsonl -"),
        ({"tsv": "-", "jsonl": "-"}, UsageError, "standard input can be read only once"),
        (
            {"tsv": "-", "align_suffix": "align"},
            UsageError,
            "files next to the text, which standard input does not have",
        ),
        ({"columns": [0, 1]}, UsageError, r"columns=\[0, 1\] must be two numbers from 1 on"),
        ({"columns": [1]}, UsageError, r"columns=\[1\] must be two numbers"),
        ({"fields": ["en"]}, UsageError, r"fields=\['en'\] must be two names"),
    ],
)
def test_what_cannot_be_read_is_refused(
    text: Text, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], kind: type[Exception], says: str
) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(columns(PAIRS))))
    with pytest.raises(kind, match=says):
        text.make(**options)
