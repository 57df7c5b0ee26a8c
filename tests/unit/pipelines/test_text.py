"""Lines between the commands of a pipeline: what is kept, tagged, changed and left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.data.augmentations import chosen
from nmt.errors import DataError
from nmt.pipelines.text import join_lines, keep_lines, make_pairs


def write(path: Path, *lines: str) -> None:
    path.write_text("".join(f"{line}\n" for line in lines))


def read(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1]


def test_lines_of_several_files_are_joined_without_empty_ones(tmp_path: Path) -> None:
    write(tmp_path / "a", "a", "", "b")
    write(tmp_path / "b", "c", " ")
    join_lines(["a", "b"], ["x", "y"], tmp_path)
    assert read(tmp_path / "x") == read(tmp_path / "y") == ["a", "b", "c"]


def test_lines_of_dropped_pairs_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "text", *"abc")
    write(tmp_path / "more", "d")
    write(tmp_path / "dropped.tsv", "too long\t2\tb\tB", "the same text\t4\td\td")
    keep_lines(["text", "more"], "kept", tmp_path)
    assert read(tmp_path / "kept") == ["a", "c"]
    write(tmp_path / "dropped.tsv", "too long\t2\tb\tB", "no number")
    with pytest.raises(DataError, match="dropped.tsv:2 has no line number in its second"):
        keep_lines(["text"], "kept", tmp_path)
    assert read(tmp_path / "kept") == ["a", "c"]


def test_synthetic_sources_have_their_tag_and_no_empty_side(tmp_path: Path) -> None:
    write(tmp_path / "s", "a", "", "c", "d")
    write(tmp_path / "t", "A", "B", "C", " ")
    make_pairs(["s", "t"], ["x", "y"], "<bt>", [], tmp_path)
    assert (read(tmp_path / "x"), read(tmp_path / "y")) == (["<bt> a", "<bt> c"], ["A", "C"])
    write(tmp_path / "t", "A")
    with pytest.raises(DataError, match="has 4 lines, but .*t has 1"):
        make_pairs(["s", "t"], ["x", "y"], None, [], tmp_path)


def test_noise_is_on_the_share_of_the_sources_and_the_same_each_time(tmp_path: Path) -> None:
    lines = [f"a b c d {number}" for number in range(400)]
    write(tmp_path / "s", *lines)
    write(tmp_path / "t", *lines)
    noise = chosen(["mask_words=0.5:words=1.0:side=both"])
    make_pairs(["s", "t"], ["x", "y"], None, noise, tmp_path)
    first = read(tmp_path / "x")
    assert read(tmp_path / "y") == lines
    assert 150 < sum(line == "\u2588 \u2588 \u2588 \u2588 \u2588" for line in first) < 250
    assert all(line == noised or "\u2588" in noised for line, noised in zip(lines, first))
    make_pairs(["s", "t"], ["x", "y"], None, noise, tmp_path)
    assert read(tmp_path / "x") == first
