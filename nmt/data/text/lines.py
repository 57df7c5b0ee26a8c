"""Lines of plain and packed files, cut at bytes 0x0A alone, so that parallel files stay parallel.

Python's own readers also split at U+0085, U+2028, U+2029, form feeds and bare carriage returns. Errors are reported as
``file:line:byte``: lines count from 1, bytes of a line from 0.
"""

from __future__ import annotations

import itertools
import logging
import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import cast

from nmt.config.choices import WORD_START, InvalidText
from nmt.config.common_options import MAX_LINE_BYTES
from nmt.data.text.packed_files import UNPACKING_ERRORS, BinaryReader, opened
from nmt.errors import DataError, StorageError, quantity

_BLOCK = 2**20
_UTF8_MARK = b"\xef\xbb\xbf"
_NOT_UTF8 = {  # first bytes of other files, and the advice for each
    b"\xff\xfe": "looks like UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8",
    b"\xfe\xff": "looks like UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8",
    b"\x1f\x8b": "looks like gzip data; decompress it first: gzip -dc",
    b"\xfd7zXZ\x00": "looks like xz data; decompress it first: xz -dc",
    b"\x28\xb5\x2f\xfd": "looks like zstd data; decompress it first: zstd -dc",
}
_PATIENCE = 0.05  # seconds without a line before a pause
_LINE_BREAKS = re.compile("[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_WHITE_SPACE = re.compile(r"\s")
_SURROGATE = re.compile("[\ud800-\udfff]")

logger = logging.getLogger("nmt.data.text.lines")


class Pause(Enum):
    """Marks a moment without input among the lines of a stream."""

    PAUSE = "pause"


PAUSE = Pause.PAUSE


@dataclass(frozen=True)
class Reading:
    """Options of reading text."""

    invalid: InvalidText = InvalidText.error
    max_line_bytes: int = MAX_LINE_BYTES
    advice: str = "correct it, or set on_invalid_utf8=replace or skip (--on-invalid-utf8)"  # on invalid bytes

    def strict(self, advice: str) -> Reading:
        """Return the options for a file of numbers, in which invalid bytes are always an error."""
        return Reading(max_line_bytes=self.max_line_bytes, advice=advice)

    def lines(self, path: Path, *, quiet: bool = False, name: str = "") -> Iterator[str | None]:
        """Yield the lines of a plain or packed file without line feeds; None for a line skipped by ``invalid=skip``.

        ``quiet``: no notices of carriage returns and byte-order marks, for a second pass over the file. ``name``: the name
        of the file in messages; empty: its path.
        """
        return itertools.chain.from_iterable(self.blocks(path, quiet=quiet, name=name))

    def blocks(self, path: Path, *, quiet: bool = False, name: str = "") -> Iterator[Sequence[str | None]]:
        """Yield the lines in blocks, as they are read."""
        with opened(path) as file:
            reader = _LineReader(file, name or str(path), self, quiet)
            yield from cast(Iterator[Sequence[str | None]], reader.blocks())

    def stream(self, binary: BinaryReader, name: str) -> Iterator[str | None]:
        """Yield the lines of an open binary stream (``sys.stdin.buffer``) without delay."""
        return cast(Iterator[str | None], _LineReader(binary, name, self).lines())

    def live(self, binary: BinaryReader, name: str) -> Iterator[str | Pause | None]:
        """Yield lines, and a ``PAUSE`` when the writer of a pipe may be waiting for an answer. A file never pauses."""
        return _LineReader(binary, name, self).lines(pauses=True)


def one_line(text: str) -> str:
    """Replace every character that some program takes for a line break by a space."""
    return _LINE_BREAKS.sub(" ", text)


def visible_spaces(piece: str) -> str:
    """Replace white space by U+2581, so that tokens can be joined by spaces."""
    return _WHITE_SPACE.sub(WORD_START, piece)


def require_text(lines: Sequence[str], first: int = 1) -> None:
    """Refuse lone surrogates, which Python strings can hold but UTF-8 cannot. ``first``: number of the first line."""
    try:
        "".join(lines).encode("utf-8")
    except UnicodeEncodeError:
        matches = ((number, _SURROGATE.search(line)) for number, line in enumerate(lines, start=first))
        number, match = next((number, match) for number, match in matches if match)
        raise DataError(
            f"sentence {number}: character {match.start()} is the lone surrogate U+{ord(match.group()):04X}, "
            f"which is not text; decode the input with errors='replace'"
        ) from None


class _LineReader:
    """Cuts blocks of bytes into lines and checks them; tracks its position for messages."""

    def __init__(self, file: BinaryReader, name: str, reading: Reading, quiet: bool = False) -> None:
        self._file = file
        self._name = name
        self._invalid, self._max_line_bytes = InvalidText(reading.invalid), reading.max_line_bytes
        self._advice = reading.advice
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
        """Yield valid lines in blocks, and others one at a time, so that the lines before an invalid one are yielded."""
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
            count = quantity(self._invalid_lines, "line")
            skipped = f"skipped {count} with bytes that are not text"
            replaced = f"replaced bytes that are not text with U+FFFD in {count}"
            done = replaced if self._invalid is InvalidText.replace else skipped
            logger.log(self._notices, f"{self._name}: {done}")

    def _runs(self, pauses: bool) -> Iterator[bytes | Pause]:
        """Yield blocks of whole lines without the last line feed."""
        # read1 does not wait for a full block: a pipe or terminal is read line by line
        read: Callable[[int], bytes] = getattr(self._file, "read1", self._file.read)
        tail, answered = b"", time.monotonic()
        while True:
            left = answered + _PATIENCE - time.monotonic()
            # an incomplete line delays the lines before it no longer than silence does
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
                f"unexpected end of compressed file {self._name} after {quantity(self._number, 'line')}; it was cut short"
            ) from None
        except UNPACKING_ERRORS as error:
            raise DataError(
                f"compressed file {self._name} is damaged after {quantity(self._number, 'line')} ({error})"
            ) from None
        except OSError as error:
            raise StorageError(
                f"reading {self._name} failed after {quantity(self._number, 'line')}: {error.strerror}"
            ) from error

    def _clean(self, run: bytes) -> list[str] | None:
        """Return the lines of a block that is valid as it is, as nearly all are; otherwise None."""
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
        """Decode a line: without carriage return, as strict UTF-8 without NUL."""
        body = raw.removesuffix(b"\r")
        if body != raw and not self._carriage_returns_seen:
            self._carriage_returns_seen = True
            notice = f"{self._name}: line {self._number} ends in CR LF; carriage returns are removed"
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
        """Remove the byte-order mark at the beginning of the file."""
        for signature, advice in _NOT_UTF8.items():
            if run.startswith(signature):
                raise DataError(f"{self._name} {advice}")
        if run.startswith(_UTF8_MARK):
            logger.log(self._notices, f"{self._name}: removed the byte-order mark at the beginning")
            self._offset = len(_UTF8_MARK)
        return run.removeprefix(_UTF8_MARK)

    def _complaint(self, body: bytes, bad: int) -> str:
        what = "is NUL, which is not text" if body[bad] == 0 else "is not UTF-8"
        in_file = self._offset + bad
        in_line = in_file if self._number == 1 else bad  # the first line includes the byte-order mark
        return (
            f"{self._name}:{self._number}:{in_line}: byte 0x{body[bad]:02x} {what} (byte {in_file} of the file); "
            f"{self._advice}"
        )


def _is_silent(binary: BinaryReader, seconds: float) -> bool:
    """Whether no input arrives for so long; False if the stream cannot be watched (in tests, a pipe on Windows)."""
    try:
        descriptor: int = binary.fileno()  # type: ignore[attr-defined]
        return not select.select([descriptor], [], [], seconds)[0]
    except (AttributeError, OSError, ValueError):
        return False


def _first_bad_byte(body: bytes) -> int | None:
    """Return the position of the first byte that is NUL or breaks UTF-8, or None."""
    try:
        body.decode("utf-8")
        broken = None
    except UnicodeDecodeError as error:
        broken = error.start
    nul = body.find(b"\0", 0, broken)
    return broken if nul < 0 else nul
