"""Open untrusted files, and read JSON and YAML from them within bounds.

A small file can stop its reader: a named pipe without a writer, thousands of brackets, lists that double at each level by
references, integers of thousands of digits. Every bound has its constant here.
"""

from __future__ import annotations

import copy
import errno
import functools
import json
import mmap
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nmt.errors import DataError, MissingInputError, shown

MOST_LEVELS = 100  # of lists and mappings inside each other
MOST_PARTS = 2**22  # values of a tree, each counted as often as it occurs
LARGEST_INTEGER = 2**128  # UUIDs and the states of random generators are below it
_MOST_BYTES = 2**27  # of a file of JSON or YAML
ATTEMPTS = 3  # at opening or renaming a file that a network file system moved meanwhile

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # builds text, numbers, lists and mappings only
# PyYAML's constructors raise all of these for values that their tags do not fit, such as `!!int ""`.
YAML_FAULTS = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError)

Value = TypeVar("Value")


class Malformed(ValueError):
    """The content of a file breaks a rule or a bound; the message completes "the file is damaged: "."""


def require_file(path: Path) -> None:
    """Refuse everything but a regular file. Opening a named pipe without a writer would block forever."""
    try:
        mode = despite_stale_handles(path.stat).st_mode
    except FileNotFoundError:
        raise MissingInputError(f"cannot read {path}: it is missing (working directory: {Path.cwd()})") from None
    except (OSError, ValueError) as error:
        raise MissingInputError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
        raise MissingInputError(f"{path} is {kind}; give a regular file")


def read_file(path: Path, most: int | None = None) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes."""
    require_file(path)
    try:
        if most is not None and path.stat().st_size > most:
            raise DataError(f"{path} has {path.stat().st_size:,} bytes; files of its kind have at most {most:,}")
        return despite_stale_handles(path.read_bytes)
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None


def map_file(path: Path) -> mmap.mmap:
    """Map a regular file into memory; pages are read when they are used."""
    require_file(path)
    try:
        with open(path, "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise DataError(f"{path} is damaged: it is empty") from None
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None


def read_json(path: Path) -> Any:
    """Return the tree of a JSON file."""
    return _parsed(path, parse_json)


def read_mapping(path: Path) -> dict[str, Any]:
    """Return the tree of a JSON file, which must be a mapping."""
    tree = read_json(path)
    if not isinstance(tree, dict):
        raise DataError(f"{path} is damaged: it should be a mapping")
    return tree


def parse_json(content: bytes | str) -> Any:
    """Return the tree of a JSON text. Raises ``Malformed`` if it is not JSON or exceeds a bound."""
    try:
        tree = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is not JSON ({error})") from None
    require_bounds(tree)
    return tree


def read_yaml(path: Path) -> Any:
    """Return the tree of a YAML file, whose keys are text. The last files are parsed once: a command reads a model's
    configuration for its search, and again to load it."""
    return copy.deepcopy(_parsed(path, _parse_yaml_once))


def _parsed(path: Path, parse: Callable[[bytes], Any]) -> Any:
    content = read_file(path, _MOST_BYTES)
    try:
        return parse(content)
    except Malformed as error:
        raise DataError(f"{path} is damaged: {error}") from None


def parse_yaml(content: bytes, loader: Any = YAML_LOADER) -> Any:
    """Return the tree of a YAML text. Raises ``Malformed`` if it is not YAML or exceeds a bound."""
    try:
        text = content.decode("utf-8")
        require_bounded_yaml(text)
        tree = yaml.load(text, loader)
    except Malformed:
        raise
    except YAML_FAULTS as error:
        raise Malformed(f"it is not YAML ({' '.join(str(error).split())})") from None
    require_bounds(tree)
    return tree


_parse_yaml_once = functools.lru_cache(maxsize=8)(parse_yaml)


def require_bounded_yaml(text: str, most: int = MOST_PARTS) -> None:
    """Refuse YAML that is nested too deep, or has more values than ``most`` after its aliases are replaced.

    This reads parser events only, before any constructor recurses or expands aliases. Raises ``YAMLError``.
    """
    sizes: dict[str, int] = {}  # of the complete parts that have an anchor
    begun: list[tuple[str | None, int]] = []  # the open lists and mappings: anchor, parts before it
    parts = 0
    for event in yaml.parse(text, YAML_LOADER):
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes:
                raise Malformed(f"its alias *{event.anchor} is undefined, or names a value that contains the alias")
            parts += sizes[event.anchor]
        elif isinstance(event, yaml.CollectionStartEvent):
            begun.append((event.anchor, parts))
            parts += 1
            require_levels(len(begun))
        elif isinstance(event, (yaml.CollectionEndEvent, yaml.ScalarEvent)):
            anchor, before = begun.pop() if isinstance(event, yaml.CollectionEndEvent) else (event.anchor, parts)
            parts += isinstance(event, yaml.ScalarEvent)
            if anchor is not None:
                sizes[anchor] = parts - before
        require_parts(parts, most)


def require_levels(levels: int) -> None:
    """Refuse a tree that is too deep."""
    if levels > MOST_LEVELS:
        raise Malformed(f"it is nested more than {MOST_LEVELS} levels deep")


def require_parts(parts: int, most: int = MOST_PARTS) -> None:
    """Refuse a tree of too many values."""
    if parts > most:
        raise Malformed(f"it has more than {most:,} values, counting each repetition")


def require_integer(value: int) -> None:
    """Refuse an integer that is too large for a float, or for Python to print."""
    if not -LARGEST_INTEGER < value < LARGEST_INTEGER:
        raise Malformed(f"it has an integer of {value.bit_length()} bits; at most 128 are read")


def require_bounds(tree: Any) -> None:
    """Refuse a tree that is too deep or too large, with large integers, or with keys that are not text."""
    waiting, parts = [(tree, 1)], 0
    while waiting:
        part, level = waiting.pop()
        parts += 1
        require_parts(parts)
        if isinstance(part, (dict, list)):
            require_levels(level)
        if isinstance(part, dict):
            for key in part:
                if not isinstance(key, str):
                    raise Malformed(f"it has the key {shown(key)}, which is not text; put the key in quotes")
            waiting += [(value, level + 1) for value in part.values()]
        elif isinstance(part, list):
            waiting += [(value, level + 1) for value in part]
        elif isinstance(part, int):
            require_integer(part)


def despite_stale_handles(action: Callable[[], Value]) -> Value:
    """Repeat an action if a network file system reports a stale file handle."""
    for attempt in range(1, ATTEMPTS):
        try:
            return action()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            time.sleep(0.1 * attempt)
    return action()
