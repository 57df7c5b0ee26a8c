"""Data of a Python program: every form gives the same pairs, and a wrong pair is named by its position."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.errors import NMTError
from nmt.preprocessing.program_data import program_pairs

PAIRS = [("ein Mann", "a man"), ("zwei Hunde", "two dogs"), ("rot", "red")]
ROWS = [{"id": 7, "de": source, "en": target} for source, target in PAIRS]
NESTED = [{"translation": {"de": source, "en": target}} for source, target in PAIRS]


class Items:
    """A data set of torch: it has a length and items, but cannot be iterated past its end."""

    def __init__(self, items: list[Any], length: int | None = None) -> None:
        self.items, self.length = items, len(items) if length is None else length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.items[index % len(self.items)]


class Frame:
    """A data frame: columns by name, and iteration over their names."""

    columns = ["id", "de", "en"]

    def __len__(self) -> int:
        return len(ROWS)

    def __iter__(self) -> Any:
        return iter(self.columns)

    def __getitem__(self, column: str) -> list[Any]:
        return [row[column] for row in ROWS]


@pytest.mark.parametrize(
    "data",
    [PAIRS, tuple(PAIRS), [list(pair) for pair in PAIRS], Items(PAIRS), ROWS, Items(ROWS), NESTED, Frame()],
    ids=["list", "tuple", "lists", "data set", "rows", "data set of rows", "translations", "data frame"],
)
def test_each_form_gives_the_same_pairs_twice(data: Any) -> None:
    pairs = program_pairs(data, "data")
    assert list(pairs.read()) == list(pairs.read()) == PAIRS and pairs.count == 3
    assert pairs.languages == (("de", "en") if pairs.columns else None)


def test_a_line_break_within_a_text_becomes_a_space() -> None:
    assert list(program_pairs([("a\nb", "c")], "data").read()) == [("a b", "c")]


def test_columns_are_chosen_by_language_or_by_name() -> None:
    turned = [(target, source) for source, target in PAIRS]
    for data in (ROWS, NESTED, Frame()):
        assert list(program_pairs(data, "data", languages=["en", "de"]).read()) == turned
    chosen = program_pairs(NESTED, "data", ["translation.en", "translation.de"], ["english", "german"])
    assert list(chosen.read()) == turned


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([*PAIRS, "ab"], r"data\[3\] is 'ab', not a pair of strings"),
        ([*PAIRS, ("a", "b", "c")], r"data\[3\] is \('a', 'b', 'c'\), not a pair"),
        ([*PAIRS, None], r"data\[3\] is None, not a pair"),
        ([*PAIRS, ("a", None)], r"data\[3\]: field 'target' holds None, which is not text"),
        ([*PAIRS, (float("nan"), "b")], r"data\[3\]: field 'source' holds nan, which is not text"),
        ([*PAIRS, ("a", "\ud800")], r"data\[3\]: field 'target' holds U\+D800, which is not a character"),
        ([*ROWS, {"de": "a"}], r"data\[3\]: no field 'en'; there is de"),
        ([*ROWS, {"de": "a", "en": 3}], r"data\[3\]: field 'en' holds 3, which is not text"),
        ([], "data has no pairs"),
        ((pair for pair in PAIRS), r"give text files, or pairs that have a length"),
        ({"train": PAIRS}, r"data has several parts: train; give one of them, such as data=data\['train'\]"),
        ([{"a": "x", "b": "y", "c": "z"}], r"data has the columns a, b, c; name those .*fields="),
        (Items(PAIRS, 2), None),
        (type("Short", (Items,), {"__iter__": lambda self: iter(PAIRS)})(PAIRS, 5), "length of 5, but yields 3 items"),
        (type("Long", (Items,), {"__iter__": lambda self: iter(PAIRS)})(PAIRS, 2), "length of 2, but yields more"),
    ],
)
def test_wrong_data_is_one_line_with_its_position(data: Any, message: str | None) -> None:
    if message is None:
        assert len(list(program_pairs(data, "data").read())) == 2
        return
    with pytest.raises(NMTError, match=message) as error:
        list(program_pairs(data, "data").read())
    assert "\n" not in str(error.value)


def test_an_unknown_column_lists_those_of_the_data() -> None:
    for options in ({"languages": ["de", "fr"]}, {"columns": ["de", "fr"]}):
        with pytest.raises(NMTError, match="data has the columns id, de, en, but not fr"):
            program_pairs(ROWS, "data", **options)


@pytest.mark.slow
def test_frames_of_pandas_and_data_sets_of_hugging_face_are_read(tmp_path: Path) -> None:
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    for data in (pandas.DataFrame(ROWS), datasets.Dataset.from_list(ROWS), datasets.Dataset.from_list(NESTED)):
        assert list(program_pairs(data, "data", languages=["de", "en"]).read()) == PAIRS
    with pytest.raises(NMTError, match=r"data\[1\]: field 'en' holds nan, which is not text"):
        list(program_pairs(pandas.DataFrame([*ROWS[:1], {"de": "a"}]), "data", languages=["de", "en"]).read())
    with pytest.raises(NMTError, match="data has several parts: train; "):
        program_pairs(datasets.DatasetDict(train=datasets.Dataset.from_list(ROWS)), "data")
