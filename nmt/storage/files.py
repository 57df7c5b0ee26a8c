"""Write files and folders completely or not at all, and check them when they are read.

Every write makes a temporary sibling, flushes and syncs it, renames it, and syncs the folder. A reader sees the old file or
the new one, never a part, even after a crash or a power failure.
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
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import yaml

import nmt
from nmt.errors import DataError, MissingInputError, NMTError, OutputError, StorageError
from nmt.storage.reading import despite_stale_handles, read_json, read_mapping

MANIFEST = "manifest.json"
_CHECKSUM = "checksum"  # entry of a manifest: the checksum of all its other entries

# Faults of the disk (exit status 74), with advice for the user.
_ADVICE_STORAGE = {
    errno.ENOSPC: "free some space and start again",
    errno.EDQUOT: "free some space or ask for a larger quota, and start again",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "choose a writable place",
    errno.EIO: "check the disk, or choose another one",
}
_ADVICE_OUTPUT = {
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.ENOENT: "create its folder first, or choose another one",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EISDIR: "it is a folder; choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})  # the name has a file or a folder with content
STORAGE_FAULTS = frozenset(_ADVICE_STORAGE)


class OtherFormat(DataError):
    """A folder in a format of another version of nmt, which can read it; it is not damaged."""


class Verify(Enum):
    """How thoroughly a folder is compared with its manifest."""

    fast = "fast"  # names, sizes, and the checksums of small files
    full = "full"  # all checksums


def check_new_file(output: Path, *, overwrite: bool, option: str = "--output") -> None:
    """Refuse an output file that cannot be written, before any work is done. ``option``: its flag, for messages."""
    if not output.parent.is_dir():
        raise OutputError(
            f"cannot create {output}: {output.parent} is not a folder; create it first, or choose another {option}"
        )
    if output.exists() and not output.is_file():
        raise OutputError(f"{output} is a folder or a device, not a regular file; choose another {option}")
    if output.exists() and not overwrite:
        raise OutputError(f"{output} exists already; choose another name, or replace it with --overwrite")
    if not os.access(output.parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"cannot create {output}: you have no permission to write to {output.parent}; choose another {option}"
        )


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """Write a file atomically: the block fills a temporary sibling, which is then renamed to ``path``."""
    sibling = temporary(path)
    try:
        with explained_os_errors(path):
            with open(sibling, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            despite_stale_handles(lambda: os.replace(sibling, path))
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            sibling.unlink()


@contextlib.contextmanager
def new_folder(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Make a folder atomically: the block fills a temporary sibling, which is synced and then renamed to ``path``.

    A link is followed. Without ``overwrite`` only an empty folder is replaced, even if another process was faster.
    """
    path = Path(os.path.realpath(path))
    if not overwrite and os.path.lexists(path) and not (path.is_dir() and next(path.iterdir(), None) is None):
        raise _exists_error(path)
    sibling = temporary(path)
    try:
        with explained_os_errors(path):
            sibling.mkdir(parents=True)
            yield sibling
            for part in (*sorted(sibling.rglob("*")), sibling):
                sync(part)
            _replace_folder(sibling, path) if overwrite else _name_folder(sibling, path)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)


def copy_folder(source: Path, target: Path) -> None:
    """Copy the files of a folder into another one, and stop at the first error.

    ``shutil.copytree`` continues after an error, and its exception does not have the reason.
    """

    def stop(error: OSError) -> None:
        raise error

    for folder, _, names in os.walk(source, onerror=stop, followlinks=True):
        copy = target / Path(folder).relative_to(source)
        copy.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copyfile(Path(folder, name), copy / name)


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with despite_stale_handles(lambda: open(path, "rb")) as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    with atomic_write(path) as file:
        # "backslashreplace" writes the bytes of a path that are not UTF-8 as JSON's own escape for them
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace"))


def yaml_text(tree: Any) -> str:
    """Return YAML with keys in their order and characters unescaped, by libyaml if it can: it takes a fifth of the time."""
    options: Any = {"sort_keys": False, "allow_unicode": True}
    with contextlib.suppress(UnicodeEncodeError):  # bytes of a path that are not UTF-8
        text = str(yaml.dump(tree, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), **options))
        if r"\U000" not in text:  # libyaml escapes characters beyond U+FFFF, such as emoji
            return text
    return str(yaml.safe_dump(tree, **options))


def write_manifest(folder: Path, kind: str, version: int, **facts: Any) -> None:
    """Write the manifest of a folder: size and checksum of every file, and ``facts``."""
    files = {
        file.relative_to(folder).as_posix(): {"bytes": file.stat().st_size, "sha256": sha256(file)}
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file != folder / MANIFEST
    }
    head = {"kind": kind, "format": version, "written_by": f"nmt {nmt.__version__}"}
    replace_manifest(folder, head | facts | {"files": files})


def replace_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with its own checksum as the first entry, which a truncated manifest lacks or contradicts."""
    facts = {name: fact for name, fact in manifest.items() if name != _CHECKSUM}
    write_json(folder / MANIFEST, {_CHECKSUM: _checksum(facts)} | facts)


def _checksum(manifest: dict[str, Any]) -> str:
    """Return the checksum of a manifest as it is read back, independent of the order of entries."""
    read = json.loads(json.dumps(manifest))
    return hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()


def read_manifest(
    folder: Path,
    kind: str,
    version: int,
    *,
    verify: Verify = Verify.fast,
    small: Sequence[str] = (),
    unchecked: Sequence[str] = (),
) -> dict[str, Any]:
    """Read the manifest of a folder and compare the folder with it.

    ``small``: patterns of files whose checksums even a fast comparison checks; ``unchecked``: files that are not compared.
    """
    if not folder.is_dir():
        raise MissingInputError(f"{folder} is not a folder (working directory: {Path.cwd()})")
    if not (folder / MANIFEST).is_file():
        raise MissingInputError(
            f"{folder} holds no {kind}: {MANIFEST} is missing; choose another folder, or write this one again"
        )
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict) or manifest.get("kind") != kind:
        stored_kind = manifest.get("kind") if isinstance(manifest, dict) else None
        raise DataError(f"{folder} holds no {kind}; its {MANIFEST} says kind={stored_kind!r}")
    if not isinstance(manifest.get("format"), int):
        raise DataError(f"{folder}: its {MANIFEST} says format={manifest.get('format')!r}, which is not a number")
    if manifest["format"] != version:
        raise OtherFormat(
            f"{folder} was written by {manifest.get('written_by')} in format {manifest.get('format')}; "
            f"this is nmt {nmt.__version__}, which reads format {version}"
        )
    checksum = manifest.pop(_CHECKSUM, None)
    for name, facts in manifest["files"].items():
        if name in unchecked:
            continue
        contents = verify is Verify.full or any(PurePosixPath(name).match(pattern) for pattern in small)
        _verify_file(folder, name, facts, contents)
    # last, because other errors are more specific; old manifests have no checksum
    if checksum is not None and checksum != _checksum(manifest):
        raise DataError(f"{folder / MANIFEST} is damaged: its checksum does not match its content")
    return manifest


def this_host() -> str:
    """Return eight digits that identify this machine or container, within which process numbers are unique."""
    space = ""
    with contextlib.suppress(OSError):  # no Linux
        space = os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def temporary(path: Path) -> Path:
    """Return the path of a new hidden sibling, which ``nmt.storage.lock`` recognizes by its name."""
    return path.parent / f".{path.name}.{os.getpid()}-{this_host()}.{secrets.token_hex(4)}.tmp"


def _exists_error(path: Path) -> OutputError:
    return OutputError(f"{path} exists already; choose another name, or replace it with --overwrite")


def _name_folder(folder: Path, path: Path) -> None:
    """Rename a folder. If several processes do this, one succeeds and the others find a folder with content."""
    try:
        despite_stale_handles(lambda: os.rename(folder, path))
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise _exists_error(path) from error
        raise
    sync(path.parent)


def _replace_folder(folder: Path, path: Path) -> None:
    """Replace a folder. The old one is renamed first and deleted last; ``remove_leftovers`` undoes an interrupted
    replacement."""
    aside: list[Path] = []
    while True:
        old = temporary(path).with_suffix(".old.tmp")
        with contextlib.suppress(FileNotFoundError):
            despite_stale_handles(partial(os.rename, path, old))
            aside.append(old)
        try:
            despite_stale_handles(lambda: os.rename(folder, path))
            break
        except OSError as error:
            if error.errno in _OCCUPIED:  # another process was faster: replace its folder next
                continue
            if old in aside:
                os.rename(old, path)
            raise
    sync(path.parent)
    for old in aside:
        with contextlib.suppress(OSError):
            (old / MANIFEST).unlink(missing_ok=True)  # first: a partly deleted folder must not be restored
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def explained_os_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into errors with advice and the right exit status."""
    try:
        yield
    except OSError as error:
        if error.errno in _ADVICE_STORAGE:
            advice = _ADVICE_STORAGE[error.errno]
            raise StorageError(f"cannot write {path}: {error.strerror}; {advice}") from error
        advice = _ADVICE_OUTPUT.get(error.errno or 0, "choose another place")
        raise OutputError(f"cannot create {path}: {error.strerror}; {advice}") from error


def _verify_file(folder: Path, name: str, facts: Any, contents: bool) -> None:
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(_root_of(folder))
        there = path.is_file()
    except (OSError, ValueError):  # too long for a name, or with characters that names cannot have
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


def _root_of(folder: Path) -> Path:
    """Return the folder that links may not leave: the folder itself, or the whole cache of huggingface_hub, whose snapshots
    (``hub/models--OWNER--NAME/snapshots/COMMIT``) are links to other folders of it."""
    real = folder.resolve()
    is_snapshot = real.parent.name == "snapshots" and real.parents[1].name.startswith("models--")
    return real.parents[2] if is_snapshot else real


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_destination(folder: Path, kind: str, option: str, *, overwrite: bool) -> None:
    """Refuse an output folder that is not empty, or with ``overwrite`` one with files that are not part of a ``kind``.

    ``option``: the flag that named the folder, for messages.
    """
    here, real = Path.cwd(), Path(os.path.realpath(folder))
    if real == here or real in here.parents:
        raise OutputError(f"{folder} is or contains the working directory; choose a separate folder ({option})")
    nearest = next(path for path in (real, *real.parents) if path.exists())
    if not nearest.is_dir() and nearest != real:
        raise OutputError(f"{folder} cannot be created, because {nearest} is a file; choose another place ({option})")
    if not os.access(nearest if nearest.is_dir() else nearest.parent, os.W_OK | os.X_OK):
        raise OutputError(
            f"{folder} cannot be written: you have no permission to write to {nearest}; choose another place ({option})"
        )
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
            f"{folder} holds files that do not belong to a {kind}, such as {foreign[0]}; --overwrite replaces a whole "
            f"{kind} only: move them, or choose another {option}"
        )


def _files_of(folder: Path, kind: str) -> set[str]:
    """Return the files that the manifest of a folder lists. Empty: it has none, or one of another kind."""
    try:
        manifest = read_mapping(folder / MANIFEST)
    except NMTError:
        return set()
    return {MANIFEST, *manifest.get("files", ())} if manifest.get("kind") == kind else set()
