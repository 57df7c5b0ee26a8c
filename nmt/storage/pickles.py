"""Read pickles without importing or calling anything.

A pickle is a program for a small stack machine. Python's machine imports the names in the program and calls them. This
one puts a ``Name`` in the place of an import and a ``Call`` in the place of a call, which nmt.storage.torch_values
translates. Numbers, strings, lists, tuples and dicts are themselves.

A ``pickle.Unpickler`` with a list of allowed names is not enough: see docs/explanation/architecture.md.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from nmt.storage.reading import Malformed, require_integer, require_levels

_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # as Python 2 called them, and protocol 2 still does
_NOTHING = {"PROTO", "FRAME"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ARGUMENTS = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES "
    "BINBYTES8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8".split()
)
_PUT, _GET = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MOST_OPERATIONS = 1_000_000  # a checkpoint of a thousand tensors and its optimizer's state have 100,000
SIMPLE = (str, int, float, bytes, type(None))  # types of keys, alone or in a tuple


@dataclass(eq=False, frozen=True)
class Name:
    """A function or class that a pickle would import."""

    text: str  # module and name, joined by a dot


@dataclass(eq=False)
class Call:
    """A call of a function or class, and the content that its result received afterwards."""

    name: str  # of the function or class
    arguments: tuple[Any, ...]
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    members: list[Any] = field(default_factory=list)


@dataclass(eq=False, frozen=True)
class Persistent:
    """A value outside the pickle, by its description in the pickle."""

    identity: Any


def read_pickle(file: BinaryIO, check_name: Callable[[str], None]) -> tuple[Any, list[Persistent]]:
    """Read a pickle from the position of a file up to the end of the pickle. Return its value, and the values outside.

    ``check_name`` is called with each imported name, and raises if the name is not allowed. Any other content raises a
    ``ValueError``.
    """
    machine = _Machine(check_name)
    for number, (operation, argument, _) in enumerate(pickletools.genops(file)):
        if operation.name == "STOP":
            return machine.pop(), machine.outside
        if number >= _MOST_OPERATIONS:
            raise Malformed(f"its pickle has more than {_MOST_OPERATIONS:,} operations")
        machine.do(operation.name, argument)
    raise Malformed("its pickle has no end")


class _Machine:
    """The stack, the marks in it, and the memo."""

    def __init__(self, check_name: Callable[[str], None]) -> None:
        self._check_name = check_name
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self._levels: dict[int, int] = {}  # by the identity of tuples, which are complete when they are made
        self.outside: list[Persistent] = []
        self._operations: dict[str, Callable[[], Any]] = {
            "MARK": lambda: self._marks.append(len(self._stack)),
            "POP": self._drop,
            "POP_MARK": lambda: self._since_mark(),
            "DUP": lambda: self._stack.append(self._top()),
            "EMPTY_LIST": lambda: self._stack.append([]),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "EMPTY_SET": lambda: self._stack.append([]),
            "LIST": lambda: self._stack.append(self._since_mark()),
            "FROZENSET": lambda: self._stack.append(self._since_mark()),
            "TUPLE": lambda: self._tuple(self._since_mark()),
            "DICT": self._dict,
            "APPEND": lambda: self._extend([self.pop()]),
            "APPENDS": lambda: self._extend(self._since_mark(target=True)),
            "ADDITEMS": lambda: self._extend(self._since_mark(target=True)),
            "SETITEM": lambda: self._set_items(self._last(2)),
            "SETITEMS": lambda: self._set_items(self._since_mark(target=True)),
            "MEMOIZE": lambda: self._memo.__setitem__(len(self._memo), self._top()),
            "STACK_GLOBAL": lambda: self._name(*self._last(2)),
            "REDUCE": lambda: self._call(*self._last(2)),
            "NEWOBJ": lambda: self._call(*self._last(2)),
            "BUILD": self._build,
            "BINPERSID": self._persistent,
        }

    def do(self, operation: str, argument: Any) -> None:
        if operation in _ARGUMENTS:
            if isinstance(argument, int):
                require_integer(argument)
            self._stack.append(argument)
        elif operation in _PUT:
            self._memo[argument] = self._top()
        elif operation in _GET:
            if argument not in self._memo:
                raise Malformed("its pickle refers to a value that it never stored")
            self._stack.append(self._memo[argument])
        elif operation in _CONSTANTS:
            self._stack.append(_CONSTANTS[operation])
        elif operation in _TUPLES:
            self._tuple(self._last(_TUPLES[operation]))
        elif operation == "GLOBAL":
            self._name(*argument.split(" ", 1))
        elif operation in self._operations:
            self._operations[operation]()
        elif operation not in _NOTHING:
            raise Malformed(f"its pickle uses the operation {operation}, which torch.save does not")

    def _floor(self) -> int:
        """Return the height of the stack at the last mark; operations must not reach below it."""
        return self._marks[-1] if self._marks else 0

    def _top(self) -> Any:
        if len(self._stack) <= self._floor():
            raise Malformed("its pickle pops from an empty stack")
        return self._stack[-1]

    def pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) - count < self._floor():
            raise Malformed("its pickle pops from an empty stack")
        values = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return values

    def _since_mark(self, *, target: bool = False) -> list[Any]:
        """Take the values since the last mark. ``target``: a value below the mark receives them."""
        if not self._marks:
            raise Malformed("its pickle uses a mark that it never set")
        mark = self._marks.pop()
        values = self._stack[mark:]
        del self._stack[mark:]
        if target:
            self._top()
        return values

    def _drop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self.pop()

    def _tuple(self, parts: list[Any]) -> None:
        """Make a tuple, and check its depth: tuples alone need only one byte for each level."""
        value = tuple(parts)
        levels = 1 + max((self._levels.get(id(part), 0) for part in value if isinstance(part, tuple)), default=0)
        require_levels(levels)
        self._levels[id(value)] = levels
        self._stack.append(value)

    def _dict(self) -> None:
        pairs = self._since_mark()
        self._stack.append({})
        self._set_items(pairs)

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Call):
            target.members.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise Malformed("its pickle appends to a value that is not a list")

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._top()
        items = target.items if isinstance(target, Call) else target
        if not isinstance(items, dict) or len(pairs) % 2:
            raise Malformed("its pickle sets items of a value that is not a dict")
        for key, value in zip(pairs[::2], pairs[1::2]):
            parts = key if isinstance(key, tuple) else (key,)
            if not all(isinstance(part, (*SIMPLE, Call, Name)) for part in parts):
                raise Malformed("its pickle has a key that is neither text nor a number")
            items[key] = value

    def _name(self, module: Any, name: Any = None) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Malformed("its pickle has a name that is not text")
        text = f"{_OLD_MODULES.get(module, module)}.{name}"
        self._check_name(text)
        self._stack.append(Name(text))

    def _call(self, called: Any, arguments: Any) -> None:
        if not isinstance(called, Name) or not isinstance(arguments, tuple):
            raise Malformed("its pickle calls a value that is neither a function nor a class")
        self._stack.append(Call(called.text, arguments))

    def _build(self) -> None:
        target, state = self._last(2)
        if not isinstance(target, Call):
            raise Malformed("its pickle sets the state of a value that has none")
        target.state = state
        self._stack.append(target)

    def _persistent(self) -> None:
        self.outside.append(Persistent(self.pop()))
        self._stack.append(self.outside[-1])
