"""The tensors of a folder of ``save_pretrained``, as views of one file or of shards; bfloat16 needs ``widened``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.errors import DataError, MissingInputError
from nmt.formats.tensors import arrays_by_name
from nmt.models.transformer.weights import Array
from nmt.storage.reading import read_mapping
from nmt.storage.tensor_file import unwidened_tensors
from nmt.storage.torch_file import read_torch_file

_NAMES = ("model.safetensors", "pytorch_model.bin")


def stored_tensors(folder: Path) -> dict[str, Array]:
    """Return the tensors of a folder by name."""
    for name in _NAMES:
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            return _of_file(folder / name)
        if index.is_file():
            return _of_shards(index)
    raise MissingInputError(f"{folder} holds neither {_NAMES[0]} nor {_NAMES[1]}, nor shards with an index")


def _of_shards(index: Path) -> dict[str, Array]:
    places = read_mapping(index).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise DataError(f"{index} is damaged: weight_map should map tensors to files")
    names = sorted(set(places.values()))
    paths = [index.parent / Path(name).name for name in names]
    missing = [path for path in paths if not path.is_file()]
    if missing:
        raise MissingInputError(f"{missing[0]} is missing: it is one of the {len(names)} files that {index.name} lists")
    tensors = {name: array for path in paths for name, array in _of_file(path).items()}
    if lost := sorted(places.keys() - tensors.keys()):
        raise DataError(
            f"{index.parent / Path(places[lost[0]]).name} has no tensor '{lost[0]}', which {index.name} lists"
        )
    return tensors


def _of_file(path: Path) -> dict[str, Any]:
    tree = unwidened_tensors(path) if path.suffix == ".safetensors" else read_torch_file(path)
    if not isinstance(tree, dict):
        raise DataError(f"{path} does not hold named tensors")
    return arrays_by_name(tree, str(path))
