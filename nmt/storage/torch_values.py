"""What a pickle of torch, fairseq or omegaconf means: plain dicts, lists, numbers and strings, and numpy arrays.

Every name that may occur stands here. None of them is imported: tensors are views of the numbers that lie beside the
pickle, ``argparse.Namespace`` is a dict of its attributes, a configuration of omegaconf the tree that it holds, and an
object of fairseq (a choice of an enum, a meter) what it was made from or its state.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from nmt.storage.pickles import SIMPLE, Made, Malformed, Name, Persistent

Numbers = npt.NDArray[Any]

BFLOAT16 = "bfloat16"  # the upper half of a float32; numpy has no such type
_TYPES = {  # numpy's, by the beginning of the name of a storage
    "Float": "<f4",
    "Double": "<f8",
    "Half": "<f2",
    "BFloat16": BFLOAT16,
    "Long": "<i8",
    "Int": "<i4",
    "Short": "<i2",
    "Char": "i1",
    "Byte": "u1",
    "Bool": "?",
    "Untyped": "u1",
}
_TYPED_LATER = {"torch.uint16": "<u2", "torch.uint32": "<u4", "torch.uint64": "<u8"}  # of storages without a type
_STORAGE = re.compile(rf"torch\.(?:cuda\.|storage\.)?(?P<type>{'|'.join(_TYPES)})Storage")
_SCALARS = frozenset("f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1".split())  # numpy's codes
_FOREIGN_CLASS = re.compile(r"(?:fairseq|omegaconf)(?:\.[a-z_0-9]+)+\.[A-Z]\w*")
_NAMES = frozenset(  # mentioned, as a rule in what omegaconf notes about types; what they mean is not asked
    [f"builtins.{name}" for name in "bool bytes dict float int list long object set str tuple type unicode".split()]
    + [f"typing.{name}" for name in "Any Dict List Optional Sequence Tuple Union".split()]
    + [f"torch.{name}" for name in "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 bool".split()]
    + ["operator.getitem", "types.NoneType", *_TYPED_LATER]
)
_DEPTH = 100  # of lists within lists; no checkpoint comes near it
_MOST, _MOST_DIMENSIONS = 2**62, 32


@dataclass(frozen=True)
class Storage:
    """Numbers that lie beside the pickle."""

    type: str
    key: str
    begin: int  # the first number, where another storage is meant in part
    count: int

    @property
    def itemsize(self) -> int:
        return 2 if self.type == BFLOAT16 else np.dtype(self.type).itemsize


def is_known(name: str) -> bool:
    """Whether a pickle may mention a function or class."""
    return (
        name in _NAMES or name in _CALLS or _STORAGE.fullmatch(name) is not None or bool(_FOREIGN_CLASS.fullmatch(name))
    )


def storage_of(persistent: Persistent) -> Storage:
    """What torch notes in a pickle about numbers that stand outside."""
    match persistent.identity:
        case ("storage", Name(text=name), str(key), _, int(count), *view) if len(view) <= 1:
            begin = 0
            if view and isinstance(view[0], tuple) and len(view[0]) == 3:  # of torch before 0.4: a key, begin and count
                begin, count = view[0][1:]
            if (found := _STORAGE.fullmatch(name)) is not None:
                return Storage(_TYPES[found["type"]], key, *_whole([begin, count]))
    raise Malformed("it describes the numbers of a tensor in a way that torch.save does not")


class Plain:
    """Turns what ``read_pickle`` found into a plain tree. What stands in it twice is the same object in the tree."""

    def __init__(self, numbers: Callable[[Storage], Numbers]) -> None:
        self._numbers = numbers
        self._done: dict[int, Any] = {}  # by identity
        self._busy: set[int] = set()

    def root(self, value: Any, skip: Collection[str]) -> Any:
        if isinstance(value, dict):
            value = {key: None if key in skip else part for key, part in value.items()}
        return self.of(value)

    def of(self, value: Any) -> Any:
        if isinstance(value, SIMPLE):
            return value
        if isinstance(value, Name):
            return value.text
        if id(value) in self._done:
            return self._done[id(value)]
        if id(value) in self._busy:
            raise Malformed("a part of it contains itself")
        if len(self._busy) >= _DEPTH:
            raise Malformed(f"it is nested more than {_DEPTH} levels deep")
        self._busy.add(id(value))
        found = self._new(value)
        self._busy.remove(id(value))
        self._done[id(value)] = found
        return found

    def _new(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self.dict(value)
        if isinstance(value, (list, tuple)):
            return [self.of(part) for part in value]
        if isinstance(value, Persistent):
            return self._numbers(storage_of(value))
        assert isinstance(value, Made)
        if value.name in _CALLS:
            return _CALLS[value.name](self, value)
        if _FOREIGN_CLASS.fullmatch(value.name):
            return _configuration(self, value) if value.name.startswith("omegaconf.") else _foreign(self, value)
        raise Malformed(f"it calls {value.name}")

    def dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {self._key(key): self.of(part) for key, part in value.items()}

    def _key(self, key: Any) -> Any:
        found = tuple(map(self.of, key)) if isinstance(key, tuple) else self.of(key)
        if not all(isinstance(part, SIMPLE) for part in (found if isinstance(found, tuple) else (found,))):
            raise Malformed("it has a key that is no text and no number")
        return found

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, type_name: Any = None) -> Numbers:
        if not isinstance(storage, Persistent) or type(offset) is not int:
            raise Malformed("it has a tensor without numbers")
        numbers = self._numbers(storage_of(storage))
        if isinstance(type_name, Name) and type_name.text in _TYPED_LATER:
            wanted = np.dtype(_TYPED_LATER[type_name.text])
            if numbers.dtype != np.uint8 or numbers.size % wanted.itemsize:
                raise Malformed(f"it has a tensor of {type_name.text} whose numbers are of another type")
            numbers = numbers.view(wanted)
        shape, steps = _whole(size), _whole(stride)
        return _view(numbers, offset, shape, steps)


def _whole(values: Any) -> list[int]:
    """Sizes or strides."""
    if isinstance(values, Made) and values.name == "torch.Size" and len(values.arguments) == 1:
        values = values.arguments[0]
    if not isinstance(values, (tuple, list)) or not all(type(size) is int and 0 <= size < _MOST for size in values):
        raise Malformed("it has a tensor whose sizes or strides are no whole numbers")
    return list(values)


def _view(numbers: Numbers, offset: int, shape: list[int], steps: list[int]) -> Numbers:
    """The part of a storage that a tensor shows, after a look at whether it lies within."""
    if len(shape) != len(steps) or len(shape) > _MOST_DIMENSIONS:
        raise Malformed("it has a tensor whose sizes and strides do not fit each other")
    if 0 in shape:
        return np.zeros(shape, numbers.dtype)
    last = offset + sum((size - 1) * step for size, step in zip(shape, steps))
    if offset < 0 or last >= numbers.size or math.prod(shape) > numbers.size:
        raise Malformed(f"it has a tensor of shape {shape}, which its {numbers.size} numbers do not hold")
    strides = [step * numbers.itemsize if size > 1 else numbers.itemsize for size, step in zip(shape, steps)]
    return np.lib.stride_tricks.as_strided(numbers[offset:], shape, strides, writeable=False)


def _tensor(plain: Plain, made: Made) -> Numbers:
    if len(made.arguments) < 4:
        raise _lacking(made)
    return plain.tensor(*made.arguments[:4])


def _typed_tensor(plain: Plain, made: Made) -> Numbers:
    match made.arguments:
        case (storage, offset, size, stride, _, _, type_name, *_):
            return plain.tensor(storage, offset, size, stride, type_name)
    raise _lacking(made)


def _lacking(made: Made) -> Malformed:
    return Malformed(f"it calls {made.name} with other arguments than torch.save writes")


def _first(plain: Plain, made: Made) -> Any:
    if not made.arguments:
        raise _lacking(made)
    return plain.of(made.arguments[0])


def _mapping(plain: Plain, made: Made) -> dict[Any, Any]:
    """An OrderedDict or a defaultdict; the factory of the latter makes nothing here."""
    given = made.arguments[0] if made.arguments else None
    if not isinstance(given, (list, Name, type(None))):
        raise _lacking(made)
    pairs = given if isinstance(given, list) else []
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise Malformed(f"it calls {made.name} with what are no pairs")
    return {plain._key(key): plain.of(value) for key, value in pairs} | plain.dict(made.items)


def _state(plain: Plain, made: Made) -> Any:
    return {} if made.state is None else plain.of(made.state)


def _foreign(plain: Plain, made: Made) -> Any:
    """An object with a state is that; a choice of an enum is its value."""
    if made.state is not None or not made.arguments:
        return _state(plain, made)
    return plain.of(made.arguments[0] if len(made.arguments) == 1 else made.arguments)


def _configuration(plain: Plain, made: Made) -> Any:
    state = made.state
    for name in ("_content", "_val"):  # of a container, of a single value
        if isinstance(state, dict) and name in state:
            return plain.of(state[name])
    raise Malformed(f"it has a {made.name} without content")


def _members(plain: Plain, made: Made) -> list[Any]:
    inside = made.arguments[0] if made.arguments else []
    if not isinstance(inside, (list, tuple)):
        raise _lacking(made)
    return [plain.of(part) for part in inside]


def _path(plain: Plain, made: Made) -> str:
    if not all(isinstance(part, str) for part in made.arguments):
        raise Malformed(f"it calls {made.name} with what is no text")
    return str(PurePosixPath(*made.arguments))


def _bytes(plain: Plain, made: Made) -> bytes:
    match made.arguments:  # as protocol 2 writes bytes
        case (str(text), "latin1" | "latin-1") if all(ord(character) < 256 for character in text):
            return text.encode("latin-1")
    raise Malformed("it has bytes in a form that Python does not write")


def _scalar(plain: Plain, made: Made) -> Any:
    """A single number of numpy, in the byte order of nearly all machines."""
    match made.arguments:
        case (Made(name="numpy.dtype", arguments=(str(code), *_)), content) if code in _SCALARS:
            content = plain.of(content)
            if isinstance(content, bytes) and len(content) == np.dtype(code).itemsize:
                return np.frombuffer(content, np.dtype(code).newbyteorder("<"))[0].item()
    raise Malformed("it has a number of numpy that is none")


_CALLS: dict[str, Callable[[Plain, Made], Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _typed_tensor,
    "torch._utils._rebuild_parameter": _first,
    "torch._utils._rebuild_parameter_with_state": _first,
    "torch.Size": _members,
    "torch.device": _first,
    "collections.OrderedDict": _mapping,
    "collections.defaultdict": _mapping,
    "builtins.set": _members,
    "builtins.frozenset": _members,
    "argparse.Namespace": _state,
    "pathlib.Path": _path,
    "pathlib.PosixPath": _path,
    "_codecs.encode": _bytes,
    "numpy.dtype": _first,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}
