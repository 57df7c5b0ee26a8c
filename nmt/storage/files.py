"""Files that survive: written whole or not at all, and checked when read.

The protocol for everything the project writes: a temporary sibling, flush, fsync, rename, fsync of the folder. A reader
therefore sees the old file or the new one, never half of one, whatever happens to the process or to the power.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar

import nmt
from nmt.errors import DataError, MissingInputError, NMTError, OutputError, StorageError

MANIFEST = "manifest.json"
_CHECKSUM = "checksum"  # in a manifest, of the rest of it
ATTEMPTS = 3  # at what a network file system refuses because it was moved on the server meanwhile

# The disk's faults that no program can mend (status 74), and what the user can do about each.
_ADVICE_STORAGE = {
    errno.ENOSPC: "free some space and start again",
    errno.EDQUOT: "free some space or ask for a larger quota, and start again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "choose a place that can be written to",
    errno.EIO: "check the disk, or choose another one",
}
_ADVICE_OUTPUT = {
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.ENOENT: "make its folder first, or choose another one",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "it is a folder; choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})  # by what is no empty folder
STORAGE_FAULTS = frozenset(_ADVICE_STORAGE)

Value = TypeVar("Value")


class OtherFormat(DataError):
    """A folder of another format than this version reads: not damaged, the version that wrote it can read it."""


class Verify(Enum):
    """How thoroughly a folder is compared with its manifest."""

    fast = "fast"  # names and sizes, and the checksums of what a reader says is small
    full = "full"  # all checksums


def check_new_file(output: Path, *, overwrite: bool, option: str = "--output") -> None:
    """Refuse, before any work is done, a name under which no file can be written. ``option`` is the flag that gave it."""
    if not output.parent.is_dir():
        raise OutputError(
            f"cannot create {output}: {output.parent} is no folder; make it first, or choose another {option}"
        )
    if output.exists() and not output.is_file():
        raise OutputError(f"{output} is a folder or a device, where no file can be written; choose another {option}")
    if output.exists() and not overwrite:
        raise OutputError(f"{output} exists already; choose another name, or replace it with --overwrite")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot create {output}: {output.parent} is closed to you; choose another {option}")


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Write ``path`` as a whole: the block fills a temporary sibling, which then takes the name."""
    sibling = temporary(path)
    try:
        with said_plainly(path):
            with open(sibling, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _despite_stale_handles(lambda: os.replace(sibling, path))
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            sibling.unlink()


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Make a folder as a whole: the block fills a temporary sibling, which is synchronised and then takes the name (of a
    link, that of what it names).

    Without ``overwrite`` it takes the place of nothing but an empty folder, also if another process was faster.
    """
    path = Path(os.path.realpath(path))
    if not overwrite and os.path.lexists(path) and not (path.is_dir() and next(path.iterdir(), None) is None):
        raise _taken(path)
    sibling = temporary(path)
    try:
        with said_plainly(path):
            sibling.mkdir(parents=True)
            yield sibling
            for part in (*sorted(sibling.rglob("*")), sibling):
                sync(part)
            _replace_folder(sibling, path) if overwrite else _name_folder(sibling, path)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder into another one, and stop at the first that fails: ``shutil.copytree`` goes on, and its
    error does not say why."""

    def stop(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(source, onerror=stop, followlinks=True):
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copyfile(Path(folder, name), copy / name)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with _despite_stale_handles(lambda: open(path, "rb")) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    with atomic_write(path) as file:
        # "backslashreplace" writes the bytes of a path that are not UTF-8 as JSON's own escape for them
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


def read_json(path: Path) -> Any:
    try:
        return json.loads(_despite_stale_handles(path.read_bytes))
    except FileNotFoundError:
        raise MissingInputError(f"{path} is missing") from None
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error})") from None


def write_manifest(folder: Path, kind: str, version: int, **facts: Any) -> None:
    """Seal a folder: sizes and checksums of every file in it, with ``facts`` beside them."""
    files = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }
    head = {"kind": kind, "format": version, "written_by": f"nmt {nmt.__version__}"}
    replace_manifest(folder, head | facts | {"files": files})


def replace_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Its own checksum stands first: what is lost with it would be missed."""
    facts = {name: fact for name, fact in manifest.items() if name != _CHECKSUM}
    write_json(folder / MANIFEST, {_CHECKSUM: _checksum(facts)} | facts)


def _checksum(manifest: dict[str, Any]) -> str:
    """Of the facts as they are read, in whatever order."""
    read = json.loads(json.dumps(manifest))
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def read_manifest(
    folder: Path,
    kind: str,
    version: int,
    *,
    verify: Verify = Verify.fast,
    small: Sequence[str] = (),
    besides: Sequence[str] = (),
) -> dict[str, Any]:
    """The manifest of a folder, after comparing the folder with it. ``small``: patterns of files so small that even a fast
    comparison looks at their contents; ``besides``: files that the reader does without, and that are not compared."""
    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder (working directory: {Path.cwd()})")
    if not (folder / MANIFEST).is_file():
        raise MissingInputError(f"{folder} holds no {kind}: {MANIFEST} is missing (unfinished, or another folder?)")
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict) or manifest.get("kind") != kind:
        found = manifest.get("kind") if isinstance(manifest, dict) else None
        raise DataError(f"{folder} holds no {kind}; its {MANIFEST} says kind={found!r}")
    if not isinstance(manifest.get("format"), int):
        raise DataError(f"{folder}: its {MANIFEST} says format={manifest.get('format')!r}, which is no number")
    if manifest["format"] != version:
        raise OtherFormat(
            f"{folder} was written by {manifest.get('written_by')} in format {manifest.get('format')}; "
            f"this is nmt {nmt.__version__}, which reads format {version}"
        )
    checksum = manifest.pop(_CHECKSUM, None)
    for name, facts in manifest["files"].items():
        if name in besides:
            continue
        contents = verify is Verify.full or any(PurePosixPath(name).match(pattern) for pattern in small)
        _verify_file(folder, name, facts, contents)
    if checksum not in (None, _checksum(manifest)):  # last: what else is wrong says more. Old ones have none
        raise DataError(f"{folder / MANIFEST} is damaged: its checksum is not that of what it says")
    return manifest


def this_host() -> str:
    """Where the number of a process means something: this machine or container, in eight digits."""
    space = ""
    with contextlib.suppress(OSError):  # no Linux
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def temporary(path: Path) -> Path:
    """A new hidden sibling; ``nmt.storage.lock`` knows it by its name."""
    return path.parent / f".{path.name}.{os.getpid()}-{this_host()}.{secrets.token_hex(4)}.tmp"


def _taken(path: Path) -> OutputError:
    return OutputError(f"{path} exists already; choose another name, or replace it with --overwrite")


def _name_folder(folder: Path, path: Path) -> None:
    """Rename; of several processes that do it the system lets one, and the others find a folder that is not empty."""
    try:
        _despite_stale_handles(lambda: os.rename(folder, path))
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise _taken(path) from error
        raise
    sync(path.parent)


def _replace_folder(folder: Path, path: Path) -> None:
    """Rename over a folder; the old one stays whole under another name until the new one stands. If this is cut short
    between the two, ``remove_leftovers`` gives the old one its name back."""
    aside: list[Path] = []
    while True:
        old = temporary(path).with_suffix(".old.tmp")
        with contextlib.suppress(FileNotFoundError):
            _despite_stale_handles(partial(os.rename, path, old))
            aside.append(old)
        try:
            _despite_stale_handles(lambda: os.rename(folder, path))
            break
        except OSError as error:
            if error.errno in _OCCUPIED:  # another process was faster: what it wrote is replaced next
                continue
            if old in aside:
                os.rename(old, path)
            raise
    sync(path.parent)
    for old in aside:
        with contextlib.suppress(OSError):
            (old / MANIFEST).unlink(missing_ok=True)  # first: what is deleted in part must not come back
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def said_plainly(path: Path) -> Iterator[None]:
    """Turn the system's errors into sentences with the right exit status."""
    try:
        yield
    except OSError as error:
        if error.errno in _ADVICE_STORAGE:
            advice = _ADVICE_STORAGE[error.errno]
            raise StorageError(f"cannot write {path}: {error.strerror}; {advice}") from error
        advice = _ADVICE_OUTPUT.get(error.errno or 0, "choose another place")
        raise OutputError(f"cannot create {path}: {error.strerror}; {advice}") from error


def _despite_stale_handles(action: Callable[[], Value]) -> Value:
    """Do it again if a network file system has lost sight of what it was asked for."""
    for attempt in range(1, ATTEMPTS):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            time.sleep(0.1 * attempt)
    return action()


def _verify_file(folder: Path, name: str, facts: Any, contents: bool) -> None:
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        there = path.is_file()
    except (OSError, ValueError):  # longer than names are, or with characters that they do not have
        inside, there = True, False
    if Path(name).is_absolute() or ".." in Path(name).parts or not inside:
        raise DataError(f"{folder / MANIFEST} names {name!r}, which lies outside the folder")
    if not there:
        raise DataError(f"{path} is missing, although {MANIFEST} lists it")
    if not isinstance(facts, dict) or not {"bytes", "sha256"} <= facts.keys():
        raise DataError(f"{folder / MANIFEST} is damaged: its entry for {name!r} is {facts!r}")
    if path.stat().st_size != facts["bytes"]:
        raise DataError(f"{path} is damaged: {path.stat().st_size} bytes instead of {facts['bytes']}")
    if contents and sha256(path) != facts["sha256"]:
        raise DataError(f"{path} is damaged: its checksum differs from the one in {MANIFEST}")


def sync(path: Path) -> None:
    """Wait until a file or the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_destination(folder: Path, kind: str, option: str, *, overwrite: bool) -> None:
    """Refuse a folder that holds anything, or with ``overwrite`` anything that is not of a folder of ``kind``.
    ``option`` is the flag that named the folder, for the message."""
    here, real = Path.cwd(), Path(os.path.realpath(folder))
    if real == here or real in here.parents:
        raise OutputError(f"{folder} is the working directory or holds it; choose a folder of its own ({option})")
    nearest = next(path for path in (real, *real.parents) if path.exists())
    if not nearest.is_dir() and nearest != real:
        raise OutputError(f"{folder} cannot be made, because {nearest} is a file; choose another place ({option})")
    if not os.access(nearest if nearest.is_dir() else nearest.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{folder} cannot be written: {nearest} is closed to you; choose another place ({option})")
    if not real.exists():
        return
    if not folder.is_dir():
        raise OutputError(f"{folder} exists and is not a folder; choose another one ({option})")
    present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    if not present and (overwrite or next(folder.iterdir(), None) is None):
        return
    if not overwrite:
        raise OutputError(f"{folder} exists and is not empty; choose another {option}, or add --overwrite")
    if foreign := sorted(present - _files_of(folder, kind)):
        raise OutputError(
            f"{folder} holds files that are not of a {kind}, such as {foreign[0]}; --overwrite replaces a whole {kind} "
            f"only: move them, or choose another {option}"
        )


def _files_of(folder: Path, kind: str) -> set[str]:
    """What the manifest of a folder lists; nothing if there is none or it is of another kind."""
    try:
        manifest = read_json(folder / MANIFEST)
    except NMTError:
        return set()
    if not isinstance(manifest, dict) or manifest.get("kind") != kind:
        return set()
    return {MANIFEST, *manifest.get("files", ())}
