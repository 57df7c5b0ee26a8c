"""Find the checkpoints of a run folder, and read the configuration of one. Does not import torch."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.files import MANIFEST, write_json
from nmt.storage.foreign import describe
from nmt.storage.reading import read_json, read_yaml

LAST, BEST = "last", "best"
MODEL, CONFIG = "model.safetensors", "config.yaml"
_BETWEEN_PATHS = re.compile(r"(?<!hf):|:(?!/)")  # the colon of hf://OWNER/NAME is part of a path
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NAME = re.compile(r"checkpoint-\d{4,}-\d{8,}")  # epoch, update


def checkpoint_name(epoch: int, update: int) -> str:
    return f"checkpoint-{epoch:04d}-{update:08d}"


def update_of(checkpoint: Path) -> int:
    """Return the update in the name of a checkpoint."""
    return int(checkpoint.name.rpartition("-")[2])


def progress_of(checkpoint: Path) -> tuple[int, int]:
    """Return update and epoch in the name of a checkpoint; those of a newer checkpoint are larger. An update has a
    checkpoint of a second epoch if all updates between the two were skipped."""
    _, epoch, update = checkpoint.name.rsplit("-", 2)
    return int(update), int(epoch)


def checkpoints_in(*runs: Path) -> list[Path]:
    """Return the complete checkpoints of run folders, oldest first."""
    paths = [path for run in runs if run.is_dir() for path in run.iterdir() if _NAME.fullmatch(path.name)]
    return sorted((path for path in paths if (path / MANIFEST).is_file()), key=progress_of)


def set_pointer(run: Path, name: str, checkpoint: Path) -> None:
    """Write the pointer ``last`` or ``best`` of a run folder."""
    write_json(run / f"{name}.json", {"checkpoint": checkpoint.name})


def pointed(run: Path, name: str) -> Path | None:
    """Return the checkpoint of a pointer. None: the pointer or its checkpoint is missing."""
    if not (run / f"{name}.json").is_file():
        return None
    target = read_json(run / f"{name}.json")
    stored = target.get("checkpoint") if isinstance(target, dict) else None
    if not isinstance(stored, str) or Path(stored).name != stored:
        raise DataError(f"{run / f'{name}.json'} is damaged: {target!r}")
    return run / stored if (run / stored / MANIFEST).is_file() else None


def resolve(path: str | Path) -> Path:
    """Return the checkpoint at a path: the path itself, or the best (else the last) checkpoint of a run folder."""
    folder = Path(path)
    if not folder.exists():
        beside = pointed(folder.parent, LAST) if folder.suffix == ".pt" else None  # as another toolkit names them
        hint = (
            ""
            if beside is None
            else f"; the checkpoints in {folder.parent} are folders: name that folder, or one of them"
        )
        raise MissingInputError(f"{folder} does not exist (working directory: {Path.cwd()}){hint or hub_advice(path)}")
    refuse_file(folder)
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
        refuse_file(file)
    raise MissingInputError(f"{folder} holds no checkpoint; give a run folder of nmt-train, or a checkpoint in it")


def hub_advice(path: str | Path) -> str:
    """Return advice to append to a message, if a missing path may be the name of a model on the Hugging Face Hub."""
    if _HUB_NAME.fullmatch(str(path)) is None or Path(path).parent.exists():
        return ""
    return f"; for a model of the Hugging Face Hub, write hf://{path}"


def tokenizer_folder(checkpoint: Path) -> Path:
    """Return the tokenizer folder of a checkpoint: its own, or that of its run folder."""
    for folder in (checkpoint / "tokenizer", checkpoint.resolve().parent / "tokenizer"):
        if folder.is_dir():
            return folder
    raise MissingInputError(f"{checkpoint} has no tokenizer folder; copy tokenizer/ of its run folder into it")


def split_paths(path: str) -> list[str]:
    """Return the model folders in the value of ``--path``."""
    if not path:
        raise UsageError("name the model: --path FOLDER (a run folder or checkpoint; several joined by ':')")
    paths = [path] if Path(path).exists() else [part for part in _BETWEEN_PATHS.split(path) if part]
    if not paths:
        raise UsageError(f"--path {path} does not name a model; give folders, several joined by ':'")
    return paths


def read_config(checkpoint: Path) -> dict[str, Any]:
    """Read the configuration of a checkpoint."""
    path = checkpoint / CONFIG
    if not path.is_file():
        raise DataError(f"{path} is missing, or is not a regular file")
    tree = read_yaml(path)
    if not isinstance(tree, dict):
        raise DataError(f"{path} is damaged: it should be a mapping")
    if _names_code(tree):
        raise DataError(f"{path} contains '_target_'; checkpoints name components, never code to run")
    return tree


def _names_code(tree: Any) -> bool:
    """Whether a mapping in the tree has Hydra's key ``_target_``."""
    if isinstance(tree, dict):
        return "_target_" in tree or any(map(_names_code, tree.values()))
    return isinstance(tree, list) and any(map(_names_code, tree))


def refuse_file(path: Path) -> None:
    """Refuse a file in the place of a checkpoint folder; the error describes the file."""
    if path.is_file():
        raise DataError(f"{path} is {describe(path)}; a checkpoint is a folder written by nmt-train")
