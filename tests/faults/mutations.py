"""Files damaged at random, the same each time; and a process of its own for readers that damage may crash."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

# What a byte at random next to never is, and readers trip over.
_STUMBLING_BLOCKS = (
    *(b"\n", b"\r", b"\r\n", b"\0", b"\t", b" ", b"\n\n", b"\xff", b"\xed\xb3\xbf", b"\xef\xbb\xbf", b"\xff\xfe"),
    *(text.encode() for text in ("\u2028", "\x85", "\v", "\u2581", "\ufeff", "@@ ", "</w>", "</s>", "0 0", "-1")),
    *(b'"', b"\\", b"\\u0000", b"\\ud800", b"{}", b"[]", b"null", b"1e999", b"9" * 5000, b"[" * 3000, b"{", b"}"),
)


def mutated(content: bytes, chosen: random.Random) -> bytes:
    """Damaged once, or a few times."""
    for _ in range(chosen.choice((1, 1, 1, 2, 5))):
        content = chosen.choice(_KINDS)(content, chosen)
    return content


def mutations(content: bytes, seed: int, number: int) -> Iterator[bytes]:
    """So many files that differ from ``content``."""
    chosen = random.Random(seed)
    while number:
        damaged = mutated(content, chosen)
        if damaged != content:
            number -= 1
            yield damaged


def _block(content: bytes, chosen: random.Random) -> tuple[int, int]:
    """From and to: short ones as often as long ones."""
    begin = chosen.randrange(len(content) + 1)
    return begin, min(len(content), begin + int(len(content) ** chosen.random()))


def _flip_bits(content: bytes, chosen: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chosen.choice((1, 1, 1, 8)) if content else 0):
        damaged[chosen.randrange(len(damaged))] ^= 1 << chosen.randrange(8)
    return bytes(damaged)


def _zero(content: bytes, chosen: random.Random) -> bytes:
    begin, end = _block(content, chosen)
    return content[:begin] + bytes(end - begin) + content[end:]


def _overwrite(content: bytes, chosen: random.Random) -> bytes:
    begin, end = _block(content, chosen)
    return content[:begin] + chosen.randbytes(end - begin) + content[end:]


def _truncate(content: bytes, chosen: random.Random) -> bytes:
    return content[: chosen.randrange(len(content) + 1)]


def _extend(content: bytes, chosen: random.Random) -> bytes:
    return content + chosen.choice((bytes(9), chosen.randbytes(20), content, content[: len(content) // 2], b"x\n"))


def _remove(content: bytes, chosen: random.Random) -> bytes:
    begin, end = _block(content, chosen)
    return content[:begin] + content[end:]


def _repeat(content: bytes, chosen: random.Random) -> bytes:
    begin, end = _block(content, chosen)
    return content[:end] + content[begin:end] + content[end:]


def _swap(content: bytes, chosen: random.Random) -> bytes:
    first, second, third = sorted(chosen.randrange(len(content) + 1) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


def _insert(content: bytes, chosen: random.Random) -> bytes:
    place = chosen.randrange(len(content) + 1)
    return content[:place] + chosen.choice(_STUMBLING_BLOCKS) + content[place:]


def _remove_lines(content: bytes, chosen: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    begin = chosen.randrange(len(lines) + 1)
    return b"".join(lines[:begin] + lines[begin + chosen.choice((1, 1, 2, 4)) :])


def _repeat_line(content: bytes, chosen: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    place = chosen.randrange(len(lines) + 1)
    return b"".join(lines[:place] + lines[place : place + 1] + lines[place:])


def _swap_lines(content: bytes, chosen: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    for _ in range(1 if len(lines) > 1 else 0):
        one, other = chosen.sample(range(len(lines)), 2)
        lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


_KINDS = (
    *(_flip_bits, _flip_bits, _zero, _overwrite, _truncate, _extend, _remove, _repeat, _swap, _insert),
    *(_remove_lines, _repeat_line, _swap_lines),
)


def in_a_child(action: Callable[[Callable[[object], None]], None], report: Path, seconds: int = 120) -> str:
    """What is wrong with ``action`` in a copy of this process: that it raises, crashes or hangs; else nothing. It tells what
    it does by calling what it is given."""

    def note(what: object) -> None:
        report.write_text(f"{what}\n", encoding="utf-8", errors="backslashreplace")

    note("nothing yet")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            faulthandler.disable()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            action(note)
            status = 0
        except BaseException:
            with open(report, "a", encoding="utf-8", errors="backslashreplace") as file:
                traceback.print_exc(file=file)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status == 0:
        return ""
    how = {1: "raised", -signal.SIGALRM: "hung"}.get(status, f"ended with {status}")
    return f"{how} at {report.read_text(encoding='utf-8')}"
