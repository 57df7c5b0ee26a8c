"""Records of the text files of a corpus, which show later whether a file has changed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from nmt.errors import MissingInputError
from nmt.storage.files import sha256


def text_record(path: Path) -> dict[str, str | int]:
    """Return the path, size, time and checksum of a text file."""
    now = path.stat()
    try:
        digest = sha256(path)
    except OSError as error:
        reason = f"{error.strerror} (working directory: {Path.cwd()})"
        raise MissingInputError(f"cannot read {path}: {reason}") from error
    return {
        "path": str(path.absolute()),
        "bytes": now.st_size,
        "modified_ns": now.st_mtime_ns,
        "sha256": digest,
    }


def changed_text(records: Any) -> list[str]:
    """Return the text files that have changed since a corpus was made from them; missing files are skipped.
    If only the time differs (a copy, a checkout), the contents decide."""
    changed = []
    for record in records if isinstance(records, list) else []:
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
            now = Path(record["path"]).stat()
            same = now.st_size == record["bytes"] and (
                now.st_mtime_ns == record["modified_ns"] or sha256(Path(record["path"])) == record["sha256"]
            )
            if not same:
                changed.append(str(record["path"]))
    return changed
