"""The input files of nmt-preprocess: the text of each split, and standard input stored in a file."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.text.parallel import (
    JsonLines,
    PairFile,
    ParallelText,
    TabSeparated,
    TextForm,
    TwoFiles,
    file_exists,
    find_file,
    form_of,
    require_file,
    without_endings,
)
from nmt.errors import UsageError
from nmt.storage.files import explained_os_errors, temporary

TRAIN = "train"
STANDARD_INPUT = "-"

logger = logging.getLogger("nmt.preprocessing")


def find_texts(config: PreprocessConfig, standard_input: Path) -> list[ParallelText]:
    """Return the text of each split, in fairseq's naming: train, valid, valid1, ..., test, test1, ...

    Several training texts are concatenated; each validation or test text is a split. ``standard_input``: the file with its
    content.
    """
    finder = _Finder(config, standard_input)
    training = [
        *((name, form_of(name)) for name in names_of(config.trainpref)),
        *((name, TextForm.tsv) for name in names_of(config.tsv)),
        *((name, TextForm.jsonl) for name in names_of(config.jsonl)),
    ]
    splits = [(TRAIN, training)] if training else []
    for split, names in (("valid", config.validpref), ("test", config.testpref)):
        splits += [(f"{split}{number or ''}", [(name, form_of(name))]) for number, name in enumerate(names_of(names))]
    if not splits:
        raise UsageError("no text is given: set --trainpref, --validpref or --testpref")
    return [finder.text(split, named) for split, named in splits]


@contextlib.contextmanager
def kept_standard_input(config: PreprocessConfig) -> Iterator[Path]:
    """Store standard input in a file next to the corpus until that is complete, since text is read several times."""
    path = temporary(Path(config.destdir))
    if STANDARD_INPUT in [*names_of(config.tsv), *names_of(config.jsonl)]:
        buffer = cast(io.BufferedReader, sys.stdin.buffer)
        if buffer.isatty():
            logger.info("reading from the terminal, one pair a line; end with Ctrl-D, or name a file")
        with explained_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "wb") as file:
                for block in iter(lambda: buffer.read1(2**20), b""):  # at a terminal one Ctrl-D is the end
                    file.write(block)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def names_of(value: str | None) -> list[str]:
    """Return the names that an option lists, separated by commas."""
    return [name.strip() for name in (value or "").split(",") if name.strip()]


class _Finder:
    def __init__(self, config: PreprocessConfig, standard_input: Path) -> None:
        self._config, self._standard_input = config, standard_input
        self._read_input = False

    def text(self, split: str, named: list[tuple[str, TextForm | None]]) -> ParallelText:
        files = tuple(self._pair_file(name, form) for name, form in named)
        for pair in files:
            if isinstance(pair, TwoFiles) and pair.target is not None and pair.source.samefile(pair.target):
                logger.warning(f"{split}: {pair.source} and {pair.target} are the same file")
        return ParallelText(
            split, files, not self._config.only_source, self._alignments(split, [name for name, _ in named])
        )

    def _pair_file(self, name: str, form: TextForm | None) -> PairFile:
        config, path, sides = self._config, Path(name), 1 if self._config.only_source else 2
        if form is None:
            if name == STANDARD_INPUT:
                raise UsageError("standard input must hold both sides of each pair; give --tsv - or --jsonl -")
            source = find_file(name, config.source_lang)
            return TwoFiles(source, None if config.only_source else find_file(name, config.target_lang))
        if name == STANDARD_INPUT:
            if self._read_input:
                raise UsageError("standard input can be read only once; name '-' once")
            self._read_input = True
            path, name = self._standard_input, "standard input"
        else:
            require_file(path)
        if form is TextForm.tsv:
            return TabSeparated(path, name, tuple(column - 1 for column in config.columns[:sides]))
        fields = config.fields or [config.source_lang, config.target_lang]
        return JsonLines(path, name, tuple(fields[:sides]))

    def _alignments(self, split: str, names: list[str]) -> tuple[Path, ...]:
        """Return the alignment file of each prefix. Splits other than the training text may have none."""
        suffix = self._config.align_suffix
        if suffix is None:
            return ()
        if STANDARD_INPUT in names:
            raise UsageError(
                "--align-suffix names files next to the text, which standard input does not have; name a file of text"
            )
        prefixes = [without_endings(name) for name in names]
        existing = [prefix for prefix in prefixes if file_exists(prefix, suffix)]
        if split != TRAIN and not existing:
            return ()
        return tuple(find_file(prefix, suffix) for prefix in prefixes)
