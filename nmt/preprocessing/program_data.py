"""Sentence pairs of a Python program: lists, data sets, data frames with named columns, and text files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.plain import flattened
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import text_of_field
from nmt.errors import DataError, UsageError, shown
from nmt.preprocessing.input_text import find_texts

SIDES = ("source", "target")
_MOST_NAMES = 10  # columns in a message
Pair = tuple[str, str]


@dataclass(frozen=True)
class Pairs:
    """Pairs that can be read several times."""

    count: int
    read: Callable[[], Iterator[Pair]]  # names the position of a wrong pair
    columns: Pair | None = None  # of source and target; None: they have no names

    @property
    def languages(self) -> Pair | None:
        """The names of the columns: ``en`` for ``translation.en``."""
        return None if self.columns is None else (_last(self.columns[0]), _last(self.columns[1]))


def is_paths(data: object) -> bool:
    """Whether data is one path or several, not pairs."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return bool(items) and all(isinstance(item, (str, os.PathLike)) for item in items)


def paths_in(data: Any) -> list[str]:
    """Return the paths of data that ``is_paths``."""
    return [os.fspath(item) for item in (data if isinstance(data, (list, tuple)) else [data])]


def file_pairs(data: Any, config: PreprocessConfig) -> Pairs:
    """Return the pairs of text files, found as nmt-preprocess finds them."""
    text = find_texts(dataclasses.replace(config, trainpref=",".join(paths_in(data))), Path(os.devnull))[0]
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    text.count(reading)  # refuses faulty text

    def read() -> Iterator[Pair]:
        return ((source, target) for source, target in text.pairs(reading) if source is not None and target is not None)

    return Pairs(sum(1 for _ in read()), read)


def program_pairs(data: Any, name: str, columns: Sequence[str] = (), languages: Sequence[str] = ()) -> Pairs:
    """Return the pairs of an object: pairs of strings, or rows with named columns.

    ``name``: the parameter that holds ``data``, for messages; ``columns``: those of source and target, which default to the
    columns named like ``languages``, or to the only two with text.
    """
    if isinstance(data, Mapping):
        listed = ", ".join(map(str, data))
        raise UsageError(f"{name} has several parts: {listed}; give one of them, such as {name}={name}['train']")
    if not hasattr(data, "__len__") or isinstance(data, (str, bytes, set, frozenset)):
        raise UsageError(
            f"{name} is {shown(data)}; give text files, or pairs that have a length and can be read again, such as "
            f"[('ein Mann', 'a man')] or list(pairs)"
        )
    count = len(data)
    if count == 0:
        raise DataError(f"{name} has no pairs")
    first = next(iter(_items(data)), None)
    chosen = _columns(flattened(first), name, columns, languages) if isinstance(first, Mapping) else None

    def read() -> Iterator[Pair]:
        number = -1
        for number, item in enumerate(_items(data)):
            if number >= count:
                break
            yield _pair(item, f"{name}[{number}]", chosen)
        if number + 1 != count:
            yielded = "more" if number >= count else f"{number + 1:,}"
            raise DataError(f"{name} has a length of {count:,}, but yields {yielded} items")

    return Pairs(count, read, chosen)


def _items(data: Any) -> Iterable[Any]:
    """Return pairs or rows; those of a data frame are made of its columns."""
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        names = [str(column) for column in data.columns]
        return (dict(zip(names, row)) for row in zip(*(data[column] for column in data.columns)))
    if hasattr(data, "__iter__"):
        return data  # type: ignore[no-any-return] # of any class
    return (data[number] for number in range(len(data)))  # a data set of torch ends with its length alone


def _columns(row: Mapping[str, Any], name: str, columns: Sequence[str], languages: Sequence[str]) -> Pair:
    texts = [column for column, value in row.items() if isinstance(value, str)]
    if languages:
        texts = [column for language in languages for column in row if _last(column) == language]
    chosen = list(columns) or texts
    if len(chosen) == 2 and all(column in row for column in chosen):
        return chosen[0], chosen[1]
    missing = ", ".join(column for column in columns or languages if column not in {*row, *map(_last, row)})
    raise DataError(
        f"{name} has the columns {', '.join([*row][:_MOST_NAMES])}{f', but not {missing}' if missing else ''}; "
        f"name those of source and target: fields=['SOURCE', 'TARGET']"
    )


def _last(column: str) -> str:
    return column.rpartition(".")[2]


def _pair(item: Any, place: str, columns: Pair | None) -> Pair:
    if columns is None or not isinstance(item, Mapping):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(f"{place} is {shown(item)}, not a pair of strings such as ('ein Mann', 'a man')")
        columns, item = SIDES, dict(zip(SIDES, item))
    return text_of_field(item, columns[0], place), text_of_field(item, columns[1], place)
