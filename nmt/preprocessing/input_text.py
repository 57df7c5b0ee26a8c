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
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import (
    JsonLines,
    JsonNumbers,
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
from nmt.errors import DataError, UsageError
from nmt.storage.files import explained_os_errors, temporary

TRAIN = "train"
STANDARD_INPUT = "-"

logger = logging.getLogger("nmt.preprocessing")


def find_texts(config: PreprocessConfig, standard_input: Path) -> list[ParallelText]:
    """Return the text of each split, in fairseq's naming: train, valid, valid1, ..., test, test1, ...

    Several training texts are concatenated; each validation or test text is a split. ``standard_input``: the file with its
    content.
    """
    training = [
        *((name, form_of(name)) for name in names_of(config.trainpref)),
        *((name, TextForm.tsv) for name in names_of(config.tsv)),
        *((name, TextForm.jsonl) for name in names_of(config.jsonl)),
    ]
    if [name for name, form in training if form is not None].count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read only once; name '-' once")
    splits = [(TRAIN, training)] if training else []
    for split, names in (("valid", config.validpref), ("test", config.testpref)):
        splits += [(f"{split}{number or ''}", [(name, form_of(name))]) for number, name in enumerate(names_of(names))]
    if not splits:
        raise UsageError("no text is given: set --trainpref, --validpref or --testpref")
    texts = [_text(config, standard_input, split, named) for split, named in splits]
    kinds = {type(weights) for text in texts for weights in text.weights}
    forms = (
        ("suffix", TwoFiles, "in two files"),
        ("column", TabSeparated, "of --tsv"),
        ("field", JsonNumbers, "of --jsonl"),
    )
    for name, kind, form in forms:
        if training and getattr(config, f"weight_{name}") is not None and kind not in kinds:
            raise UsageError(
                f"--weight-{name} has no effect, because there is no text {form}; omit it, or add such text"
            )
    return texts


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


def _text(
    config: PreprocessConfig, standard_input: Path, split: str, named: list[tuple[str, TextForm | None]]
) -> ParallelText:
    files = tuple(_pair_file(config, standard_input, name, form) for name, form in named)
    for pair in files:
        if isinstance(pair, TwoFiles) and pair.target is not None and pair.source.samefile(pair.target):
            logger.warning(f"{split}: {pair.source} and {pair.target} are the same file")
    names = [name for name, _ in named]
    alignments = _alignments(config.align_suffix, split, names)
    return ParallelText(split, files, not config.only_source, alignments, _weights(config, split, names, files))


def _pair_file(config: PreprocessConfig, standard_input: Path, name: str, form: TextForm | None) -> PairFile:
    path, sides = Path(name), 1 if config.only_source else 2
    if form is None:
        if name == STANDARD_INPUT:
            raise UsageError("standard input must hold both sides of each pair; give --tsv - or --jsonl -")
        source = find_file(name, config.source_lang)
        return TwoFiles(source, None if config.only_source else find_file(name, config.target_lang))
    if name == STANDARD_INPUT:
        path, name = standard_input, "standard input"
    else:
        require_file(path)
    if form is TextForm.tsv:
        return TabSeparated(path, name, tuple(column - 1 for column in config.columns[:sides]))
    fields = config.fields or [config.source_lang, config.target_lang]
    return JsonLines(path, name, tuple(fields[:sides]))


def _alignments(suffix: str | None, split: str, names: list[str]) -> tuple[Path, ...]:
    """Return the alignment file of each prefix. Splits other than the training text may have none."""
    if suffix is None:
        return ()
    if STANDARD_INPUT in names:
        raise UsageError(
            "--align-suffix names files next to the text, which standard input does not have; name a file of text"
        )
    prefixes = [without_endings(name) for name in names]
    if split != TRAIN and not any(file_exists(prefix, suffix) for prefix in prefixes):
        return ()
    return tuple(find_file(prefix, suffix, "suffix (--align-suffix)") for prefix in prefixes)


def _weights(
    config: PreprocessConfig, split: str, names: list[str], files: tuple[PairFile, ...]
) -> tuple[PairFile, ...]:
    """Return the source of the weights of each file of pairs. Splits other than the training text may have none."""
    if (config.weight_suffix, config.weight_column, config.weight_field) == (None, None, None):
        return ()
    weights = [_weights_of(config, split, *both) for both in zip(names, files)]
    missing = next((pairs.called(0) for pairs, part in zip(files, weights) if part is None), None)
    if missing is None:
        return tuple(part for part in weights if part is not None)
    if split == TRAIN:
        raise UsageError(
            f"training text {missing} has no weights; set --weight-suffix for text files, --weight-column for .tsv or "
            f"--weight-field for .jsonl"
        )
    return ()


def _weights_of(config: PreprocessConfig, split: str, name: str, pairs: PairFile) -> PairFile | None:
    suffix, prefix = config.weight_suffix, without_endings(name)
    column: PairFile | None = None
    if isinstance(pairs, TabSeparated) and config.weight_column is not None:
        column = TabSeparated(pairs.path, pairs.name, (config.weight_column - 1,))
    elif isinstance(pairs, JsonLines) and config.weight_field is not None:
        column = JsonNumbers(pairs.path, pairs.name, (config.weight_field,))
    if column is not None:
        return column if split == TRAIN or _begins(column) else None
    if suffix is None or name == STANDARD_INPUT or not (split == TRAIN or file_exists(prefix, suffix)):
        return None
    return TwoFiles(find_file(prefix, suffix, "suffix (--weight-suffix)"), None)


def _begins(column: PairFile) -> bool:
    """Whether the first line of a file has a column or field."""
    try:
        next(column.side(0, Reading()), None)
    except DataError:
        return False
    return True
