"""Faults of weights, embeddings, adapters and layers, through the commands: one line, its status, and no folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.parallel_task import SOURCE, Task
from tests.faults.tiny_runs import nmt_train, refused
from tests.tiny_models import write_tiny_model

ONES = ["1"] * len(SOURCE)


@pytest.mark.parametrize(
    ("weights", "status", "message"),
    [
        (["1", "-1", *ONES[2:]], 65, r"train\.weight:2: the weight -1 must be 0, or from 1e-20 to 1,000,000$"),
        (["1", "many", *ONES[2:]], 65, r"train\.weight:2: 'many' is not a weight; give numbers such as 0\.5$"),
        (["1", "1e39", *ONES[2:]], 65, r"train\.weight:2: the weight 1e\+39 must be 0"),
        (ONES[1:], 65, r"train\.weight has 17 lines, but .*train\.en has 18$"),
        (b"1\n\xff", 65, r"train\.weight:2:0: byte 0xff is not UTF-8 .*; write numbers, as UTF-8 text$"),
        (None, 66, r"neither .*train\.weight nor .* exists .*a dot and the suffix \(--weight-suffix\)$"),
    ],
    ids=["negative", "not a number", "too large", "too few", "not text", "missing"],
)
def test_fault_99_weights_are_refused_by_their_line(
    weights: bytes | list[str] | None, status: int, message: str, tmp_path: Path
) -> None:
    task = Task(tmp_path)
    if weights is not None:
        task.write("train.weight", weights)
    last = refused("preprocess", *task.arguments("--weight-suffix", "weight"), status=status)
    assert re.search(message, last), last
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ("a 1 2 3\n", 65, r"v\.txt has vectors of 3 numbers, but this model needs vectors of 8$"),
        ("a 1 nan\n", 65, r"v\.txt:1: the vector '1 nan' must have finite numbers only; correct it"),
        (None, 66, r"cannot read .*v\.txt: No such file"),
    ],
    ids=["another width", "not finite", "missing"],
)
def test_fault_100_embeddings_are_refused_before_the_run_begins(
    content: str | None, status: int, message: str, tmp_path: Path, copy_corpus: Path
) -> None:
    if content is not None:
        (tmp_path / "v.txt").write_text(content, encoding="utf-8")
    options = ["--source-embeddings", str(tmp_path / "v.txt")]
    last = nmt_train(copy_corpus, tmp_path / "run", *options, status=status).splitlines()[-1]
    assert re.search(message, last), last
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def base(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; do not write to it."""
    run = tmp_path_factory.mktemp("base") / "run"
    nmt_train(copy_corpus, run)
    return run


def adapt(corpus: Path, base: Path, run: Path, *more: str, status: int = 0) -> str:
    options = ["--finetune-from-model", str(base), "--lora-rank", "2", "--lr-scheduler", "constant"]
    return nmt_train(corpus, run, *options, *more, status=status).splitlines()[-1]


def replaced(base: Path, other: Path) -> None:
    shutil.rmtree(base)
    shutil.copytree(other, base)


@pytest.mark.parametrize(
    ("spoil", "status", "message"),
    [
        (replaced, 65, r"is an adapter\b.* another "),
        (lambda base, other: shutil.rmtree(base), 66, r"is an adapter\b.*(is missing|no model)"),
    ],
    ids=["another", "missing"],
)
def test_fault_101_an_adapter_needs_its_base(
    spoil: Callable[[Path, Path], object], status: int, message: str, base: Path, copy_corpus: Path, tmp_path: Path
) -> None:
    own, other, adapter = tmp_path / "own", tmp_path / "other", tmp_path / "adapter"
    shutil.copytree(base, own)
    nmt_train(copy_corpus, other, "--seed", "2")
    adapt(copy_corpus, own, adapter)
    spoil(own, other)
    output = tmp_path / "output"
    last = refused("generate", "--path", adapter, "--input", "/dev/null", "--output", output, "--cpu", status=status)
    assert re.search(message, last), last
    assert not output.exists()


def test_fault_102_a_pattern_that_matches_no_matrix_is_refused(base: Path, copy_corpus: Path, tmp_path: Path) -> None:
    last = adapt(copy_corpus, base, tmp_path / "run", "--lora-on", "decoder.*atention.*", status=2)
    assert re.search(r"lora_on: decoder\.\*atention\.\* matches none", last), last
    assert not (tmp_path / "run").exists()


def test_fault_102_a_layer_that_is_not_there_is_refused(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=1)
    options = ["--path", model, "--output", tmp_path / "smaller", "--encoder-layers-to-keep", "9"]
    last = refused("export", *options, status=2)
    assert last.endswith("--encoder-layers-to-keep 9: name each layer once, from 1 to 1"), last
    assert not (tmp_path / "smaller").exists()
