"""Recognize the files of other toolkits without running anything in them."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
import zipfile
from pathlib import Path

from nmt.storage.pickles import read_pickle

_LOOKED_AT = 4 * 2**20  # bytes of a pickle; its imports are near the beginning
_SHOWN = 5  # imports in a message
_LINES = 1000  # read of a possible dictionary

_BINARISED = re.compile(r"[^.]+\.(?P<source>[^.-]+)-(?P<target>[^.-]+)\.[^.]+\.bin")
_COUNTED = re.compile(r"[^ \n]+ \d+(?: #fairseq:overwrite)?\n?")


def describe(path: Path) -> str:
    """Return a noun phrase for a file, with advice if there is any."""
    with open(path, "rb") as file:
        start = file.read(64)
    if start.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file itself; fetch it with 'git lfs pull'"
    if start.lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "a web page, probably of a failed download"
    if start.startswith((b"PK\x03\x04", b"\x80")):
        names = _imports(_pickle(path))
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        asking = f" (opening it would import {', '.join(names[:_SHOWN])}{more})" if names else ""
        return (
            f"a pickled file of another toolkit{asking}; such files can run code and are never opened (nmt-import "
            f"reads fairseq's checkpoints without running code)"
        )
    return "a file"


def corpus_of_fairseq(folder: Path) -> str | None:
    """Return a noun phrase for the output of fairseq-preprocess, with advice. None: the folder is something else."""
    dictionaries = sorted(path.name for path in folder.glob("dict.*.txt"))
    binaries = sorted(path.name for path in folder.glob("*.bin") if path.with_suffix(".idx").is_file())
    if not dictionaries and not binaries:
        return None
    pair = next(filter(None, map(_BINARISED.fullmatch, binaries)), None)
    source, target = (pair["source"], pair["target"]) if pair else ("SRC", "TGT")
    return (
        f"a corpus folder of fairseq ({', '.join([*dictionaries[:1], *binaries[:1]])}); convert it with nmt-import "
        f"--from fairseq --path {folder} --source-lang {source} --target-lang {target} --output FOLDER (and --bpe, if the "
        f"text was segmented), or run nmt-preprocess on the same text"
    )


def is_dictionary_of_fairseq(path: Path) -> bool:
    """Whether each of the first lines of a file has a token and its count."""
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            lines = list(itertools.islice(file, _LINES))
    except (OSError, UnicodeDecodeError):
        return False
    return bool(lines) and all(_COUNTED.fullmatch(line) for line in lines)


def _pickle(path: Path) -> bytes:
    """Return the beginning of the pickle: of the file itself, or of the member of a zip archive of torch.save."""
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


def _imports(content: bytes) -> list[str]:
    """Return the functions and classes that a pickle names, up to the first operation that cannot be read."""
    names: set[str] = set()
    with contextlib.suppress(Exception):
        read_pickle(io.BytesIO(content), names.add)
    return sorted(names)
