"""Checkpoints: folders that hold a model, and what a training run needs to go on from there.

    model.safetensors     the parameters
    config.yaml           the configuration, by registry names (nothing in it can run)
    training.safetensors  optimizer state        } only where a run can be resumed: in the last few of it
    training.json         counters, meters       }
    tokenizer/            where the folder stands alone (an averaged checkpoint); else the run folder's is used
    manifest.json         sizes and checksums of all of these, update, epoch, scores

A checkpoint is written once under a new name and never changed, except that it may lose the state of training. Which one
is last or best is said by pointer files in the run folder, moved only after the checkpoint is safely on disk.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import yaml
from safetensors import SafetensorError, safe_open

from nmt.errors import DataError, UsageError
from nmt.storage.files import (
    MANIFEST,
    Verify,
    copy_folder,
    new_folder,
    read_json,
    read_manifest,
    replace_manifest,
    write_json,
    write_manifest,
)
from nmt.storage.run_folder import CONFIG, MODEL, read_config, recognise

if TYPE_CHECKING:
    from torch import Tensor, nn

Numbers = npt.NDArray[Any]
Shapes = dict[str, tuple[int, ...]]

KIND, FORMAT = "checkpoint", 1
_TENSORS, _VALUES = "training.safetensors", "training.json"
_TYPE_NAMES = {  # of types by torch's names
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_NAMES_OF_TYPES = {short: name for name, short in _TYPE_NAMES.items()}


@dataclass(frozen=True)
class CheckpointInfo:
    """Where in a run a checkpoint was written, why, and how it scored."""

    update: int
    epoch: int
    reasons: tuple[str, ...] = ()  # of "update", "epoch", "minutes", "signal", "final", "average"
    scores: Mapping[str, float] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)  # how it, and its scores, were computed

    def joined(self, before: CheckpointInfo | None) -> CheckpointInfo:
        """The same, and what an earlier one of the same place in the run says, whose name and folder it takes."""
        if before is None or (before.update, before.epoch) != (self.update, self.epoch):
            return self
        reasons = dict.fromkeys((*before.reasons, *self.reasons))
        return replace(self, reasons=tuple(reasons), scores={**before.scores, **self.scores})


@dataclass(frozen=True)
class TrainingState:
    """What resuming needs beside the parameters: tensors by name, and a JSON tree."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True)
class MappedCheckpoint:
    """A checkpoint whose files were compared with their checksums, and whose parameters are read when they are used."""

    path: Path
    config: dict[str, Any]
    info: CheckpointInfo

    @cached_property
    def arrays(self) -> dict[str, Numbers]:
        """The parameters as views of the file, which processes share; bfloat16 is widened to float32."""
        return mapped_tensors(self.path / MODEL)

    def tensors(self) -> dict[str, Tensor]:
        return _read_tensors(self.path / MODEL)


@dataclass(frozen=True)
class StoredCheckpoint:
    """A checkpoint as read; every file that was read was compared with its checksum."""

    path: Path
    config: dict[str, Any]
    info: CheckpointInfo
    model: dict[str, Tensor]
    training: TrainingState | None


def write_checkpoint(
    path: Path,
    *,
    model: Mapping[str, Tensor],
    config: Mapping[str, Any],
    info: CheckpointInfo,
    tokenizer: Path | None = None,
    training: TrainingState | None = None,
    overwrite: bool = False,
) -> None:
    """Write a checkpoint folder as a whole; ``tokenizer`` is a folder to copy into it."""
    with new_folder(path, overwrite=overwrite) as folder:
        _write_tensors(folder / MODEL, model)
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        (folder / CONFIG).write_text(text, encoding="utf-8")
        if training is not None:
            _write_tensors(folder / _TENSORS, training.tensors)
            write_json(folder / _VALUES, dict(training.values))
        if tokenizer is not None:
            copy_folder(tokenizer, folder / "tokenizer")
        write_manifest(folder, KIND, FORMAT, **asdict(info))


def read_checkpoint(path: Path, *, training: bool = False) -> StoredCheckpoint:
    """Read and verify a checkpoint; its training state too, if asked for and there."""
    manifest = _manifest(path, Verify.full, training=training)
    config = read_config(path)
    model = _read_tensors(path / MODEL)
    state = None
    if training and _VALUES in manifest["files"]:
        state = TrainingState(_read_tensors(path / _TENSORS), read_json(path / _VALUES))
    return StoredCheckpoint(path, config, _info(path, manifest), model, state)


def map_checkpoint(path: Path) -> MappedCheckpoint:
    """Verify a checkpoint, of whose model nothing is read yet."""
    manifest = _manifest(path, Verify.full)
    return MappedCheckpoint(path, read_config(path), _info(path, manifest))


def read_info(path: Path) -> CheckpointInfo:
    return _info(path, _manifest(path, Verify.fast))


def holds_training_state(path: Path) -> bool:
    """Whether a run can go on from a checkpoint, as its manifest says."""
    return _VALUES in _manifest(path, Verify.fast, training=True)["files"]


def checksums(path: Path) -> dict[str, str]:
    """Of all files of a checkpoint but the training state, which it may lose: equal ones are the same model."""
    files = _manifest(path, Verify.fast)["files"]
    return {name: facts["sha256"] for name, facts in files.items() if name not in (_TENSORS, _VALUES)}


def drop_training_state(path: Path) -> None:
    """Make a checkpoint smaller: it keeps its model, and no run can go on from it any more. The manifest is the first to
    forget the files, so that the checkpoint is whole at every moment."""
    manifest = _manifest(path, Verify.fast)
    listed = {name: facts for name, facts in manifest["files"].items() if name not in (_TENSORS, _VALUES)}
    if listed != manifest["files"]:
        replace_manifest(path, manifest | {"files": listed})
    for name in (_TENSORS, _VALUES):
        (path / name).unlink(missing_ok=True)


def _manifest(path: Path, verify: Verify, *, training: bool = False) -> dict[str, Any]:
    """Without ``training`` nothing is said of the training state: the run that writes it may drop it at any moment."""
    recognise(path)
    return read_manifest(path, KIND, FORMAT, verify=verify, besides=() if training else (_TENSORS, _VALUES))


def _info(path: Path, manifest: Mapping[str, Any]) -> CheckpointInfo:
    try:
        kinds: dict[str, Any] = {"update": int, "epoch": int, "reasons": tuple, "scores": dict, "made": dict}
        return CheckpointInfo(**{name: kind(manifest[name]) for name, kind in kinds.items()})
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path / MANIFEST} is damaged: {error!r}") from None


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Put stored parameters into a model of the same architecture, or say in which of them they differ."""
    require_shapes(shapes_of(model.state_dict()), shapes_of(tensors), origin)
    model.load_state_dict(tensors)


def shapes_of(parameters: Mapping[str, Tensor] | Mapping[str, Numbers]) -> Shapes:
    return {name: tuple(numbers.shape) for name, numbers in parameters.items()}


def require_shapes(own: Shapes, stored: Shapes, origin: str) -> None:
    """Refuse parameters that are not those of a model, by name and shape."""
    different = [
        f"{name}: {stored.get(name, 'missing')} in the checkpoint, {own.get(name, 'missing')} in the model"
        for name in sorted(own.keys() | stored.keys())
        if own.get(name) != stored.get(name)
    ]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        raise UsageError(f"{origin} holds another architecture: {'; '.join(different[:3])}{more}")


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file: the length of a JSON header, the header, the bytes of one tensor after the other; those that
    share storage are written under every name. The library's own writer copies all of them first, twice."""
    import torch

    header: dict[str, Any] = {}
    end = 0
    in_order = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))  # readers map aligned ones
    for name, tensor in in_order.items():
        type_name = _TYPE_NAMES.get(str(tensor.dtype).removeprefix("torch."))
        if type_name is None:
            raise DataError(f"a checkpoint cannot hold tensor '{name}', of type {tensor.dtype}")
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": type_name, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the data begins at a multiple of 8
    with open(path, "wb") as file:  # a file object of ours, so that a full disk is an OSError
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in in_order.values():
            file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    with _damage_named(path):
        return load_file(path)


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} is missing from its checkpoint") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from None


def mapped_tensors(path: Path) -> dict[str, Numbers]:
    """The tensors of a safetensors file as views of it; the library's own reader copies them."""
    with _damage_named(path):
        with safe_open(path, framework="np"):  # refuses what is no such file
            pass
        whole = np.memmap(path, dtype=np.uint8, mode="r")
        begin = 8 + int.from_bytes(whole[:8].tobytes(), "little")
        header = json.loads(whole[8:begin].tobytes())
        header.pop("__metadata__", None)
        return {name: _array(whole[begin:], facts) for name, facts in header.items()}


def _array(data: Numbers, facts: Mapping[str, Any]) -> Numbers:
    begin, end = facts["data_offsets"]
    name = _NAMES_OF_TYPES[facts["dtype"]]
    if name.startswith("float8"):
        raise DataError(f"the checkpoint holds numbers of type {name}, which torch alone reads; use --engine torch")
    numbers = data[begin:end].view("uint16" if name == "bfloat16" else name).reshape(facts["shape"])
    if name == "bfloat16":  # the upper half of a float32
        return (numbers.astype(np.uint32) << 16).view(np.float32)
    return numbers if numbers.flags.aligned else numbers.copy()
