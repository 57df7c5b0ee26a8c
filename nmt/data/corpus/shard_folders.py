"""The folders of the shards of a corpus, as ``nmt-preprocess --shard i/n`` names them within one folder."""

from __future__ import annotations

import re
from pathlib import Path

from nmt.errors import DataError, MissingInputError

_NAME = re.compile(r"shard-(\d+)-of-(\d+)")


def name_of(number: int, count: int) -> str:
    return f"shard-{number:0{len(str(count))}}-of-{count}"


def shard_folders(folder: Path) -> list[Path]:
    """Return all shards in ``folder``, in their order."""
    matches = [match for path in folder.glob("shard-*-of-*") if (match := _NAME.fullmatch(path.name)) is not None]
    if not matches:
        return []
    counts = {int(match[2]) for match in matches}
    if len(counts) > 1:
        raise DataError(f"{folder} holds shards of several corpora; keep those of one")
    (count,) = counts
    paths = [folder / name_of(number, count) for number in range(1, count + 1)]
    if missing := [number for number, path in enumerate(paths, start=1) if not path.is_dir()]:
        raise MissingInputError(
            f"{folder} lacks {len(missing)} of {count} shards; prepare the first with --shard {missing[0]}/{count}"
        )
    return paths
