"""Configurations as plain trees and back: what a checkpoint stores, and how it is read.

A plain tree holds strings, numbers, booleans, None, lists and dicts only. A component carries its registry name under
``name``; reading goes through the registry, never through a class path, so nothing in a file can name code to run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.composing.refusals import as_typed, wrong_value
from nmt.config.option import alternatives, hints_of, own_first
from nmt.errors import DataError, UsageError, did_you_mean, shown
from nmt.registry import registered_name, registry_for

Config = TypeVar("Config")


def to_plain(value: Any) -> Any:
    """Convert to a plain tree: dataclasses to dicts, enums to names of members, paths to strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = registered_name(type(value))
        tree = {"name": name} if name is not None else {}
        return tree | {field.name: to_plain(getattr(value, field.name)) for field in own_first(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the leaves of nested mappings, each under the keys on its path, joined by dots."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves |= flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return leaves


def put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Set the value under a key such as ``optimizer.lr``; missing sections are added."""
    *sections, last = key.split(".")
    for name in sections:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[last] = value


def component_from_plain(role: str, tree: Any, *, origin: str, user_dir: str | None = None) -> Any:
    """Rebuild the options of a component by its registry name. ``origin``: the file, for messages; ``user_dir``: plugins of
    the training run."""
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str):
        raise DataError(f"{origin}: the section of the {role} has no name")
    registry = registry_for(role)
    if user_dir and tree["name"] not in registry.names():
        raise UsageError(
            f"{origin}: {role} '{tree['name']}' is not registered; the model was trained with --user-dir {user_dir}: add it"
        )
    config_class = registry.config_class(tree["name"])
    fields = {key: value for key, value in tree.items() if key != "name"}
    return from_plain(config_class, fields, origin=origin, where=role)


class WrongValue(DataError):
    """An option does not take its value."""

    key: str = ""
    value: Any = None
    hint: Any = None  # the annotation of the option


def from_plain(config_class: type[Config], tree: Any, *, origin: str, where: str = "") -> Config:
    """Rebuild a dataclass from a plain tree; unknown keys are errors that name them."""
    return config_class(**values_from_plain(typing.cast(type, config_class), tree, origin=origin, where=where))


def values_from_plain(config_class: type, tree: Any, *, origin: str, where: str = "") -> dict[str, Any]:
    """Return the values that a plain tree gives to the fields of a dataclass. Sections are built, and their rules checked.
    The dataclass is not built, since its rules may need options that the tree omits."""
    if not isinstance(tree, dict):
        raise DataError(f"{origin}: {where or 'the configuration'} should be a mapping, not {shown(tree)}")
    fields = {field.name: field for field in dataclasses.fields(config_class)}
    hints = hints_of(config_class)
    values: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in fields:
            raise DataError(
                f"{origin}: this version does not know the option {path}{did_you_mean(str(key), fields)}; "
                f"the file was written by another version, or edited"
            )
        role = fields[key].metadata.get("group")
        if role is None:
            values[key] = convert(hints[key], value, origin=origin, where=path)
        elif value is not None:
            values[key] = component_from_plain(role, value, origin=origin, user_dir=tree.get("user_dir"))
    return values


def convert(hint: Any, value: Any, *, origin: str, where: str) -> Any:
    """Convert a plain value to its annotated type; raise ``WrongValue`` if it has another type. ``where``: its key."""
    if hint is Any:
        return value
    kinds = [kind for kind in alternatives(hint) if kind is not type(None)]
    if value is None and len(kinds) < len(alternatives(hint)):
        return None
    if len(kinds) > 1:
        for kind in kinds:
            with contextlib.suppress(DataError):
                return convert(kind, value, origin=origin, where=where)
        raise _wrong(origin, where, value, hint)
    (kind,) = kinds
    container = typing.get_origin(kind)
    if container in (list, tuple) and isinstance(value, list):
        inner = (typing.get_args(kind) or (Any,))[0]
        items = [convert(inner, item, origin=origin, where=f"{where}[{number}]") for number, item in enumerate(value)]
        return items if container is list else tuple(items)
    if container is dict and isinstance(value, dict):
        inner = typing.get_args(kind)[1]
        return {str(key): convert(inner, item, origin=origin, where=f"{where}.{key}") for key, item in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return from_plain(typing.cast(type, kind), value, origin=origin, where=where)
    if isinstance(kind, type) and issubclass(kind, Enum) and isinstance(value, str) and value in kind.__members__:
        return kind[value]
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.float_info.max:
        return float(value)
    if not _is(kind, value):
        raise _wrong(origin, where, value, kind)
    return value


def _is(kind: Any, value: Any) -> bool:
    """Whether a plain value has a type that needs no conversion. An annotation of another kind takes any value."""
    if kind in (int, float, str, bool):
        return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    declared = isinstance(kind, type) and issubclass(kind, Enum)
    return not (declared or dataclasses.is_dataclass(kind) or typing.get_origin(kind) in (list, tuple, dict))


def _wrong(origin: str, key: str, value: Any, hint: Any) -> WrongValue:
    error = WrongValue(f"{origin}: {wrong_value(key, shown(value), value, hint)}")
    error.key, error.value, error.hint = key, value, hint
    return error


def from_text(hint: Any, value: Any) -> Any:
    """Return a value of ``key=value`` in the kind that its annotation asks for, as far as the text allows: Hydra's parser
    reads ``7`` as a number also if the option takes text, and a quoted ``'7'`` as text also if it takes a number."""
    kinds = alternatives(hint)
    containers = [kind for kind in kinds if typing.get_origin(kind) in (list, tuple, dict)]
    if isinstance(value, list) and containers and (inner := typing.get_args(containers[0])):
        return [from_text(inner[0], item) for item in value]
    if isinstance(value, dict) and containers and (inner := typing.get_args(containers[0])):
        return {key: from_text(inner[-1], item) for key, item in value.items()}
    if isinstance(value, str) and str not in kinds:
        for kind in (kind for kind in (int, float) if kind in kinds):
            with contextlib.suppress(ValueError):
                return kind(value)
        return {"true": True, "false": False}.get(value.lower(), value) if bool in kinds else value
    if isinstance(value, bool):
        return as_typed(value) if str in kinds and bool not in kinds else value
    if isinstance(value, (int, float)):
        return value if str not in kinds or {int, float} & {*kinds} else str(value)
    return value
