"""Pickles, read without running anything: what a pickle would import and call is only written down.

A pickle is a program for a small machine with a stack. Python's own machine imports what the program names and calls it;
this one puts a ``Name`` where that stood, and ``Made`` where something was called. Who reads the result decides what
these mean. Numbers, strings, lists, tuples and dicts are what they are.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, BinaryIO

_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # as Python 2 called them, and protocol 2 still does
_NOTHING = {"PROTO", "FRAME"}
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_ARGUMENTS = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES "
    "BINBYTES8 UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8".split()
)
_PUT, _GET = frozenset({"PUT", "BINPUT", "LONG_BINPUT"}), frozenset({"GET", "BINGET", "LONG_BINGET"})
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
SIMPLE = (str, int, float, bytes, type(None))  # what may be a key, alone or in a tuple


class Malformed(ValueError):
    """The program breaks the machine's rules; the message completes "the file is damaged: "."""


@dataclass(eq=False, frozen=True)
class Name:
    """What a pickle would import."""

    text: str  # module and name, joined by a dot


@dataclass(eq=False)
class Made:
    """What a call would return, and what was put into it afterwards."""

    name: str  # of what was called
    arguments: tuple[Any, ...]
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)
    members: list[Any] = field(default_factory=list)


@dataclass(eq=False, frozen=True)
class Persistent:
    """What stands outside of the pickle."""

    identity: Any


def read_pickle(file: BinaryIO, check_name: Callable[[str], None]) -> tuple[Any, list[Persistent]]:
    """The value of the pickle at the place where the file stands, which is read to its end, and what of it stands elsewhere.
    ``check_name`` raises if a name must not occur. What is no pickle is a ValueError."""
    machine = _Machine(check_name)
    for operation, argument, _ in pickletools.genops(file):
        if operation.name == "STOP":
            return machine.pop(), machine.outside
        machine.do(operation.name, argument)
    raise Malformed("its pickle has no end")


class _Machine:
    """The stack, the marks in it, and the memo."""

    def __init__(self, check_name: Callable[[str], None]) -> None:
        self._check_name = check_name
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}
        self.outside: list[Persistent] = []
        self._operations: dict[str, Callable[[], Any]] = {
            "MARK": lambda: self._marks.append(len(self._stack)),
            "POP": self._drop,
            "POP_MARK": lambda: self._since_mark(None),
            "DUP": lambda: self._stack.append(self._top()),
            "EMPTY_LIST": lambda: self._stack.append([]),
            "EMPTY_DICT": lambda: self._stack.append({}),
            "EMPTY_SET": lambda: self._stack.append([]),
            "LIST": lambda: self._stack.append(self._since_mark(None)),
            "FROZENSET": lambda: self._stack.append(self._since_mark(None)),
            "TUPLE": lambda: self._stack.append(tuple(self._since_mark(None))),
            "DICT": self._dict,
            "APPEND": lambda: self._extend([self.pop()]),
            "APPENDS": lambda: self._extend(self._since_mark(1)),
            "ADDITEMS": lambda: self._extend(self._since_mark(1)),
            "SETITEM": lambda: self._set_items(self._last(2)),
            "SETITEMS": lambda: self._set_items(self._since_mark(1)),
            "MEMOIZE": lambda: self._memo.__setitem__(len(self._memo), self._top()),
            "STACK_GLOBAL": lambda: self._name(*self._last(2)),
            "REDUCE": lambda: self._call(*self._last(2)),
            "NEWOBJ": lambda: self._call(*self._last(2)),
            "BUILD": self._build,
            "BINPERSID": self._persistent,
        }

    def do(self, operation: str, argument: Any) -> None:
        if operation in _ARGUMENTS:
            self._stack.append(argument)
        elif operation in _PUT:
            self._memo[argument] = self._top()
        elif operation in _GET:
            if argument not in self._memo:
                raise Malformed("its pickle recalls what it never stored")
            self._stack.append(self._memo[argument])
        elif operation in _CONSTANTS:
            self._stack.append(_CONSTANTS[operation])
        elif operation in _TUPLES:
            self._stack.append(tuple(self._last(_TUPLES[operation])))
        elif operation == "GLOBAL":
            self._name(*argument.split(" ", 1))
        elif operation in self._operations:
            self._operations[operation]()
        elif operation not in _NOTHING:
            raise Malformed(f"its pickle uses the operation {operation}, which torch.save does not")

    def _floor(self) -> int:
        """Below it the stack belongs to what a mark waits for."""
        return self._marks[-1] if self._marks else 0

    def _top(self) -> Any:
        if len(self._stack) <= self._floor():
            raise Malformed("its pickle takes from an empty stack")
        return self._stack[-1]

    def pop(self) -> Any:
        self._top()
        return self._stack.pop()

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) - count < self._floor():
            raise Malformed("its pickle takes from an empty stack")
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _since_mark(self, below: int | None) -> list[Any]:
        """What was pushed since the last mark; ``below``: how many must stand under the mark."""
        if not self._marks:
            raise Malformed("its pickle goes back to a mark that it never set")
        mark = self._marks.pop()
        taken = self._stack[mark:]
        del self._stack[mark:]
        if below is not None:
            self._top()
        return taken

    def _drop(self) -> None:
        if self._marks and self._marks[-1] == len(self._stack):
            self._marks.pop()
        else:
            self.pop()

    def _dict(self) -> None:
        pairs = self._since_mark(None)
        self._stack.append({})
        self._set_items(pairs)

    def _extend(self, values: list[Any]) -> None:
        target = self._top()
        if isinstance(target, Made):
            target.members.extend(values)
        elif isinstance(target, list):
            target.extend(values)
        else:
            raise Malformed("its pickle appends to what is no list")

    def _set_items(self, pairs: list[Any]) -> None:
        target = self._top()
        items = target.items if isinstance(target, Made) else target
        if not isinstance(items, dict) or len(pairs) % 2:
            raise Malformed("its pickle sets items of what is no dict")
        for key, value in zip(pairs[::2], pairs[1::2]):
            parts = key if isinstance(key, tuple) else (key,)
            if not all(isinstance(part, (*SIMPLE, Made, Name)) for part in parts):
                raise Malformed("its pickle has a key that is no text and no number")
            items[key] = value

    def _name(self, module: Any, name: Any = None) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise Malformed("its pickle has a name that is no text")
        text = f"{_OLD_MODULES.get(module, module)}.{name}"
        self._check_name(text)
        self._stack.append(Name(text))

    def _call(self, called: Any, arguments: Any) -> None:
        if not isinstance(called, Name) or not isinstance(arguments, tuple):
            raise Malformed("its pickle calls what is no function and no class")
        self._stack.append(Made(called.text, arguments))

    def _build(self) -> None:
        target, state = self._last(2)
        if not isinstance(target, Made):
            raise Malformed("its pickle sets the state of what has none")
        target.state = state
        self._stack.append(target)

    def _persistent(self) -> None:
        found = Persistent(self.pop())
        self.outside.append(found)
        self._stack.append(found)
