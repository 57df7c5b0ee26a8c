"""Lines of text, byte by byte, in plain, gzip, xz and zstd files: parallel files stay parallel whatever stands in them.

Only the byte 0x0A ends a line. Python's own readers also split at U+0085, U+2028, U+2029, form feeds and bare
carriage returns, so that two files of equal length drift apart; this reader does not. What is wrong with a file is
reported as ``file:line:byte``: lines count from 1, bytes of a line from 0.
"""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import itertools
import logging
import lzma
import os
import re
import select
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

from nmt.config.choices import InvalidText, PieceMarks
from nmt.config.sections import MAX_LINE_BYTES
from nmt.errors import DataError, MissingInputError, StorageError

_BLOCK = 2**20
_UTF8_MARK = b"\xef\xbb\xbf"
_FOREIGN = {  # what a file that is not UTF-8 text begins with, and what to do about it
    b"\xff\xfe": "looks like UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "looks like UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8",
    b"\x1f\x8b": "looks like gzip data; decompress it first: gzip -dc",
    b"\xfd7zXZ\x00": "looks like xz data; decompress it first: xz -dc",
    b"\x28\xb5\x2f\xfd": "looks like zstd data; decompress it first: zstd -dc",
}
PACKED = (".gz", ".xz", ".zst")  # endings of files that are read as they are
_PATIENCE = 0.05  # seconds without a line that are a pause
_LINE_BREAKS = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_WHITE_SPACE = re.compile(r"\s")
_SURROGATE = re.compile("[\ud800-\udfff]")
# How packed files begin; those of zstd also with a frame to skip, as pzstd writes it.
_GZIP, _XZ, _ZSTD = map(re.compile, (rb"\x1f\x8b", rb"\xfd7zXZ\x00", rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"))
# A compressed file may grow to this size unquestioned; beyond it, text that was packed better than this is no text.
_BOMB_BYTES = 2**28
_BOMB_RATIO = 500

# Text that comes in pieces already:
# subword_nmt      "hau@@ s steht": a piece that ends in "@@" goes on with the next one, which may be missing at the end
# sentencepiece    "\u2581hau s \u2581steht": spaces separate pieces, U+2581 stands where the text had a space
_WORD_BEGINS = "\u2581"
_PATTERNS = {
    PieceMarks.sentencepiece: re.compile(f"(?:^| ){_WORD_BEGINS}"),
    PieceMarks.subword_nmt: re.compile(r"[^ ]@@(?: |$)"),
}
# Raw text has next to no words that end in "@@", and a large vocabulary cuts few words. Text that sentencepiece cut has
# its mark in every line with two words, and raw text may have the character in some.
_SHARE_OF_LINES = {PieceMarks.sentencepiece: 0.5, PieceMarks.subword_nmt: 0.01}
SHOWN = {PieceMarks.sentencepiece: f"'{_WORD_BEGINS}'", PieceMarks.subword_nmt: "'@@ '"}  # as messages name the marks
SAMPLE_LINES = 10_000  # enough to tell how a text is cut

logger = logging.getLogger("nmt.data.text")


class BinaryReader(Protocol):
    """What is needed of an open file; with ``read1`` too, lines come as soon as they are there."""

    def read(self, size: int, /) -> bytes: ...


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryReader]:
    """The content of a file, decompressed."""
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingInputError(f"cannot read {path}: {reason} (working directory: {os.getcwd()})") from None
    with file:
        try:
            head = file.peek(8)
        except OSError as error:
            raise StorageError(f"reading {path} failed: {error.strerror}") from error
        unpack = next((unpack for start, unpack in _UNPACKERS.items() if start.match(head)), None)
        if unpack is not None:
            yield _Guarded(path, unpack(file), file)
        elif head and path.suffix in PACKED:
            kind = {".gz": "gzip", ".xz": "xz", ".zst": "zstd"}[path.suffix]
            raise DataError(f"{path} is named {path.suffix} but is not {kind} data; rename it if it is plain text")
        else:
            yield file


def _gzip(file: io.BufferedReader) -> Iterator[bytes]:
    unpacked = gzip.GzipFile(fileobj=file)
    return iter(lambda: unpacked.read1(_BLOCK), b"")


def _streams(
    begin: Callable[[], lzma.LZMADecompressor | zstd.ZstdDecompressor], padding: bytes, file: io.BufferedReader
) -> Iterator[bytes]:
    """What xz or zstd packed, stream after stream. The readers of the libraries take the rest of a file for no text where a
    stream does not begin as it should, so that lines would be missing without a word."""
    packed = file.read(_BLOCK)
    while packed:
        stream = begin()
        while not stream.eof:
            if stream.needs_input and not (packed := packed or file.read(_BLOCK)):
                raise EOFError
            if block := stream.decompress(packed, _BLOCK):
                yield block
            packed = b""
        packed = stream.unused_data
        while not packed.strip(padding) and (packed := file.read(_BLOCK)):
            pass
        packed = packed.lstrip(padding)


_UNPACKERS: dict[re.Pattern[bytes], Callable[[io.BufferedReader], Iterator[bytes]]] = {
    _GZIP: _gzip,
    _XZ: functools.partial(_streams, lzma.LZMADecompressor, b"\0"),
    _ZSTD: functools.partial(_streams, zstd.ZstdDecompressor, b""),
}


class _Guarded:
    """A decompressed file that refuses to grow without end."""

    def __init__(self, path: Path, unpacked: Iterator[bytes], packed: io.BufferedReader) -> None:
        self._path, self._unpacked, self._packed = path, unpacked, packed
        self._size = 0  # bytes read so far

    def read(self, size: int, /) -> bytes:
        block = next(self._unpacked, b"")
        self._size += len(block)
        if self._size > _BOMB_BYTES and self._packed.seekable() and self._size > _BOMB_RATIO * self._packed.tell():
            raise DataError(
                f"{self._path} decompresses to more than {_BOMB_RATIO} times its size, which text does not; "
                f"stopped after {self._size} bytes. Decompress it first if it is what you want"
            )
        return block


class Pause(Enum):
    """Stands among the lines of a stream where nothing came for a moment."""

    PAUSE = "pause"


PAUSE = Pause.PAUSE


@dataclass(frozen=True)
class Reading:
    """How text is read."""

    invalid: InvalidText = InvalidText.error
    max_line_bytes: int = MAX_LINE_BYTES

    def lines(self, path: Path, *, quiet: bool = False, name: str = "") -> Iterator[str | None]:
        """The lines of a plain or packed file without their ends; None stands for one left out by ``invalid=skip``.
        ``quiet``: without the notices (carriage returns, byte-order mark), for a second pass over the same file.
        ``name``: how messages call it, if it is not the path."""
        return itertools.chain.from_iterable(self.blocks(path, quiet=quiet, name=name))

    def blocks(self, path: Path, *, quiet: bool = False, name: str = "") -> Iterator[Sequence[str | None]]:
        """The same, as many lines as are read at a time."""
        with opened(path) as file:
            reader = _LineReader(file, name or str(path), self, quiet)
            yield from cast(Iterator[Sequence[str | None]], reader.blocks())

    def stream(self, binary: BinaryReader, name: str) -> Iterator[str | None]:
        """The lines of an open binary stream (``sys.stdin.buffer``), as soon as they are there."""
        return cast(Iterator[str | None], _LineReader(binary, name, self).lines())

    def live(self, binary: BinaryReader, name: str) -> Iterator[str | Pause | None]:
        """The same, with a ``PAUSE`` where who writes into a pipe may be waiting for an answer. A file never pauses."""
        return _LineReader(binary, name, self).lines(pauses=True)


def one_line(text: str) -> str:
    """Every character that some program takes for a line break becomes a space: one line in is one line out."""
    return _LINE_BREAKS.sub(" ", text)


def visible_spaces(piece: str) -> str:
    """A piece with its white space shown as U+2581, so that pieces can be joined by spaces."""
    return _WHITE_SPACE.sub("\u2581", piece)


def require_text(lines: Sequence[str], first: int = 1) -> None:
    """Refuse lone surrogates, which Python strings alone can hold and no encoding can write. ``first`` is the number of
    the first of these lines, for the message."""
    try:
        "".join(lines).encode("utf-8")
    except UnicodeEncodeError:
        found = ((number, _SURROGATE.search(line)) for number, line in enumerate(lines, start=first))
        number, match = next((number, match) for number, match in found if match)
        raise DataError(
            f"sentence {number}: character {match.start()} is the lone surrogate U+{ord(match.group()):04X}, "
            f"which is not text; decode the input with errors='replace'"
        ) from None


class _LineReader:
    """Cuts blocks of bytes into lines and checks them; remembers where it is for the messages."""

    def __init__(self, file: BinaryReader, name: str, reading: Reading, quiet: bool = False) -> None:
        self._file = file
        self._name = name
        self._invalid, self._max_line_bytes = InvalidText(reading.invalid), reading.max_line_bytes
        self._notices = logging.DEBUG if quiet else logging.WARNING
        self._number = 0  # lines begun
        self._offset = 0  # where the current line begins in the (decompressed) file
        self._carriage_returns_seen = False
        self._invalid_lines = 0

    def lines(self, pauses: bool = False) -> Iterator[str | Pause | None]:
        for block in self.blocks(pauses):
            if isinstance(block, Pause):
                yield block
            else:
                yield from block

    def blocks(self, pauses: bool = False) -> Iterator[Sequence[str | None] | Pause]:
        """As many lines at a time as need no closer look, else one: lines before a bad one are given out."""
        for run in self._runs(pauses):
            if isinstance(run, Pause):
                yield run
                continue
            body = self._without_mark(run) if self._number == 0 else run
            if (lines := self._clean(body)) is not None:
                self._number += len(lines)
                self._offset += len(body) + 1
                yield lines
                continue
            for raw in body.split(b"\n"):
                self._refuse_long(raw)
                self._number += 1
                yield [self._text(raw)]
                self._offset += len(raw) + 1
        if self._invalid_lines:
            done = "replaced by U+FFFD in" if self._invalid is InvalidText.replace else "the reason to skip"
            logger.log(self._notices, f"{self._name}: bytes that are not text were {done} {self._invalid_lines} lines")

    def _runs(self, pauses: bool) -> Iterator[bytes | Pause]:
        """As many whole lines as there are at a time, the last line feed taken off."""
        # read1 returns what is there instead of waiting for a full block: a pipe or terminal is served line by line
        read: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
        tail, answered = b"", time.monotonic()
        while True:
            left = answered + _PATIENCE - time.monotonic()
            # a line that comes in small pieces holds back those before it no longer than silence does
            if pauses and (_is_silent(self._file, max(left, 0.0)) or (tail and left <= 0.0)):
                yield PAUSE
                answered = time.monotonic()
            if not (block := self._block(read)):
                break
            run, line_feed, tail = (tail + block).rpartition(b"\n")
            if line_feed:
                yield run
                answered = time.monotonic()
            self._refuse_long(tail)
        if tail and not (self._number == 0 and tail == _UTF8_MARK):
            yield tail

    def _block(self, read: Callable[[int], bytes]) -> bytes:
        try:
            return read(_BLOCK)
        except EOFError:
            raise DataError(
                f"unexpected end of compressed file {self._name} after {self._number} lines; it was cut short"
            ) from None
        except (gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError) as error:
            raise DataError(f"compressed file {self._name} is damaged after {self._number} lines ({error})") from None
        except OSError as error:
            raise StorageError(f"reading {self._name} failed after {self._number} lines: {error.strerror}") from error

    def _clean(self, run: bytes) -> list[str] | None:
        """The lines of a run that needs no closer look, as nearly all do; else None."""
        if b"\0" in run or b"\r" in run or len(run) > self._max_line_bytes:
            return None
        try:
            return run.decode("utf-8").split("\n")
        except UnicodeDecodeError:
            return None

    def _refuse_long(self, line: bytes) -> None:
        if len(line) > self._max_line_bytes:
            raise DataError(
                f"{self._name}:{self._number + 1}: no line break in the {self._max_line_bytes} bytes from byte "
                f"{self._offset} of the file on; if the line is right, raise max_line_bytes (--max-line-bytes)"
            )

    def _text(self, raw: bytes) -> str | None:
        """One line: carriage return off, then strict UTF-8 without NUL."""
        body = raw.removesuffix(b"\r")
        if body != raw and not self._carriage_returns_seen:
            self._carriage_returns_seen = True
            notice = f"{self._name}: line {self._number} ends in CR LF; the carriage returns are left out"
            logger.log(self._notices, notice)
        bad = _first_bad_byte(body)
        if bad is None:
            return body.decode("utf-8")
        if self._invalid is InvalidText.error:
            raise DataError(self._complaint(body, bad))
        self._invalid_lines += 1
        if self._invalid is InvalidText.skip:
            return None
        return body.decode("utf-8", "replace").replace("\0", "\ufffd")

    def _without_mark(self, run: bytes) -> bytes:
        """The beginning of the file without byte-order mark."""
        for signature, advice in _FOREIGN.items():
            if run.startswith(signature):
                raise DataError(f"{self._name} {advice}")
        if run.startswith(_UTF8_MARK):
            logger.log(self._notices, f"{self._name}: the byte-order mark at the beginning is left out")
            self._offset = len(_UTF8_MARK)
        return run.removeprefix(_UTF8_MARK)

    def _complaint(self, body: bytes, bad: int) -> str:
        what = "is NUL, which is not text" if body[bad] == 0 else "is not UTF-8"
        in_file = self._offset + bad
        in_line = in_file if self._number == 1 else bad  # the first line begins with the mark, if there is one
        return (
            f"{self._name}:{self._number}:{in_line}: byte 0x{body[bad]:02x} {what} (byte {in_file} of the file); "
            f"mend it, or set on_invalid_utf8=replace or skip (--on-invalid-utf8)"
        )


def _is_silent(binary: BinaryReader, seconds: float) -> bool:
    """Whether nothing comes for so long. What cannot be watched (a stream of a test, a pipe on Windows) never is."""
    try:
        descriptor: int = binary.fileno()  # type: ignore[attr-defined]
        return not select.select([descriptor], [], [], seconds)[0]
    except (AttributeError, OSError, ValueError):
        return False


def _first_bad_byte(body: bytes) -> int | None:
    """Position of the first byte that is NUL or breaks UTF-8, or None."""
    try:
        body.decode("utf-8")
        broken = None
    except UnicodeDecodeError as error:
        broken = error.start
    nul = body.find(b"\0", 0, broken)
    return broken if nul < 0 else nul


def recognised(lines: Iterable[str | None]) -> tuple[PieceMarks, int, int]:
    """How a text was cut, judging by its first lines; how many of them show that, and of how many that are not blank."""
    sample = list(itertools.islice((line for line in lines if line is not None and line.strip()), SAMPLE_LINES))
    for marks, share in _SHARE_OF_LINES.items():
        count = sum(_PATTERNS[marks].search(line) is not None for line in sample)
        if count and count >= share * len(sample):
            return marks, count, len(sample)
    return PieceMarks.none, 0, len(sample)


def joined(line: str, marks: PieceMarks) -> str:
    """A line of pieces as the line of its words. Other words with "@", such as "@-@", stay as they are."""
    if marks is PieceMarks.subword_nmt:
        return f"{line} ".replace("@@ ", "").rstrip(" ")
    if marks is PieceMarks.sentencepiece:
        return line.replace(" ", "").replace(_WORD_BEGINS, " ").strip(" ")
    return line


def joined_lines(lines: Sequence[str], marks: PieceMarks) -> list[str]:
    """All lines of a text, joined; a text that sentencepiece did not cut keeps its spaces."""
    if marks is PieceMarks.sentencepiece and recognised(lines)[0] is not marks:
        return list(lines)
    return [joined(line, marks) for line in lines]
