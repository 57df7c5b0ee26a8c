"""Finding files, and saying where two of them come apart."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.text.lines import Reading
from nmt.data.text.parallel import TwoFiles, find_file, first_misaligned
from nmt.errors import DataError, MissingInputError


def test_a_plain_file_comes_before_a_packed_one(tmp_path: Path) -> None:
    (tmp_path / "train.en.gz").touch()
    assert find_file(f"{tmp_path}/train", "en") == tmp_path / "train.en.gz"
    (tmp_path / "train.en").touch()
    assert find_file(f"{tmp_path}/train", "en") == tmp_path / "train.en"


def test_a_missing_file_is_named_both_ways(tmp_path: Path) -> None:
    with pytest.raises(
        MissingInputError, match=r"neither .*train\.en nor .*train\.en\.gz or \.xz or \.zst exists \(working directory"
    ):
        find_file(f"{tmp_path}/train", "en")


def test_a_folder_or_pipe_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.en").mkdir()
    with pytest.raises(MissingInputError, match="is a folder"):
        find_file(f"{tmp_path}/train", "en")
    os.mkfifo(tmp_path / "train.de")
    with pytest.raises(
        MissingInputError, match="train.de is a pipe, and the text is read more than once; write it to a file"
    ):
        find_file(f"{tmp_path}/train", "de")


LENGTHS = st.lists(st.integers(1, 1000), min_size=30, max_size=60, unique=True)


@given(LENGTHS, st.integers(0, 29), st.integers(1, 3), st.booleans())
def test_surplus_lines_are_located_by_the_lengths_alone(lengths: list[int], at: int, surplus: int, swap: bool) -> None:
    shorter = np.array(lengths, dtype=float)
    longer = np.insert(shorter, [at] * surplus, np.arange(surplus) + 5000.0)
    sides = (longer, shorter) if swap else (shorter, longer)
    assert first_misaligned(*sides) == at + 1


@pytest.mark.parametrize("at", [0, 5, 15, 16, 29])
@pytest.mark.parametrize("ratio", [0.8, 1.25])
def test_lengths_that_fall_or_grow_along_the_file_are_no_difference_of_the_languages(at: int, ratio: float) -> None:
    shorter = np.round(1000 * 0.8 ** np.arange(30)) if ratio < 1 else np.round(2 * ratio ** np.arange(30))
    assert first_misaligned(shorter, np.insert(shorter, at, 5000.0)) == at + 1


def test_a_language_that_is_longer_is_no_misalignment() -> None:
    shorter = np.random.RandomState(3).randint(50, 500, size=60).astype(float)
    longer = np.round(1.3 * shorter)
    assert first_misaligned(shorter, np.insert(longer, 20, 5000.0)) == 21


def test_a_file_cut_short_is_aligned_to_its_end() -> None:
    lengths = np.random.RandomState(1).randint(1, 100, size=200).astype(float)
    assert first_misaligned(lengths, lengths[:-20]) == 181


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_the_mismatch_report_names_files_counts_and_line(tmp_path: Path) -> None:
    lines = ["x" * int(size) for size in np.random.RandomState(2).randint(1, 80, size=100)]
    source = write(tmp_path / "t.en", lines)
    target = write(tmp_path / "t.de", lines[:40] + ["surplus"] + lines[40:])
    with pytest.raises(DataError, match=r"t\.en has 100 lines, but .*t\.de has 101; .* near line 41"):
        TwoFiles(source, target).count(Reading())


def test_a_file_cut_short_is_said_to_be_so(tmp_path: Path) -> None:
    lines = ["x" * int(size) for size in np.random.RandomState(2).randint(1, 80, size=100)]
    source, target = write(tmp_path / "t.en", lines), write(tmp_path / "t.de", lines[:-10])
    with pytest.raises(DataError, match=r"t\.en has 100 lines, but .*t\.de has 90; .* seems truncated"):
        TwoFiles(source, target).count(Reading())


def test_a_source_alone_is_paired_with_nothing(tmp_path: Path) -> None:
    text = TwoFiles(write(tmp_path / "t.en", ["a", "b"]), None)
    assert text.count(Reading()) == 2
    assert list(text.pairs(Reading())) == [("a", ""), ("b", "")]


def test_an_xz_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.en.xz").touch()
    assert find_file(f"{tmp_path}/train", "en") == tmp_path / "train.en.xz"
