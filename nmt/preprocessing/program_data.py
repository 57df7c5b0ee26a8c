"""Sentence pairs of a Python program: lists, data sets, data frames with named columns, and text files.

Each is read through a ``PairReader``, which checks every pair and names the position of a wrong one.
"""

from __future__ import annotations

import dataclasses
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.config.choices import InvalidText
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText, TextForm, form_of
from nmt.errors import DataError, UsageError, quantity, shown
from nmt.preprocessing.input_text import find_texts

_NO_TEXT = re.compile("[\n\r\0\ud800-\udfff]")
_MOST_NAMES = 10  # columns in a message
_SIDES = ("source", "target")
Pair = tuple[str, str]


class PairReader(ABC):
    """Pairs that can be read several times."""

    count: int  # pairs

    @abstractmethod
    def pairs(self) -> Iterator[Pair]:
        """Read all pairs in order."""


def is_paths(data: object) -> bool:
    """Whether data is one path or several, not pairs."""
    items = data if isinstance(data, (list, tuple)) else [data]
    return bool(items) and all(isinstance(item, (str, os.PathLike)) for item in items)


def paths_in(data: Any) -> list[str]:
    """Return the paths of data that ``is_paths``."""
    return [os.fspath(item) for item in (data if isinstance(data, (list, tuple)) else [data])]


class FileReader(PairReader):
    """Reads text files, found as nmt-preprocess finds them."""

    def __init__(self, data: Any, config: PreprocessConfig) -> None:
        named = dataclasses.replace(config, trainpref=",".join(paths_in(data)))
        self._text: ParallelText = find_texts(named, Path(os.devnull))[0]
        self._reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
        self.count = self._text.count(self._reading)
        if config.on_invalid_utf8 is InvalidText.skip:
            self.count = sum(1 for _ in self.pairs())

    @staticmethod
    def languages(data: Any, known: Sequence[str]) -> Sequence[str]:
        """Return names for the languages if none are ``known``. Only tab-separated files need no names."""
        paths = paths_in(data)
        if known or all(form_of(path) is TextForm.tsv for path in paths):
            return ("", "") if known else _SIDES
        raise UsageError(
            f"data={paths[0]!r} is not a corpus folder, and text needs source_lang= and target_lang=, the suffixes of its "
            f"files"
        )

    def pairs(self) -> Iterator[Pair]:
        for source, target in self._text.pairs(self._reading):
            if source is not None and target is not None:
                yield source, target


class ProgramReader(PairReader):
    """Reads an object of Python: pairs of strings, or rows with named columns."""

    def __init__(self, data: Any, name: str, columns: Sequence[str] = (), languages: Sequence[str] = ()) -> None:
        """``name``: the parameter that holds ``data``, for messages; ``columns``: those of source and target, which default
        to the columns named like ``languages``, or to the only two with text."""
        self._data, self._name = data, name
        if isinstance(data, Mapping):
            listed = ", ".join(map(str, data))
            raise UsageError(f"{name} has several parts: {listed}; give one of them, such as {name}={name}['train']")
        if not hasattr(data, "__len__") or isinstance(data, (str, bytes, set, frozenset)):
            raise UsageError(
                f"{name} is {shown(data)}; give text files, or pairs that have a length and can be read again, such as "
                f"[('ein Mann', 'a man')] or list(pairs)"
            )
        self.count = len(data)
        if self.count == 0:
            raise DataError(f"{name} has no pairs")
        frame = hasattr(data, "columns") and hasattr(data, "__getitem__")
        self._frame = {str(column): column for column in (data.columns if frame else ())}
        first = self._first_row()
        self.columns = None if first is None else self._chosen_columns(first, columns, languages)

    @property
    def languages(self) -> tuple[str, str]:
        """The names of the languages, if no option sets them."""
        source, target = self.columns or _SIDES
        return source.rpartition(".")[2], target.rpartition(".")[2]

    def pairs(self) -> Iterator[Pair]:
        number = -1
        for number, item in enumerate(self._items()):
            if number == self.count:
                raise DataError(f"{self._name} has a length of {self.count:,}, but yields more items")
            yield self._pair(item, number)
        if number + 1 < self.count:
            raise DataError(f"{self._name} has a length of {self.count:,}, but yields {quantity(number + 1, 'item')}")

    def _items(self) -> Iterable[Any]:
        if self._frame and self.columns is not None:
            return zip(*(self._data[self._frame[column]] for column in self.columns))
        numbered = (
            self._data[number] for number in range(self.count)
        )  # a data set of torch ends with its length alone
        return iter(self._data) if hasattr(self._data, "__iter__") else numbered

    def _first_row(self) -> Mapping[str, Any] | None:
        """Return the first row by column; None: the data is pairs."""
        if self._frame:
            return {name: next(iter(self._data[column])) for name, column in self._frame.items()}
        first = next(iter(self._items()), None)
        return first if isinstance(first, Mapping) else None

    def _chosen_columns(self, row: Mapping[str, Any], columns: Sequence[str], languages: Sequence[str]) -> Pair:
        values = {str(name): value for name, value in row.items()}
        if not self._frame:
            nested = {name: value for name, value in values.items() if isinstance(value, Mapping)}
            values |= {f"{name}.{inner}": item for name, value in nested.items() for inner, item in value.items()}
        texts = [name for name, value in values.items() if isinstance(value, str)]
        if languages:
            texts = [name for language in languages for name in values if name.rpartition(".")[2] == language]
        chosen = list(columns) or texts
        if len(chosen) == 2 and all(name in values for name in chosen):
            return chosen[0], chosen[1]
        missing = ", ".join(name for name in columns or languages if name not in values)
        raise DataError(
            f"{self._name} has the columns {', '.join([*values][:_MOST_NAMES])}{f', but not {missing}' if missing else ''}; "
            f"name those of source and target: fields=['SOURCE', 'TARGET']"
        )

    def _pair(self, item: Any, number: int) -> Pair:
        place = f"{self._name}[{number}]"
        if self.columns is not None and isinstance(item, Mapping):
            source, target = (_field(item, column, place) for column in self.columns)
            return _text(source, f"{place} {self.columns[0]}"), _text(target, f"{place} {self.columns[1]}")
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(f"{place} is {shown(item)}, not a pair of strings such as ('ein Mann', 'a man')")
        names = self.columns or _SIDES
        return _text(item[0], f"{place} {names[0]}"), _text(item[1], f"{place} {names[1]}")


def _field(row: Mapping[str, Any], column: str, place: str) -> Any:
    node: Any = row
    for name in [column] if column in row else column.split("."):
        if not isinstance(node, Mapping) or name not in node:
            raise DataError(f"{place} has no column '{column}', only {', '.join(map(str, row))}")
        node = node[name]
    return node


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{place} is {shown(value)}, not a string; leave out pairs without text")
    if (match := _NO_TEXT.search(value)) is not None:
        kind = "a line break" if match[0] in "\n\r" else f"U+{ord(match[0]):04X}, which is not text,"
        raise DataError(f"{place} has {kind} at character {match.start()}; replace it or leave the pair out")
    return value
