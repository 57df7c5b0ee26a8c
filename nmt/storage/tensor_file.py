"""Files of safetensors: written without copies, read as views of the mapped file or by torch.

The layout: the length of a JSON header in eight bytes, the header, the bytes of one tensor after the other.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from nmt.errors import DataError, UsageError
from nmt.storage.arrays import Numbers, numbers_of, release, widened
from nmt.storage.reading import Malformed, map_file, parse_json

if TYPE_CHECKING:
    from torch import Tensor

Forms = dict[str, str]  # by name, the shape of a tensor, and its type unless it holds floating-point numbers

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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors; those that share storage are written under every name. The library's own writer copies all of them
    first, twice."""
    import torch

    in_order = dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])))  # readers map aligned ones
    forms: dict[str, tuple[str, Sequence[int], int]] = {}
    for name, tensor in in_order.items():
        type_name = _TYPE_NAMES.get(str(tensor.dtype).removeprefix("torch."))
        if type_name is None:
            raise DataError(f"a checkpoint cannot hold tensor '{name}', of type {tensor.dtype}")
        forms[name] = type_name, tensor.shape, tensor.nbytes
    _write(
        path,
        forms,
        (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for tensor in in_order.values()),
    )


def write_arrays(path: Path, shapes: Mapping[str, Sequence[int]], arrays: Iterable[Numbers]) -> None:
    """Write arrays of float32, in the order of ``shapes``; each is written before the next one is taken."""
    _write(path, {name: ("F32", shape, 4 * math.prod(shape)) for name, shape in shapes.items()}, arrays)


def write_numbers(path: Path, arrays: Mapping[str, Numbers], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays in their types and order. C maps those at the beginning if their sizes fill whole cache lines."""
    forms = {name: (_TYPE_NAMES[array.dtype.name], array.shape, array.nbytes) for name, array in arrays.items()}
    _write(path, forms, map(np.ascontiguousarray, arrays.values()), metadata)


def _write(
    path: Path,
    forms: Mapping[str, tuple[str, Sequence[int], int]],
    contents: Iterable[Any],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """``forms``: type, shape and size in bytes of each tensor; ``contents``: their numbers, in the same order."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, (type_name, shape, size) in forms.items():
        begin, end = end, end + size
        header[name] = {"dtype": type_name, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)  # the data begins at a cache line
    with open(path, "wb") as file:  # a file object of ours, so that a full disk is an OSError
        file.write(len(text).to_bytes(8, "little") + text)
        for content in contents:
            file.write(content.data)
            release(content)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return copies of the tensors of a file."""
    from safetensors.torch import load_file

    _header(path)
    with _damage_named(path):
        return load_file(path)


def mapped_tensors(path: Path) -> dict[str, Numbers]:
    """Return the tensors of a file as views of it; the library's reader copies them. bfloat16 is widened to float32."""
    return {name: widened(array) for name, array in unwidened_tensors(path).items()}


def unwidened_tensors(path: Path) -> dict[str, Numbers]:
    """Return the tensors of a file as views of it; bfloat16 needs ``widened``."""
    header, begin = _header(path)
    data = np.frombuffer(map_file(path), dtype=np.uint8)[begin:]
    with _damage_named(path):
        return {name: _array(data, facts, path) for name, facts in header.items()}


def forms_of(tensors: Mapping[str, Tensor] | Mapping[str, Numbers]) -> Forms:
    """Return shape and type of each tensor of torch or numpy, as ``form_of`` writes them."""
    return {name: form_of(tensor.shape, str(tensor.dtype).removeprefix("torch.")) for name, tensor in tensors.items()}


def form_of(shape: Any, type_name: str = "float32") -> str:
    """Return shape and type in words: "(16, 4)" for any floating-point type, else "(16, 4) of int32"."""
    floating = type_name.startswith(("float", "bfloat"))
    return f"{tuple(shape)}{'' if floating else f' of {type_name}'}"


def require_forms(own: Forms, stored: Forms, origin: str) -> None:
    """Refuse stored parameters whose names, shapes or types are not those of the model."""
    different = [
        f"{name}: {stored.get(name, 'missing')} in the checkpoint, {own.get(name, 'missing')} in the model"
        for name in sorted(own.keys() | stored.keys())
        if own.get(name) != stored.get(name)
    ]
    if different:
        more = f" and {len(different) - 3} more" if len(different) > 3 else ""
        raise UsageError(f"{origin} holds another architecture: {'; '.join(different[:3])}{more}")


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Facts of each tensor, which the library has compared with the file, and where the data begins."""
    content = map_file(path)
    with _damage_named(path):
        with safe_open(path, framework="np"):  # refuses every other file
            pass
        begin = 8 + int.from_bytes(content[:8], "little")
        header = parse_json(content[8:begin])
        header.pop("__metadata__", None)
        for name, facts in header.items():
            if facts["dtype"] not in _NAMES_OF_TYPES:
                raise Malformed(f"tensor '{name}' is of type {facts['dtype']}, which nmt cannot read")
        return header, begin


@contextlib.contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from None


def _array(data: Numbers, facts: Mapping[str, Any], path: Path) -> Numbers:
    begin, end = facts["data_offsets"]
    name = _NAMES_OF_TYPES[facts["dtype"]]
    if name.startswith("float8"):
        raise DataError(f"{path} holds tensors of type {name}, which only torch can read; use --engine torch")
    numbers = numbers_of(data[begin:end], name).reshape(facts["shape"])
    return numbers if numbers.flags.aligned else numbers.copy()
