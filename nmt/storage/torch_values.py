"""Turn a pickle of torch, fairseq or omegaconf into plain dicts, lists, numbers, strings and numpy arrays.

This file lists every allowed name; none is imported. A tensor becomes a view of numbers stored next to the pickle, an
``argparse.Namespace`` a dict of its attributes, and a configuration of omegaconf its tree. An object of fairseq becomes
its state (a meter) or its value (a member of an enum).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from nmt.storage.arrays import BFLOAT16, Numbers
from nmt.storage.pickles import SIMPLE, Call, Name, Persistent
from nmt.storage.reading import Malformed, require_levels, require_parts

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
_NAMES = frozenset(  # allowed as values, mostly types that omegaconf stores; never called
    [f"builtins.{name}" for name in "bool bytes dict float int list long object set str tuple type unicode".split()]
    + [f"typing.{name}" for name in "Any Dict List Optional Sequence Tuple Union".split()]
    + [f"torch.{name}" for name in "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 bool".split()]
    + ["operator.getitem", "types.NoneType", *_TYPED_LATER]
)
_MOST, _MOST_DIMENSIONS = 2**62, 32


@dataclass(frozen=True)
class Storage:
    """The numbers of a tensor, stored next to the pickle."""

    type: str
    key: str
    begin: int  # index of the first number: a storage may be part of another
    count: int


def is_known(name: str) -> bool:
    """Whether a pickle may name a function or class."""
    return (
        name in _NAMES or name in _CALLS or _STORAGE.fullmatch(name) is not None or bool(_FOREIGN_CLASS.fullmatch(name))
    )


def storage_of(persistent: Persistent) -> Storage:
    """Return the storage that torch describes in a pickle."""
    match persistent.identity:
        case ("storage", Name(text=name), str(key), _, int(count), *view) if len(view) <= 1:
            begin = 0
            if view and isinstance(view[0], tuple) and len(view[0]) == 3:  # of torch before 0.4: a key, begin and count
                begin, count = view[0][1:]
            if (match := _STORAGE.fullmatch(name)) is not None:
                return Storage(_TYPES[match["type"]], key, *_whole([begin, count]))
    raise Malformed("it describes the numbers of a tensor in a way that torch.save does not")


class Plain:
    """Turn the value of ``read_pickle`` into a plain tree. A part that occurs twice is one object in the tree.

    Such a part counts twice towards the maximum number of values, because ``str`` and numpy expand it.
    """

    def __init__(self, numbers: Callable[[Storage], Numbers]) -> None:
        self._numbers = numbers
        self._done: dict[int, tuple[Any, int, int]] = {}  # by identity: the plain part, its values, its levels
        self._busy: set[int] = set()
        self._parts = 0  # values so far
        self._deepest = 0  # level within the part that is being read

    def root(self, value: Any, skip: Collection[str]) -> Any:
        if isinstance(value, dict):
            value = {key: None if key in skip else part for key, part in value.items()}
        return self.of(value)

    def of(self, value: Any) -> Any:
        if isinstance(value, SIMPLE):
            self._parts += 1
            return value
        if isinstance(value, Name):
            return value.text
        if id(value) in self._busy:
            raise Malformed("a part of it contains itself")
        if id(value) not in self._done:
            self._done[id(value)] = self._measured(value)
        else:
            self._parts += self._done[id(value)][1]
        translated, _, levels = self._done[id(value)]
        self._deepest = max(self._deepest, len(self._busy) + levels)
        require_levels(self._deepest)
        require_parts(self._parts)
        return translated

    def _measured(self, value: Any) -> tuple[Any, int, int]:
        """Translate a part for the first time. Return it with its numbers of values and of levels."""
        parts, deepest, level = self._parts, self._deepest, len(self._busy)
        self._parts += 1
        self._busy.add(id(value))
        require_levels(len(self._busy))
        self._deepest = len(self._busy)
        translated = self._new(value)
        self._busy.remove(id(value))
        levels = self._deepest - level
        self._deepest = max(deepest, self._deepest)
        return translated, self._parts - parts, levels

    def _new(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self.dict(value)
        if isinstance(value, (list, tuple)):
            return [self.of(part) for part in value]
        if isinstance(value, Persistent):
            return self._numbers(storage_of(value))
        assert isinstance(value, Call)
        if value.name in _CALLS:
            return _CALLS[value.name](self, value)
        if _FOREIGN_CLASS.fullmatch(value.name):
            return _configuration(self, value) if value.name.startswith("omegaconf.") else _foreign(self, value)
        raise Malformed(f"it calls {value.name}")

    def dict(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {self._key(key): self.of(part) for key, part in value.items()}

    def _key(self, key: Any) -> Any:
        translated = tuple(map(self.of, key)) if isinstance(key, tuple) else self.of(key)
        if not all(
            isinstance(part, SIMPLE) for part in (translated if isinstance(translated, tuple) else (translated,))
        ):
            raise Malformed("it has a key that is neither text nor a number")
        return translated

    def tensor(self, storage: Any, offset: Any, size: Any, stride: Any, type_name: Any = None) -> Numbers:
        if not isinstance(storage, Persistent) or type(offset) is not int:
            raise Malformed("it has a tensor without numbers")
        numbers = self._numbers(storage_of(storage))
        if isinstance(type_name, Name) and type_name.text in _TYPED_LATER:
            dtype = np.dtype(_TYPED_LATER[type_name.text])
            if numbers.dtype != np.uint8 or numbers.size % dtype.itemsize:
                raise Malformed(f"it has a tensor of {type_name.text} whose numbers are of another type")
            numbers = numbers.view(dtype)
        return _view(numbers, offset, _whole(size), _whole(stride))


def _whole(values: Any) -> list[int]:
    """Check sizes or strides."""
    if isinstance(values, Call) and values.name == "torch.Size" and len(values.arguments) == 1:
        values = values.arguments[0]
    if not isinstance(values, (tuple, list)) or not all(type(size) is int and 0 <= size < _MOST for size in values):
        raise Malformed("it has a tensor whose sizes or strides are not whole numbers")
    return list(values)


def _view(numbers: Numbers, offset: int, shape: list[int], steps: list[int]) -> Numbers:
    """Return the part of a storage that a tensor shows, and refuse a tensor that exceeds its storage."""
    if len(shape) != len(steps) or len(shape) > _MOST_DIMENSIONS:
        raise Malformed("it has a tensor whose sizes and strides do not fit each other")
    if 0 in shape:
        return np.zeros(shape, numbers.dtype)
    last = offset + sum((size - 1) * step for size, step in zip(shape, steps))
    if offset < 0 or last >= numbers.size or math.prod(shape) > numbers.size:
        raise Malformed(f"it has a tensor of shape {shape}, but only {numbers.size} numbers")
    strides = [step * numbers.itemsize if size > 1 else numbers.itemsize for size, step in zip(shape, steps)]
    return np.lib.stride_tricks.as_strided(numbers[offset:], shape, strides, writeable=False)


def _tensor(plain: Plain, call: Call) -> Numbers:
    if len(call.arguments) < 4:
        raise _lacking(call)
    return plain.tensor(*call.arguments[:4])


def _typed_tensor(plain: Plain, call: Call) -> Numbers:
    match call.arguments:
        case (storage, offset, size, stride, _, _, type_name, *_):
            return plain.tensor(storage, offset, size, stride, type_name)
    raise _lacking(call)


def _lacking(call: Call) -> Malformed:
    return Malformed(f"it calls {call.name} with other arguments than torch.save writes")


def _first(plain: Plain, call: Call) -> Any:
    if not call.arguments:
        raise _lacking(call)
    return plain.of(call.arguments[0])


def _mapping(plain: Plain, call: Call) -> dict[Any, Any]:
    """Return an OrderedDict or a defaultdict as a dict; the factory of the latter is ignored."""
    argument = call.arguments[0] if call.arguments else None
    if not isinstance(argument, (list, Name, type(None))):
        raise _lacking(call)
    pairs = argument if isinstance(argument, list) else []
    if not all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs):
        raise Malformed(f"it calls {call.name} with arguments that are not pairs")
    return {plain._key(key): plain.of(value) for key, value in pairs} | plain.dict(call.items)


def _state(plain: Plain, call: Call) -> Any:
    return {} if call.state is None else plain.of(call.state)


def _foreign(plain: Plain, call: Call) -> Any:
    """Return the state of an object, or the value of a member of an enum, which has no state."""
    if call.state is not None or not call.arguments:
        return _state(plain, call)
    return plain.of(call.arguments[0] if len(call.arguments) == 1 else call.arguments)


def _configuration(plain: Plain, call: Call) -> Any:
    state = call.state
    for name in ("_content", "_val"):  # of a container, of a single value
        if isinstance(state, dict) and name in state:
            return plain.of(state[name])
    raise Malformed(f"it has a {call.name} without content")


def _members(plain: Plain, call: Call) -> list[Any]:
    members = call.arguments[0] if call.arguments else []
    if not isinstance(members, (list, tuple)):
        raise _lacking(call)
    return [plain.of(member) for member in members]


def _path(plain: Plain, call: Call) -> str:
    if not all(isinstance(part, str) for part in call.arguments):
        raise Malformed(f"it calls {call.name} with arguments that are not text")
    return str(PurePosixPath(*call.arguments))


def _bytes(plain: Plain, call: Call) -> bytes:
    match call.arguments:  # as protocol 2 writes bytes
        case (str(text), "latin1" | "latin-1") if all(ord(character) < 256 for character in text):
            return text.encode("latin-1")
    raise Malformed("it has bytes in a form that Python does not write")


def _scalar(plain: Plain, call: Call) -> Any:
    """Return a single number of numpy, stored in little-endian order."""
    match call.arguments:
        case (Call(name="numpy.dtype", arguments=(str(code), *_)), content) if code in _SCALARS:
            content = plain.of(content)
            if isinstance(content, bytes) and len(content) == np.dtype(code).itemsize:
                return np.frombuffer(content, np.dtype(code).newbyteorder("<"))[0].item()
    raise Malformed("it has a damaged numpy number")


_CALLS: dict[str, Callable[[Plain, Call], Any]] = {
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
    "pathlib._local.PosixPath": _path,  # its name in files that Python 3.13 wrote
    "_codecs.encode": _bytes,
    "numpy.dtype": _first,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy._core.multiarray.scalar": _scalar,
}
