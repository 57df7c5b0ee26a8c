"""What a file is that is not one of ours, found out without running anything that it contains."""

from __future__ import annotations

import io
import itertools
import pickletools
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

_LOOKED_AT = 4 * 2**20  # bytes of a pickle: what it imports stands near its beginning
_SHOWN = 5
_LINES = 1000  # of what may be a dictionary

_BINARISED = re.compile(r"[^.]+\.(?P<source>[^.-]+)-(?P<target>[^.-]+)\.[^.]+\.bin")
_COUNTED = re.compile(r"[^ \n]+ \d+(?: #fairseq:overwrite)?\n?")


def describe(path: Path) -> str:
    """A noun phrase for a file, with advice where there is any."""
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "a web page, probably of a failed download"
    if start.startswith((b"PK\x03\x04", b"\x80")):
        names = sorted(set(_imports(_pickle(path))))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        asking = f" (to open it would import {', '.join(names[:_SHOWN])}{more})" if names else ""
        return (
            f"a pickled file of another toolkit{asking}; such files can run code and are never opened (nmt-import "
            f"reads the numbers of fairseq's checkpoints without running them)"
        )
    return "a file"


def corpus_of_fairseq(folder: Path) -> str | None:
    """A noun phrase for what fairseq-preprocess wrote, with advice; None: the folder is something else."""
    dictionaries = sorted(path.name for path in folder.glob("dict.*.txt"))
    binaries = sorted(path.name for path in folder.glob("*.bin") if path.with_suffix(".idx").is_file())
    if not dictionaries and not binaries:
        return None
    pair = next(filter(None, map(_BINARISED.fullmatch, binaries)), None)
    source, target = (pair["source"], pair["target"]) if pair else ("SRC", "TGT")
    return (
        f"a corpus folder of fairseq ({', '.join([*dictionaries[:1], *binaries[:1]])}); make one of ours of it: nmt-import "
        f"--from fairseq --path {folder} --source-lang {source} --target-lang {target} --output FOLDER (and --bpe, if the "
        f"text was cut), or of the same text with nmt-preprocess"
    )


def is_dictionary_of_fairseq(path: Path) -> bool:
    """Whether a file has a piece and its count on each line, as far as one looks."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = list(itertools.islice(file, _LINES))
    except (OSError, UnicodeDecodeError):
        return False
    return bool(lines) and all(_COUNTED.fullmatch(line) for line in lines)


def _pickle(path: Path) -> bytes:
    """The beginning of the pickle: the file itself, or what torch.save put into a zip archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".pkl"):
                    with archive.open(name) as member:
                        return member.read(_LOOKED_AT)
        return b""
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError):  # damaged, or encrypted
        with open(path, "rb") as file:
            return file.read(_LOOKED_AT)


def _imports(content: bytes) -> Iterator[str]:
    """The functions and classes that a pickle names, as far as it can be read; its operations are only listed."""
    pushed: list[str] = []
    memo: dict[int, str] = {}
    try:
        for operation, argument, _ in pickletools.genops(io.BytesIO(content)):
            if operation.name in ("GLOBAL", "INST"):
                yield str(argument).replace(" ", ".")
            elif operation.name == "STACK_GLOBAL" and len(pushed) > 1:
                yield ".".join(pushed[-2:])
            elif operation.name == "MEMOIZE":
                memo[len(memo)] = pushed[-1] if pushed else ""
            elif operation.name in ("BINPUT", "LONG_BINPUT", "PUT"):
                memo[int(str(argument))] = pushed[-1] if pushed else ""
            elif operation.name in ("BINGET", "LONG_BINGET", "GET"):
                pushed.append(memo.get(int(str(argument)), "?"))
            elif isinstance(argument, str):
                pushed.append(argument)
    except Exception:
        return
