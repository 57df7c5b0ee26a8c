"""Weights beside the text, in a column or in a field become weights of pairs or of target tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import InvalidText, WeightKind
from nmt.config.preprocessing import FilterConfig, PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import CharConfig, WordsConfig
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.preprocessing.preprocess import preprocess

SOURCES, TARGETS = ["a b", "b", "c c c", "a"], ["x y z", "x", "y y", ""]
WEIGHTS = ["2", "0.5", "0", "1e-1"]


@pytest.fixture
def prepared(tmp_path: Path) -> Callable[..., Corpus]:
    def prepare(weights: list[str] | None = None, **options: Any) -> Corpus:
        for name, lines in (("src", SOURCES), ("tgt", TARGETS), ("weight", weights)):
            for split in ("train", "valid") if lines is not None else ():
                (tmp_path / f"{split}.{name}").write_text("".join(f"{line}\n" for line in lines or ()))
        text: dict[str, Any] = {"trainpref": str(tmp_path / "train"), "validpref": str(tmp_path / "valid")}
        chosen = {"tokenizer": WordsConfig(), "weight_suffix": "weight"} | text | options
        preprocess(PreprocessConfig("src", "tgt", destdir=str(tmp_path / "corpus"), overwrite=True, **chosen))
        return Corpus.open(tmp_path / "corpus")

    return prepare


def rows(corpus: Corpus, split: str = "train") -> list[list[float]]:
    opened = corpus.split(split)
    assert opened.weights is not None
    return [opened.weights[number].tolist() for number in range(len(opened))]


def test_each_kept_pair_has_its_weight(prepared: Callable[..., Corpus]) -> None:
    corpus = prepared(WEIGHTS)
    assert rows(corpus) == [[2.0], [0.5], [0.0]], "the pair with an empty target is dropped"
    assert rows(corpus, "valid") == [[2.0], [0.5], [0.0], [pytest.approx(0.1)]]
    fingerprint = corpus.fingerprint("train")
    assert prepared(["2", "0.5", "1", "1"]).fingerprint("train") != fingerprint


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
def test_a_column_and_a_field_hold_weights_too(prepared: Callable[..., Corpus], tmp_path: Path, form: str) -> None:
    path = tmp_path / f"train.{form}"
    tsv = [f"{weight}\t{target}\t{source}" for source, target, weight in zip(SOURCES, TARGETS, WEIGHTS)]
    tree = [
        {"s": source, "t": [target], "w": {"x": float(weight)}}
        for source, target, weight in zip(SOURCES, TARGETS, WEIGHTS)
    ]
    lines = tsv if form == "tsv" else [json.dumps({**line, "t": line["t"][0]}) for line in tree]
    path.write_text("".join(f"{line}\n" for line in lines))
    options = (
        {"weight_column": 1, "columns": [3, 2]} if form == "tsv" else {"weight_field": "w.x", "fields": ["s", "t"]}
    )
    corpus = prepared(trainpref=str(path), validpref=None, weight_suffix=None, **options)
    assert rows(corpus) == [[2.0], [0.5], [0.0]]


@pytest.mark.parametrize("invalid", [InvalidText.skip, InvalidText.replace])
def test_text_that_is_not_utf8_leaves_its_weight_readable(
    prepared: Callable[..., Corpus], tmp_path: Path, invalid: InvalidText
) -> None:
    path = tmp_path / "train.tsv"
    path.write_bytes(b"a b\tx y\t2\nb \xff\tx\t3\nc\ty\t4\n")
    options = {"weight_suffix": None, "weight_column": 3, "on_invalid_utf8": invalid}
    corpus = prepared(trainpref=str(path), validpref=str(path), **options)
    middle = [[3.0]] if invalid is InvalidText.replace else []
    assert rows(corpus) == [[2.0], *middle, [4.0]]
    assert rows(corpus, "valid") == [[2.0], *(middle or [[1.0]]), [4.0]], "a skipped pair stays as an empty one"


def test_validation_text_may_lack_the_column(prepared: Callable[..., Corpus], tmp_path: Path) -> None:
    for split, weights in (("train", WEIGHTS), ("valid", [])):
        rows_of = zip(SOURCES, TARGETS, *([weights] if weights else []))
        (tmp_path / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in rows_of))
    files = {"trainpref": str(tmp_path / "train.tsv"), "validpref": str(tmp_path / "valid.tsv")}
    corpus = prepared(weight_suffix=None, weight_column=3, **files)
    assert rows(corpus) == [[2.0], [0.5], [0.0]] and corpus.split("valid").weights is None


def test_weights_of_words_or_tokens_become_those_of_tokens_and_the_end_has_weight_one(
    prepared: Callable[..., Corpus],
) -> None:
    words = prepared(["1 2 3", "4", "5 6", ""], weight_kind=WeightKind.token)
    assert rows(words) == [[1, 2, 3, 1], [4, 1], [5, 6, 1]]
    of_letters = ["7 8 9", "4", "1 2 3", ""]  # of "y y" with a token for the space
    letters = prepared(of_letters, weight_kind=WeightKind.token, tokenizer=CharConfig())
    targets = letters.split("train").targets
    assert targets is not None
    assert [len(row) for row in rows(letters)] == [len(targets[number]) for number in range(3)]
    assert set(rows(letters)[0][:-1]) == {7, 8, 9} and rows(letters)[0][-1] == 1


def test_shards_join_to_the_weights_of_one_run(prepared: Callable[..., Corpus], tmp_path: Path) -> None:
    whole = rows(prepared(WEIGHTS))
    tokenizer = str(tmp_path / "corpus" / "tokenizer")
    filters = FilterConfig()
    for part in ("1/2", "2/2"):
        text = {"srcdict": tokenizer, "tgtdict": tokenizer, "shard": part, "validpref": None, "filters": filters}
        config = PreprocessConfig(
            "src", "tgt", str(tmp_path / "train"), destdir=str(tmp_path / "shards"), weight_suffix="weight", **text
        )
        preprocess(config)
    preprocess(PreprocessConfig("src", "tgt", merge=str(tmp_path / "shards"), destdir=str(tmp_path / "merged")))
    assert rows(Corpus.open(tmp_path / "merged")) == whole == rows(Corpus.open(tmp_path / "shards"))


@pytest.mark.parametrize(
    ("weights", "options", "error", "message"),
    [
        (["1", "-1", "1", "1"], {}, DataError, r"train.weight:2: the weight -1 must be 0, or from 1e-20 to 1,000,000$"),
        (["1", "1", "nan", "1"], {}, DataError, r"train.weight:3: the weight nan must be 0"),
        (["1", "1e39", "1", "1"], {}, DataError, r"train.weight:2: the weight 1e\+39 must be 0"),
        (["1000000", "1000001", "1", "1"], {}, DataError, r"train.weight:2: the weight 1000001 must be 0"),
        (["1e-20", "1e-21", "1", "1"], {}, DataError, r"train.weight:2: the weight 1e-21 must be 0"),
        (["1", "one", "1", "1"], {}, DataError, r"train.weight:2: 'one' is not a weight; give numbers such as 0.5"),
        (["0.00", "0e9", "-0", "1_0"], {}, DataError, r"train.weight:4: '1_0' is not a weight"),
        (["1", "1e-400", "1", "1"], {}, DataError, r"train.weight:2: '1e-400' is not a weight"),
        (["1", "1", "1"], {}, DataError, r"train.weight has 3 lines, but .*train.src has 4"),
        (["1", "1 2", "1", "1"], {}, DataError, r"train.weight:2: 2 numbers instead of one; .*--weight-kind token"),
        (["1", "", "1", "1"], {}, DataError, r"train.weight:2: 0 numbers instead of one"),
        (
            ["1 1", "1", "1 1", ""],
            {"weight_kind": WeightKind.token},
            DataError,
            r"weight:1: 2 weights, but the target has 3 words",
        ),
        (None, {"weight_suffix": "missing"}, MissingInputError, r"a dot and the suffix \(--weight-suffix\)$"),
        (
            WEIGHTS,
            {"weight_column": 3},
            UsageError,
            "--weight-column has no effect, because there is no text of --tsv; omit it",
        ),
        (
            WEIGHTS,
            {"weight_suffix": None, "weight_column": 3},
            UsageError,
            "training text .*train.src has no weights; set --weight-suffix",
        ),
        (
            WEIGHTS,
            {"weight_suffix": "src"},
            UsageError,
            "--weight-suffix src is not a suffix of weight files",
        ),
        (WEIGHTS, {"weight_column": 0}, UsageError, "weight_column=0 must be at least 1"),
        (
            WEIGHTS,
            {"weight_suffix": None, "weight_kind": WeightKind.token},
            UsageError,
            "--weight-kind token needs weights",
        ),
        (WEIGHTS, {"only_source": True}, UsageError, "weights are for training, but --only-source"),
    ],
)
def test_faulty_weights_are_refused_and_nothing_is_written(
    prepared: Callable[..., Corpus],
    tmp_path: Path,
    weights: list[str] | None,
    options: dict[str, Any],
    error: type[NMTError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        prepared(weights, **options)
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("form", ["tsv", "jsonl"])
@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ("1e39", r":2: the weight 1e\+39 must be 0, or from 1e-20 to 1,000,000"),
        ("1e-50", ":2: the weight 1e-50 must be 0"),
        ("true", ":2: 'true' is not a weight"),
        ("null", ":2: 'null' is not a weight"),
    ],
)
def test_columns_and_fields_have_the_same_bounds(
    prepared: Callable[..., Corpus], tmp_path: Path, form: str, weight: str, message: str
) -> None:
    weights = ["1", weight, "1", "1"]
    lines = {
        "tsv": [f"a\tb\t{weight}" for weight in weights],
        "jsonl": [f'{{"src": "a", "tgt": "b", "w": {weight}}}' for weight in weights],
    }
    (tmp_path / f"train.{form}").write_text("".join(f"{line}\n" for line in lines[form]))
    options: dict[str, Any] = {"weight_column": 3} if form == "tsv" else {"weight_field": "w"}
    with pytest.raises(DataError, match=message):
        prepared(trainpref=str(tmp_path / f"train.{form}"), validpref=None, weight_suffix=None, **options)
    assert not (tmp_path / "corpus").exists()


def test_files_and_columns_of_several_texts_have_their_own_options(
    prepared: Callable[..., Corpus], tmp_path: Path
) -> None:
    (tmp_path / "more.tsv").write_text("a\tx\t7\n")
    options = {"trainpref": f"{tmp_path}/train,{tmp_path}/more.tsv", "weight_column": 3}
    assert rows(prepared(WEIGHTS, **options)) == [[2.0], [0.5], [0.0], [7.0]]


@pytest.mark.parametrize("invalid", list(InvalidText))
def test_a_file_that_is_not_text_is_an_error_without_a_useless_option(
    prepared: Callable[..., Corpus], tmp_path: Path, invalid: InvalidText
) -> None:
    prepared(WEIGHTS)
    (tmp_path / "train.weight").write_bytes(b"1\n\xff\n1\n1\n")
    with pytest.raises(DataError, match=r"train.weight:2:0: byte 0xff is not UTF-8 .*; write numbers, as UTF-8 text$"):
        prepared(None, on_invalid_utf8=invalid)


def test_damaged_weights_are_found(prepared: Callable[..., Corpus], tmp_path: Path) -> None:
    corpus = prepared(WEIGHTS)
    path = tmp_path / "corpus" / "train.weights.npy"
    for damaged in (-1.0, np.nan, np.inf, 1e7):
        np.save(path, np.array([1.0, damaged, 1.0], dtype=np.float32))
        with pytest.raises(DataError, match="is damaged: it should hold one row of weights from 0 to 1,000,000"):
            corpus.split("train")
