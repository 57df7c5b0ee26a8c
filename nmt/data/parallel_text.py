"""Two files, line by line: finding them, reading them together, and saying where they come apart."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmt.data.text import Reading
from nmt.errors import DataError, MissingInputError

Pair = tuple[str | None, str | None]  # None: left out by on_invalid_utf8=skip


@dataclass(frozen=True)
class ParallelText:
    """The files of one split; without a target file its pairs have an empty target."""

    split: str
    source: Path
    target: Path | None
    alignments: Path | None = None  # the file of word alignments, if there is one

    def paths(self) -> tuple[Path, ...]:
        return (self.source,) if self.target is None else (self.source, self.target)

    def files(self) -> tuple[Path, ...]:
        return self.paths() if self.alignments is None else (*self.paths(), self.alignments)

    def pairs(self, reading: Reading) -> Iterator[Pair]:
        """The pairs of a text that was counted before; the notices were given then."""
        source = reading.lines(self.source, quiet=True)
        if self.target is None:
            return zip(source, itertools.repeat(""))
        return zip(source, reading.lines(self.target, quiet=True))

    def count(self, reading: Reading) -> int:
        """Read everything once: the number of pairs. Unequal files, empty files and bad bytes are errors."""
        counts = {path: sum(1 for _ in reading.lines(path, quiet=False)) for path in self.paths()}
        for path, count in counts.items():
            if count == 0:
                raise DataError(f"{path} is empty")
        if self.target is not None and counts[self.source] != counts[self.target]:
            raise DataError(
                f"{self.source} has {counts[self.source]} lines, but {self.target} has {counts[self.target]}; "
                f"{where_they_part(*(reading.lines(path, quiet=True) for path in self.paths()))}"
            )
        return counts[self.source]


def file_exists(prefix: str, suffix: str) -> bool:
    """Whether ``find_file`` would find something, sound or not."""
    return any(Path(f"{prefix}.{suffix}{packed}").exists() for packed in ("", ".gz", ".xz"))


def find_file(prefix: str, language: str) -> Path:
    """``PREFIX.LANG``, ``PREFIX.LANG.gz`` or ``PREFIX.LANG.xz``."""
    plain = Path(f"{prefix}.{language}")
    for path in (plain, Path(f"{plain}.gz"), Path(f"{plain}.xz")):
        if path.is_file():
            return path
        if path.exists():  # a pipe would be empty at the second reading
            kind = "a folder" if path.is_dir() else "not a plain file"
            raise MissingInputError(f"{path} is {kind} (working directory: {os.getcwd()})")
    raise MissingInputError(
        f"neither {plain} nor {plain}.gz or .xz exists (working directory: {os.getcwd()}); "
        f"the name of a file is its prefix, a dot and the language"
    )


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
