"""Checkpoints: folders that hold a model and the state that a run needs to resume.

    model.safetensors     the parameters
    config.yaml           the configuration, by registry names (nothing in it can run)
    training.safetensors  optimizer state                                   } only in the last few checkpoints of a run,
    training.json         position in the data, counters, meters, settings  } which can be resumed
    tokenizer/            only outside a run folder (an averaged checkpoint); else the tokenizer of the run folder is used
    manifest.json         sizes and checksums of all of these, update, epoch, scores

A checkpoint is not changed after it was written, except that its training state may be deleted, and that a later save of
the same update and epoch replaces it. Pointer files in the run folder name the last and the best one; they are written after
the checkpoint is safely on disk. Other commands follow them. A run resumes from the newest undamaged checkpoint that has a
training state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.errors import DataError, UsageError
from nmt.storage.files import (
    MANIFEST,
    Verify,
    copy_folder,
    new_folder,
    read_manifest,
    replace_manifest,
    write_json,
    write_manifest,
    yaml_text,
)
from nmt.storage.reading import read_json
from nmt.storage.run_folder import CONFIG, MODEL, read_config, refuse_file
from nmt.storage.tensor_file import (
    forms_of,
    read_tensors,
    require_forms,
    write_tensors,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

KIND, FORMAT = "checkpoint", 1
_TENSORS, _VALUES = "training.safetensors", "training.json"
PACKED = "packed"  # fact of a manifest: the data type of weights that are packed for the native engine
CARD = "README.md"  # of a model that was uploaded: its owner may edit it


@dataclass(frozen=True)
class CheckpointInfo:
    """Where in a run a checkpoint was written, why, and how it scored."""

    update: int
    epoch: int
    reasons: tuple[str, ...] = ()  # of "update", "epoch", "minutes", "signal", "callback", "final", "average"
    scores: Mapping[str, float] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)  # how it, and its scores, were computed

    def joined(self, before: CheckpointInfo | None) -> CheckpointInfo:
        """Add the reasons and scores of an earlier checkpoint of the same update, which this one replaces."""
        if before is None or (before.update, before.epoch) != (self.update, self.epoch):
            return self
        reasons = dict.fromkeys((*before.reasons, *self.reasons))
        return replace(self, reasons=tuple(reasons), scores={**before.scores, **self.scores})


@dataclass(frozen=True)
class TrainingState:
    """State that resuming needs besides the parameters: tensors by name, and a JSON tree."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class StoredCheckpoint:
    """A verified checkpoint in memory."""

    path: Path
    config: dict[str, Any]
    info: CheckpointInfo
    model: dict[str, Tensor]
    training: TrainingState | None


def write_checkpoint(
    path: Path,
    *,
    model: Mapping[str, Tensor] | Callable[[Path], None],
    config: Mapping[str, Any],
    info: CheckpointInfo,
    tokenizer: Path | Callable[[Path], None] | None = None,
    training: TrainingState | None = None,
    overwrite: bool = False,
) -> None:
    """Write a checkpoint folder as a whole.

    ``model``: parameters, or a function that writes their file; ``tokenizer``: a folder to copy into it, or a function that
    writes one.
    """
    with new_folder(path, overwrite=overwrite) as folder:
        if callable(model):
            model(folder / MODEL)
        else:
            write_tensors(folder / MODEL, model)
        (folder / CONFIG).write_text(yaml_text(dict(config)), encoding="utf-8")
        if training is not None:
            write_tensors(folder / _TENSORS, training.tensors)
            write_json(folder / _VALUES, dict(training.values))
        if callable(tokenizer):
            tokenizer(folder / "tokenizer")
        elif tokenizer is not None:
            copy_folder(tokenizer, folder / "tokenizer")
        write_manifest(folder, KIND, FORMAT, **asdict(info))


def read_checkpoint(path: Path, *, training: bool = False) -> StoredCheckpoint:
    """Read and verify a checkpoint. ``training``: with its training state, if it still has one."""
    manifest = _manifest(path, Verify.full, training=training)
    require_parameters(path, _info(path, manifest))
    config = read_config(path)
    model = read_tensors(path / MODEL)
    state = None
    if training and _VALUES in manifest["files"]:
        state = TrainingState(read_tensors(path / _TENSORS), read_json(path / _VALUES))
    return StoredCheckpoint(path, config, _info(path, manifest), model, state)


def verify_checkpoint(path: Path) -> tuple[dict[str, Any], CheckpointInfo]:
    """Verify a checkpoint without reading its parameters. Returns its configuration and info."""
    manifest = _manifest(path, Verify.full)
    return read_config(path), _info(path, manifest)


def read_info(path: Path) -> CheckpointInfo:
    return _info(path, _manifest(path, Verify.fast))


def require_parameters(path: Path, info: CheckpointInfo) -> None:
    """Refuse a checkpoint whose weights are packed for the native engine."""
    if PACKED in info.made:
        raise UsageError(
            f"{path} holds weights packed in {info.made[PACKED]}, which only the native engine of a CPU can read; use the "
            "model that it was exported from"
        )


def holds_training_state(path: Path) -> bool:
    """Whether a run can resume from a checkpoint, according to its manifest."""
    return _VALUES in _manifest(path, Verify.fast, training=True)["files"]


def checksums(path: Path) -> dict[str, str]:
    """Return the checksums of all files except the training state; equal checksums mean the same model."""
    files = _manifest(path, Verify.fast)["files"]
    return {name: facts["sha256"] for name, facts in files.items() if name not in (_TENSORS, _VALUES)}


def drop_training_state(path: Path) -> None:
    """Delete the training state: no run can resume from the checkpoint afterwards.

    The manifest drops the files first, so that the checkpoint is complete at every moment.
    """
    manifest = _manifest(path, Verify.fast)
    listed = {name: facts for name, facts in manifest["files"].items() if name not in (_TENSORS, _VALUES)}
    if listed != manifest["files"]:
        replace_manifest(path, manifest | {"files": listed})
    for name in (_TENSORS, _VALUES):
        (path / name).unlink(missing_ok=True)


def _manifest(path: Path, verify: Verify, *, training: bool = False) -> dict[str, Any]:
    """Read and verify the manifest. Without ``training`` the training state is not checked: its run may delete it."""
    refuse_file(path)
    unchecked = (CARD,) if training else (CARD, _TENSORS, _VALUES)
    return read_manifest(path, KIND, FORMAT, verify=verify, unchecked=unchecked)


def _info(path: Path, manifest: Mapping[str, Any]) -> CheckpointInfo:
    try:
        kinds: dict[str, Any] = {"update": int, "epoch": int, "reasons": tuple, "scores": dict, "made": dict}
        return CheckpointInfo(**{name: kind(manifest[name]) for name, kind in kinds.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path / MANIFEST} is damaged: {error!r}") from None


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Load stored parameters into a model. Parameters of other names, shapes or types are refused."""
    require_forms(forms_of(model.state_dict()), forms_of(tensors), origin)
    model.load_state_dict(tensors)
