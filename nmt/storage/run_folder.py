"""Where the checkpoints of a run stand, which one is meant, and with what configuration it was made; read without torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.files import MANIFEST, read_json, write_json
from nmt.storage.foreign import describe

LAST, BEST = "last", "best"
MODEL, CONFIG = "model.safetensors", "config.yaml"
_NAME = re.compile(r"checkpoint-(?P<epoch>\d{4,})-(?P<update>\d{8,})")


def checkpoint_name(epoch: int, update: int) -> str:
    return f"checkpoint-{epoch:04d}-{update:08d}"


def checkpoints_in(run: Path) -> list[Path]:
    """The complete checkpoints of a run folder, oldest first."""
    if not run.is_dir():
        return []
    found: dict[Path, tuple[int, int]] = {}
    for path in run.iterdir():
        if (match := _NAME.fullmatch(path.name)) and (path / MANIFEST).is_file():
            found[path] = int(match["update"]), int(match["epoch"])
    return sorted(found, key=found.__getitem__)


def set_pointer(run: Path, name: str, checkpoint: Path) -> None:
    """Say which checkpoint is the last or the best."""
    write_json(run / f"{name}.json", {"checkpoint": checkpoint.name})


def pointed(run: Path, name: str) -> Path | None:
    """The checkpoint that a pointer names, or None if there is no pointer or nothing where it points."""
    if not (run / f"{name}.json").is_file():
        return None
    target = read_json(run / f"{name}.json")
    stored = target.get("checkpoint") if isinstance(target, dict) else None
    if not isinstance(stored, str) or Path(stored).name != stored:
        raise DataError(f"{run / f'{name}.json'} is damaged: {target!r}")
    return run / stored if (run / stored / MANIFEST).is_file() else None


def resolve(path: str | Path) -> Path:
    """The checkpoint that a user's path means: itself, or the best (else the last) one of a run folder."""
    folder = Path(path)
    if not folder.exists():
        beside = pointed(folder.parent, LAST) if folder.suffix == ".pt" else None  # as another toolkit names them
        hint = "" if beside is None else f"; the checkpoints in {folder.parent} are folders: name it, or one of them"
        raise MissingInputError(f"{folder} does not exist (working directory: {Path.cwd()}){hint}")
    recognise(folder)
    if (folder / MODEL).is_file() or (folder / MANIFEST).is_file():
        return folder
    for name in (BEST, LAST):
        checkpoint = pointed(folder, name)
        if checkpoint is not None:
            return checkpoint
    stored = checkpoints_in(folder)
    if stored:
        return stored[-1]
    for file in sorted(folder.glob("*.pt")):  # of another toolkit
        recognise(file)
    raise MissingInputError(f"{folder} holds no checkpoint; give a run folder of nmt-train, or a checkpoint in it")


def tokenizer_folder(checkpoint: Path) -> Path:
    """Where a checkpoint's tokenizer stands: in itself, or in its run folder."""
    for folder in (checkpoint / "tokenizer", checkpoint.resolve().parent / "tokenizer"):
        if folder.is_dir():
            return folder
    raise MissingInputError(f"{checkpoint} has no tokenizer/ beside it; copy the one of its run folder into it")


def split_paths(path: str) -> list[str]:
    """The models that ``--path`` names."""
    if not path:
        raise UsageError("name the model: --path FOLDER (a run folder or checkpoint; several joined by ':')")
    paths = [path] if Path(path).exists() else [part for part in path.split(":") if part]
    if not paths:
        raise UsageError(f"--path {path} names no model; give folders, several joined by ':'")
    return paths


def read_config(checkpoint: Path) -> dict[str, Any]:
    """The configuration of a checkpoint alone."""
    path = checkpoint / CONFIG
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if not isinstance(tree, dict):
        raise DataError(f"{path} is damaged: it holds no mapping")
    if _names_code(tree):
        raise DataError(f"{path} contains '_target_'; checkpoints name components, never code to run")
    return tree


def _names_code(tree: Any) -> bool:
    """Whether a mapping in it says what to call, as Hydra's do. A text may be about anything."""
    waiting, seen = [tree], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:  # YAML can write a list that holds itself
            continue
        seen.add(id(part))
        if isinstance(part, dict):
            if "_target_" in part:
                return True
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return False


def recognise(path: Path) -> None:
    """Say what a file is, where a checkpoint folder was expected."""
    if path.is_file():
        raise DataError(f"{path} is {describe(path)}; a checkpoint is a folder written by nmt-train")
