"""Outputs of nmt-generate and nmt-align: standard output, a pipe, a file that appears when it is complete, and a partial
file that a later command resumes."""

from __future__ import annotations

import contextlib
import gzip
import logging
import lzma
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from nmt.config.choices import OutputFormat
from nmt.config.commands import GenerateConfig
from nmt.config.plain import to_plain
from nmt.data.language_pair import PAIR_FILE
from nmt.errors import OutputError, StorageError, UsageError, quantity
from nmt.hub import checkpoint_at
from nmt.progress import beside_bar
from nmt.storage.checkpoints import checksums
from nmt.storage.files import MANIFEST, atomic_write, check_new_file, explained_os_errors, sha256, write_json
from nmt.storage.lock import claimed, remove_leftovers_of
from nmt.storage.reading import read_json
from nmt.storage.run_folder import split_paths, tokenizer_folder

logger = logging.getLogger("nmt.generate")

Write = Callable[[Iterator[str]], None]

# Options that do not change translations: they may differ when an output is resumed.
_FREE = "output overwrite resume_output batch_size max_tokens buffer_size workers cuda_graphs progress".split()

_RECIPE = "recipe"  # the version of the record's format; the first version lacks the key and names models by path only


def check_output(config: GenerateConfig) -> None:
    """Refuse an output that nmt-generate cannot write, before a model is loaded."""
    if config.output is None:
        if config.resume_output:
            raise UsageError("--resume-output needs an output file: --output FILE")
        return
    output = Path(config.output)
    if output.suffix == ".zst":
        raise UsageError(f"--output {output}: output cannot be compressed as .zst; end the name in .gz or .xz")
    if config.output == "-":
        raise UsageError("--output - is not a file name; omit it to write to standard output")
    if config.resume_output and (output.suffix in (".gz", ".xz") or _is_stream(output)):
        raise UsageError(f"--resume-output needs a plain output file, not {output}; compress it afterwards")
    check_file(output, config, ("input", "shortlist", "unk_dictionary"))


def check_file(output: Path, config: Any, read: Sequence[str]) -> None:
    """Refuse an output that exists, or is one of the files that the options ``read`` of a command name."""
    if _is_stream(output):
        return
    check_new_file(output, overwrite=config.overwrite)
    for flag in read:
        path = getattr(config, flag)
        if path is not None and output.exists() and Path(path).exists() and output.samefile(path):
            named = f"--{flag.replace('_', '-')} {path}"
            raise OutputError(f"writing {output} would replace the input {named}; choose another --output")


def claim(config: Any) -> AbstractContextManager[None]:
    """Hold the name of ``config.output`` from the start of the work; streams and standard output need no claim."""
    if config.output is None or _is_stream(Path(config.output)):
        return contextlib.nullcontext()
    return claimed(Path(config.output), overwrite=config.overwrite)


@contextlib.contextmanager
def opened(name: str | None, growing: ResumableOutput | None = None) -> Iterator[Write]:
    """Open standard output or a pipe, each flushed after every write, or a file."""
    if name is None:

        def to_stdout(lines: Iterator[str]) -> None:
            with beside_bar(sys.stdout):
                for line in lines:
                    sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

        yield to_stdout
    elif growing is not None:
        with growing.opened() as write:
            yield write
    elif _is_stream(output := Path(name)):
        with _stream(output) as write:
            yield write
    else:
        remove_leftovers_of(output)
        with atomic_write(output.resolve()) as raw, _packed(raw, output.suffix) as file:  # of a link what it names
            yield _into(file)


class ResumableOutput:
    """A file that gets its own name when it is complete. Until then it grows as ``.partial``, with a record of its origin.

    The caller holds the ``claim``.
    """

    def __init__(self, config: GenerateConfig) -> None:
        assert config.output is not None
        self._output = Path(config.output).resolve()
        self._partial = self._output.with_name(f"{self._output.name}.partial")
        self._recipe = self._output.with_name(f"{self._output.name}.partial.json")
        self._config = config
        self._file: BinaryIO | None = None

    def __enter__(self) -> ResumableOutput:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if self._partial.stat().st_size == 0:  # nothing to resume from
                self._partial.unlink()
                self._recipe.unlink()
        self._file.close()

    def begin(self) -> int:
        """Return the number of translated lines. The incomplete answer after them is removed."""
        with explained_os_errors(self._partial):
            self._file = open(self._partial, "ab")  # noqa: SIM115 - closed on exit
        ours = self._made_of()
        if self._partial.stat().st_size == 0:
            write_json(self._recipe, ours)
            return 0
        if not self._recipe.exists():
            raise UsageError(
                f"{self._partial} exists, but {self._recipe.name}, which records its options, is missing; delete the "
                f".partial file to start over"
            )
        theirs = read_json(self._recipe)
        if not isinstance(theirs, dict) or theirs.get(_RECIPE) != ours[_RECIPE]:
            raise UsageError(
                f"{self._partial} was started by another version of nmt, which recorded other options; "
                f"finish it with that version, or delete it to start over"
            )
        changed = [key for key in ours if theirs.get(key) != ours[key]]
        if changed:
            raise UsageError(
                f"{self._partial} was started with a different {', '.join(changed)}; use the same, or delete the file to "
                f"start over"
            )
        done, size = complete_answers(self._partial, self._config)
        self._file.truncate(size)
        if done:
            logger.info(f"resuming after {quantity(done, 'translated line')} in {self._partial}")
        return done

    def _made_of(self) -> dict[str, Any]:
        """Return the facts that translations depend on."""
        tree = cast(dict[str, Any], to_plain(self._config)) | {"device": self._config.device.precision.value}
        for key in ("path", "rerank"):
            paths = [] if tree[key] is None else split_paths(tree.pop(key))
            tree[f"model of --{key}"] = [
                _identity(checkpoint_at(path)) for path in paths
            ]  # of a run the best one by now
        read = [tree[key] for key in ("input", "shortlist", "unk_dictionary")]
        read += [Path(folder) / MANIFEST for folder in tree["data"]]
        files = [Path(path) for path in read if path is not None and Path(path).is_file()]
        contents = {f"content of {path}": sha256(path) for path in files}
        return {_RECIPE: 2} | {key: value for key, value in tree.items() if key not in _FREE} | contents

    @contextlib.contextmanager
    def opened(self) -> Iterator[Write]:
        assert self._file is not None, "it was begun"
        yield _into(self._file, at_once=True)
        os.fsync(self._file.fileno())
        os.replace(self._partial, self._output)
        self._recipe.unlink(missing_ok=True)


def _identity(checkpoint: Path) -> dict[str, Any]:
    """Identify a model by its contents: a path may hold another model later."""
    pair = tokenizer_folder(checkpoint) / PAIR_FILE  # holds the checksums of the tokenizer's other files
    return {"checkpoint": str(checkpoint), "files": checksums(checkpoint), "tokenizer": sha256(pair)}


def complete_answers(path: Path, config: GenerateConfig) -> tuple[int, int]:
    """Return the number of input lines whose answers are complete, and the size of these answers in bytes."""
    answers, size, offset, lines = 0, 0, 0, 0
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            if config.format is OutputFormat.fairseq:
                if line.startswith(b"S-"):  # it begins an answer; only the next answer shows that this one is complete
                    answers, size = answers + 1, offset
                offset += len(line)
                continue
            offset, lines = offset + len(line), lines + 1
            if config.format is OutputFormat.jsonl or lines % config.nbest == 0:
                answers, size = answers + 1, offset
    return (max(answers - 1, 0), size) if config.format is OutputFormat.fairseq else (answers, size)


def _into(file: IO[bytes], *, at_once: bool = False) -> Write:
    def write(lines: Iterator[str]) -> None:
        file.write("".join(f"{line}\n" for line in lines).encode())
        if at_once:
            file.flush()

    return write


def _is_stream(path: Path) -> bool:
    """Whether a path is something to write into, not a file to make: a named pipe, a terminal, /dev/null."""
    return path.is_fifo() or path.is_char_device()


def _packed(raw: BinaryIO, suffix: str) -> AbstractContextManager[IO[bytes]]:
    """Compress as the ending of the name says; equal translations give equal bytes."""
    if suffix == ".gz":
        return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0))
    if suffix == ".xz":
        return cast(IO[bytes], lzma.LZMAFile(raw, "wb"))
    return contextlib.nullcontext(raw)


@contextlib.contextmanager
def _stream(path: Path) -> Iterator[Write]:
    """Open a named pipe or a device for writing; it is not replaced."""
    file = open(path, "wb")  # noqa: SIM115 - closed below, where the error of a lost reader is not raised again
    into = _into(file, at_once=True)

    def to_stream(lines: Iterator[str]) -> None:
        try:
            with beside_bar(file):
                into(lines)
        except BrokenPipeError as error:
            raise StorageError(f"writing to {path} failed: its reader has closed it") from error

    try:
        yield to_stream
    finally:
        with contextlib.suppress(OSError):
            file.close()
