"""Parallel text as it comes: two files side by side, or one that holds both sides of each pair; found, read and counted.

    PREFIX.en PREFIX.de       the same line of both is a pair
    NAME.tsv                  a pair on each line, in columns that tabs separate
    NAME.jsonl                a pair on each line, as fields of a JSON object; "translation.en" stands in "translation"

Each may be packed (.gz, .xz, .zst). A split is one of them or several, one after the other.
"""

from __future__ import annotations

import itertools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from nmt.data.text import PACKED, Reading, one_line
from nmt.errors import DataError, MissingInputError

Pair = tuple[str | None, str | None]  # None: left out by on_invalid_utf8=skip

Item = TypeVar("Item")

_SHOWN = 60  # characters of a line in a message


class Part(ABC):
    """Some pairs of a split."""

    @property
    @abstractmethod
    def files(self) -> tuple[Path, ...]:
        """What is read."""

    @abstractmethod
    def pairs(self, reading: Reading, *, quiet: bool = True) -> Iterator[Pair]:
        """In their order; a part without targets has empty ones. ``quiet``: without notices, of a text that was read."""

    def side(self, number: int, reading: Reading) -> Iterator[str | None]:
        """The lines of the source (0) or the target (1)."""
        return (pair[number] for pair in self.pairs(reading))

    def count(self, reading: Reading) -> int:
        """Read everything once: the number of pairs. Whatever is wrong with the text is an error."""
        count = sum(1 for _ in self.pairs(reading, quiet=False))
        if count == 0:
            raise DataError(f"{self.called(0)} is empty")
        return count

    def called(self, side: int) -> str:
        """How messages call the lines of the source (0) or the target (1)."""
        return str(self.files[side if side < len(self.files) else 0])


@dataclass(frozen=True)
class TwoFiles(Part):
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
        """Unequal files are an error as well."""
        counts = {path: sum(map(len, reading.blocks(path, quiet=False))) for path in self.files}
        for path, count in counts.items():
            if count == 0:
                raise DataError(f"{path} is empty")
        if self.target is not None and counts[self.source] != counts[self.target]:
            raise DataError(
                f"{self.source} has {counts[self.source]} lines, but {self.target} has {counts[self.target]}; "
                f"{where_they_part(*(reading.lines(path, quiet=True) for path in self.files))}"
            )
        return counts[self.source]


@dataclass(frozen=True)
class Columns(Part):
    """Lines whose columns are separated by tabs."""

    path: Path
    name: str
    columns: tuple[int, ...]  # of source and target, or of the source alone; from 0

    def called(self, side: int) -> str:
        return self.name

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def pairs(self, reading: Reading, *, quiet: bool = True) -> Iterator[Pair]:
        needed = max(self.columns) + 1
        for number, line in enumerate(reading.lines(self.path, quiet=quiet, name=self.name), start=1):
            if line is None:
                yield _left_out(self.columns)
                continue
            cells = line.split("\t")
            if len(cells) < needed:
                raise DataError(
                    f"{self.name}:{number}: no column {needed} in {len(cells)}, which tabs separate ({line[:_SHOWN]!r}); "
                    f"--columns says where both sides stand"
                )
            yield _pair([cells[column] for column in self.columns])


@dataclass(frozen=True)
class JsonLines(Part):
    """Lines that are objects of JSON."""

    path: Path
    name: str
    fields: tuple[str, ...]  # of source and target, or of the source alone

    def called(self, side: int) -> str:
        return self.name

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.path,)

    def pairs(self, reading: Reading, *, quiet: bool = True) -> Iterator[Pair]:
        for number, line in enumerate(reading.lines(self.path, quiet=quiet, name=self.name), start=1):
            if line is None:
                yield _left_out(self.fields)
                continue
            where = f"{self.name}:{number}"
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                raise DataError(f"{where}: {line[:_SHOWN]!r} is not JSON; each line should be an object") from None
            yield _pair([_text(found, field, where) for field in self.fields])


def _left_out(sides: Sequence[object]) -> Pair:
    return None, None if len(sides) == 2 else ""


def _pair(texts: Sequence[str]) -> Pair:
    return texts[0], texts[1] if len(texts) == 2 else ""


def _text(found: Any, field: str, where: str) -> str:
    """What stands in a field, as a line."""
    node = found
    for name in [field] if isinstance(found, dict) and field in found else field.split("."):
        if not isinstance(node, dict) or name not in node:
            there = ", ".join(map(str, itertools.islice(node, 10))) if isinstance(node, dict) else type(node).__name__
            raise DataError(
                f"{where}: no field '{field}'; there is {there or 'nothing'} (--fields names those of both sides)"
            )
        node = node[name]
    if not isinstance(node, str):
        raise DataError(f"{where}: field '{field}' holds {str(node)[:_SHOWN]}, which is no text")
    try:
        node.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{where}: field '{field}' holds U+{ord(node[error.start]):04X}, which is no character"
        ) from None
    if "\0" in node:
        raise DataError(f"{where}: field '{field}' holds NUL, which is not text")
    return one_line(node)


@dataclass(frozen=True)
class ParallelText:
    """The text of one split."""

    split: str
    parts: tuple[Part, ...]
    has_target: bool = True
    alignments: tuple[Path, ...] = ()  # files of word alignments: one for each part, or none
    block: tuple[int, int] | None = None  # the pairs that are taken, from and to, by their numbers from 0; None: all

    def called(self, side: int) -> str:
        """How messages call the lines of the source (0) or the target (1)."""
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return self.parts[0].called(side) + more

    @property
    def files(self) -> tuple[Path, ...]:
        return (*(path for part in self.parts for path in part.files), *self.alignments)

    def pairs(self, reading: Reading) -> Iterator[Pair]:
        """The pairs of a text that was counted before; the notices were given then."""
        return self.taken(part.pairs(reading) for part in self.parts)

    def side(self, number: int, reading: Reading) -> Iterator[str | None]:
        """The lines of the source (0) or the target (1)."""
        return self.taken(part.side(number, reading) for part in self.parts)

    def taken(self, parts: Iterable[Iterable[Item]]) -> Iterator[Item]:
        """What belongs to the pairs that are taken, of something that there is for each pair of each part."""
        every = itertools.chain.from_iterable(parts)
        return every if self.block is None else itertools.islice(every, *self.block)

    @property
    def begin(self) -> int:
        """The number of the first pair that is taken."""
        return 0 if self.block is None else self.block[0]

    def count(self, reading: Reading) -> int:
        """Read everything once: the number of pairs, also of those that are not taken."""
        return sum(part.count(reading) for part in self.parts)


class TextForm(Enum):
    """How a file holds both sides."""

    tsv = "tsv"
    jsonl = "jsonl"


def form_of(name: str) -> TextForm | None:
    """By the ending of a file's name; None: it is the prefix of two files."""
    for packed in PACKED:
        name = name.removesuffix(packed)
    return next((form for form in TextForm if name.endswith(f".{form.value}")), None)


def without_endings(name: str) -> str:
    """A name without what says how the text is packed and how it holds both sides: what other files of it are named by."""
    for packed in PACKED:
        name = name.removesuffix(packed)
    form = form_of(name)
    return name if form is None else name.removesuffix(f".{form.value}")


def file_exists(prefix: str, suffix: str) -> bool:
    """Whether ``find_file`` would find something, sound or not."""
    return any(Path(f"{prefix}.{suffix}{packed}").exists() for packed in ("", *PACKED))


def find_file(prefix: str, language: str) -> Path:
    """``PREFIX.LANG``, or the same packed."""
    plain = Path(f"{prefix}.{language}")
    for path in (plain, *(Path(f"{plain}{packed}") for packed in PACKED)):
        if path.is_file():
            return path
        if path.exists():  # a pipe would be empty at the second reading
            raise _no_plain_file(path)
    raise MissingInputError(
        f"neither {plain} nor {plain}{' or '.join(PACKED)} exists (working directory: {os.getcwd()}); "
        f"the name of a file is its prefix, a dot and the language"
    )


def require_file(path: Path) -> Path:
    """One that holds both sides."""
    if path.is_file():
        return path
    if path.exists():
        raise _no_plain_file(path)
    raise MissingInputError(f"{path} does not exist (working directory: {os.getcwd()})")


def _no_plain_file(path: Path) -> MissingInputError:
    kind = "a folder" if path.is_dir() else "not a plain file"
    return MissingInputError(f"{path} is {kind} (working directory: {os.getcwd()})")


def where_they_part(source: Iterable[str | None], target: Iterable[str | None]) -> str:
    """What the lengths of the lines of two files with unequal numbers of lines say about the fault."""
    lengths = _characters(source), _characters(target)
    line = first_misaligned(*lengths)
    if line > min(map(len, lengths)):
        return "they look aligned up to the end of the shorter one, which seems cut short"
    return f"judging by the lengths of the lines they come apart near line {line}: compare them there"


def first_misaligned(source: npt.NDArray[np.float64], target: npt.NDArray[np.float64]) -> int:
    """The line (from 1) from which the longer side seems to hold surplus lines, from the lengths of the lines alone.

    Translations have similar lengths. One block of surplus lines before line k pairs i with i up to k, and i with
    i + surplus from there on; the k that makes the lengths of the pairs most alike is taken. How much
    longer one language is: the median over the pairs counted from the start of the files or from their end, whichever fits.
    """
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
    return np.fromiter((len(line or "") for line in lines), dtype=np.float64)
