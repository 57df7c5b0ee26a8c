"""What ``--overwrite`` may replace: folders of the same kind and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

from nmt.errors import NMTError, OutputError
from nmt.storage.files import MANIFEST, read_json


def check_destination(folder: Path, kind: str, option: str, *, overwrite: bool) -> None:
    """Refuse a folder that holds anything, or with ``overwrite`` anything that is not of a folder of ``kind``.

    ``option`` is the flag that named the folder, for the message.
    """
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
