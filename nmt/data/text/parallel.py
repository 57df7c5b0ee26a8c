"""Parallel text: two parallel files, or one file with both sides of each pair; found, read and counted.

    PREFIX.en PREFIX.de       the same line of both is a pair
    NAME.tsv                  a pair on each line, in columns that tabs separate
    NAME.jsonl                a pair on each line, as fields of a JSON object; "translation.en": "en" within "translation"

Each may be packed (.gz, .xz, .zst). The text of a split is one of them, or the concatenation of several.
"""

from __future__ import annotations

import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nmt.data.text.lines import Reading, one_line
from nmt.data.text.packed_files import PACKED
from nmt.errors import DataError, MissingInputError, quantity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Pair = tuple[str | None, str | None]  # None: skipped by on_invalid_utf8=skip

Item = TypeVar("Item")

_SHOWN = 60  # characters of a line in a message


class PairFile(ABC):
    """Files with pairs of a split."""

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""

    @abstractmethod
    def pairs(self, reading: Reading, *, quiet: bool = True) -> Iterator[Pair]:
        """Read the pairs; without a target side, targets are empty. ``quiet``: without notices, for a second reading."""

    def side(self, number: int, reading: Reading) -> Iterator[str | None]:
        """Read the lines of the source (0) or the target (1)."""
        return (pair[number] for pair in self.pairs(reading))

    def count(self, reading: Reading) -> int:
        """Read all pairs once and return their number; faulty text is an error."""
        count = sum(1 for _ in self.pairs(reading, quiet=False))
        if count == 0:
            raise DataError(f"{self.called(0)} is empty")
        return count

    def called(self, side: int) -> str:
        """Return the name of the source (0) or the target (1) for messages."""
        return str(self.files[side if side < len(self.files) else 0])


@dataclass(frozen=True)
class TwoFiles(PairFile):
    """A file for each side, or a source alone."""

    source: Path
    target: Path | None

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.source,) if self.target is None else (self.source, self.target)

    def pairs(self, reading: Reading, *, quiet: bool = True) -> Iterator[Pair]:
        source = reading.lines(self.source, quiet=quiet)
        if self.target is None:
            return zip(source, itertools.repeat(""))
        return zip(source, reading.lines(self.target, quiet=quiet))

    def side(self, number: int, reading: Reading) -> Iterator[str | None]:
        return reading.lines(self.files[number], quiet=True)

    def count(self, reading: Reading) -> int:
        """Files of unequal length are an error too."""
        counts = {path: sum(map(len, reading.blocks(path, quiet=False))) for path in self.files}
        for path, count in counts.items():
            if count == 0:
                raise DataError(f"{path} is empty")
        if self.target is not None and counts[self.source] != counts[self.target]:
            raise DataError(
                f"{self.source} has {quantity(counts[self.source], 'line')}, but {self.target} has {counts[self.target]}; "
                f"{misalignment(*(reading.lines(path, quiet=True) for path in self.files))}"
            )
        return counts[self.source]


@dataclass(frozen=True)
class OneFile(PairFile):
    """A file with a pair on each line."""

    path: Path
    name: str  # for messages

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def called(self, side: int) -> str:
        return self.name

    def pairs(self, reading: Reading, *, quiet: bool = True) -> Iterator[Pair]:
        for number, line in enumerate(reading.lines(self.path, quiet=quiet, name=self.name), start=1):
            if line is None:
                yield None, None
            else:
                texts = self.texts(line, f"{self.name}:{number}")
                yield texts[0], texts[1] if len(texts) == 2 else ""

    @abstractmethod
    def texts(self, line: str, place: str) -> Sequence[str]:
        """Return the sides of a line. ``place``: file and line, for messages."""


@dataclass(frozen=True)
class TabSeparated(OneFile):
    """Lines whose columns are separated by tabs."""

    columns: tuple[int, ...]  # of source and target, or of the source alone; from 0

    def texts(self, line: str, place: str) -> Sequence[str]:
        cells, needed = line.split("\t"), max(self.columns) + 1
        if len(cells) < needed:
            raise DataError(
                f"{place}: no column {needed}, only {quantity(len(cells), 'tab-separated column')} ({line[:_SHOWN]!r}); "
                f"set the columns with --columns and --weight-column"
            )
        return [cells[column] for column in self.columns]


@dataclass(frozen=True)
class JsonLines(OneFile):
    """Lines that are objects of JSON."""

    fields: tuple[str, ...]  # of source and target, or of the source alone

    def texts(self, line: str, place: str) -> Sequence[str]:
        try:
            tree = json.loads(line)
        except (ValueError, RecursionError):
            raise DataError(f"{place}: {line[:_SHOWN]!r} is not JSON; each line should be an object") from None
        return [self.text(tree, name, place) for name in self.fields]

    def text(self, tree: Any, field: str, place: str) -> str:
        return text_of_field(tree, field, place, json.dumps)


@dataclass(frozen=True)
class JsonNumbers(JsonLines):
    """The same with a field that holds a number or a list of numbers, as the numbers of a line."""

    def text(self, tree: Any, field: str, place: str) -> str:
        node = node_of_field(tree, field, place, json.dumps)
        items = node if isinstance(node, list) else [node]
        return " ".join(item if isinstance(item, str) else json.dumps(item) for item in items)


def node_of_field(tree: Any, field: str, place: str, write: Callable[[Any], str] = str) -> Any:
    """Return what a field holds. For messages: ``place``, of the object, and ``write``, for other values than text."""
    node = tree
    for name in [field] if isinstance(tree, Mapping) and field in tree else field.split("."):
        if not isinstance(node, Mapping) or name not in node:
            names = (
                ", ".join(map(str, itertools.islice(node, 10))) if isinstance(node, Mapping) else write(node)[:_SHOWN]
            )
            raise DataError(
                f"{place}: no field '{field}'; there is {names or 'nothing'} (set the fields: --fields, --weight-field)"
            )
        node = node[name]
    return node


def text_of_field(tree: Any, field: str, place: str, write: Callable[[Any], str] = str) -> str:
    """Return the text of a field as one line; ``place`` and ``write`` as for ``node_of_field``."""
    node = node_of_field(tree, field, place, write)
    if not isinstance(node, str):
        raise DataError(f"{place}: field '{field}' holds {write(node)[:_SHOWN]}, which is not text")
    try:
        node.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{place}: field '{field}' holds U+{ord(node[error.start]):04X}, which is not a character"
        ) from None
    if "\0" in node:
        raise DataError(f"{place}: field '{field}' holds NUL, which is not text")
    return one_line(node)


@dataclass(frozen=True)
class ParallelText:
    """The text of one split."""

    split: str
    parts: tuple[PairFile, ...]
    has_target: bool = True
    alignments: tuple[Path, ...] = ()  # files of word alignments: one for each of `parts`, or none
    weights: tuple[PairFile, ...] = ()  # where the weights of pairs are, as the sources of lines: the same
    block: tuple[int, int] | None = None  # the range of pairs to read, from 0; None: all

    def called(self, side: int) -> str:
        """Return the name of the source (0) or the target (1) for messages."""
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return self.parts[0].called(side) + more

    @property
    def files(self) -> tuple[Path, ...]:
        weights = (path for part in self.weights for path in part.files)
        return tuple(dict.fromkeys((*(path for part in self.parts for path in part.files), *self.alignments, *weights)))

    def pairs(self, reading: Reading) -> Iterator[Pair]:
        """Read the pairs of a text that was counted before, without notices."""
        return self.select(part.pairs(reading) for part in self.parts)

    def side(self, number: int, reading: Reading) -> Iterator[str | None]:
        """Read the lines of the source (0) or the target (1)."""
        return self.select(part.side(number, reading) for part in self.parts)

    def select(self, parts: Iterable[Iterable[Item]]) -> Iterator[Item]:
        """Select the items of the ``block`` from ``parts`` with an item for each pair."""
        every = itertools.chain.from_iterable(parts)
        return every if self.block is None else itertools.islice(every, *self.block)

    @property
    def begin(self) -> int:
        """The number of the first pair."""
        return 0 if self.block is None else self.block[0]

    def count(self, reading: Reading) -> int:
        """Read all pairs once and return their number, those outside the ``block`` included."""
        return sum(part.count(reading) for part in self.parts)


class TextForm(Enum):
    """The format of a file with both sides."""

    tsv = "tsv"
    jsonl = "jsonl"


def form_of(name: str) -> TextForm | None:
    """Return the format by the ending of a name; None: the name is the prefix of two files."""
    for packed in PACKED:
        name = name.removesuffix(packed)
    return next((form for form in TextForm if name.endswith(f".{form.value}")), None)


def without_endings(name: str) -> str:
    """Return a name without the endings of packing and format: the prefix of its other files."""
    for packed in PACKED:
        name = name.removesuffix(packed)
    form = form_of(name)
    return name if form is None else name.removesuffix(f".{form.value}")


def file_exists(prefix: str, suffix: str) -> bool:
    """Whether ``find_file`` would find a file, valid or not."""
    return any(Path(f"{prefix}.{suffix}{packed}").exists() for packed in ("", *PACKED))


def find_file(prefix: str, language: str, ending: str = "language") -> Path:
    """Return ``PREFIX.LANG``, or the packed file. ``ending``: what LANG is, for messages."""
    plain = Path(f"{prefix}.{language}")
    for path in (plain, *(Path(f"{plain}{packed}") for packed in PACKED)):
        if path.is_file():
            return path
        if path.exists():  # a pipe can be read only once
            raise _no_plain_file(path)
    raise MissingInputError(
        f"neither {plain} nor {plain}{' or '.join(PACKED)} exists (working directory: {os.getcwd()}); "
        f"the name of a file is its prefix, a dot and the {ending}"
    )


def require_file(path: Path) -> Path:
    """Return the path of a file with both sides, which must exist."""
    if path.is_file():
        return path
    if path.exists():
        raise _no_plain_file(path)
    raise MissingInputError(f"{path} does not exist (working directory: {os.getcwd()})")


def _no_plain_file(path: Path) -> MissingInputError:
    if path.is_fifo():
        return MissingInputError(
            f"{path} is a pipe, and the text is read more than once; write it to a file, and name that"
        )
    kind = "a folder" if path.is_dir() else "not a plain file"
    return MissingInputError(f"{path} is {kind} (working directory: {os.getcwd()})")


def misalignment(source: Iterable[str | None], target: Iterable[str | None]) -> str:
    """Describe where two files of unequal length stop being parallel, by the lengths of their lines."""
    lengths = _characters(source), _characters(target)
    line = first_misaligned(*lengths)
    if line > min(map(len, lengths)):
        return "they look aligned up to the end of the shorter one, which seems truncated"
    return f"by line lengths, they diverge near line {line}: compare them there"


def first_misaligned(source: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> int:
    """Return the line (from 1) at which the longer side seems to have surplus lines, by the lengths of the lines.

    Translations have similar lengths. A block of surplus lines before line k pairs i with i up to k, and i with
    i + surplus from k on. The result is the k with the most similar lengths of pairs. The ratio of the languages is the
    median over pairs counted from the start of the files or from their end, whichever fits.
    """
    import numpy as np  # only this message needs it

    shorter, longer = (source, target) if len(source) <= len(target) else (target, source)
    if not len(shorter):
        return 1
    size_s, size_l = np.log1p(shorter), np.log1p(longer)
    before, after = size_l[: len(size_s)] - size_s, size_l[len(longer) - len(shorter) :] - size_s
    costs = []
    for differences in (before, after):
        for middle in np.quantile(differences, 0.5, method="lower"), np.quantile(differences, 0.5, method="higher"):
            until, since = np.cumsum(np.abs(before - middle)), np.cumsum(np.abs(after - middle)[::-1])[::-1]
            costs.append(np.concatenate(([0.0], until)) + np.concatenate((since, [0.0])))
    return int(np.argmin(min(costs, key=np.min))) + 1


def _characters(lines: Iterable[str | None]) -> npt.NDArray[np.float64]:
    import numpy as np

    return np.fromiter((len(line or "") for line in lines), dtype=np.float64)
