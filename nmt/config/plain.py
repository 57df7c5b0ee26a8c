"""Configurations as plain trees and back: what a checkpoint stores, and how it is read again.

A plain tree holds strings, numbers, booleans, None, lists and dicts only. A component carries its registry name under
``name``; reading goes through the registry, never through a class path, so nothing in a file can name code to run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.option import alternatives
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.registry import registered_name, registry_for

Config = TypeVar("Config")


def to_plain(value: Any) -> Any:
    """Dataclasses become dicts, enums their member names, paths strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = registered_name(type(value))
        tree = {"name": name} if name is not None else {}
        return tree | {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def component_from_plain(role: str, tree: Any, *, origin: str, user_dir: str | None = None) -> Any:
    """The configuration of one component, by its registry name. ``origin`` names the file in error messages,
    ``user_dir`` the plugins that were loaded when it was written."""
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str):
        raise DataError(f"{origin}: the section of the {role} has no name")
    registry = registry_for(role)
    if user_dir and tree["name"] not in registry.names():
        raise UsageError(
            f"{origin}: {role} '{tree['name']}' is not registered; it was trained with --user-dir {user_dir}: give the same"
        )
    config_class = registry.config_class(tree["name"])
    fields = {key: value for key, value in tree.items() if key != "name"}
    return from_plain(config_class, fields, origin=origin, where=role)


def from_plain(config_class: type[Config], tree: Any, *, origin: str, where: str = "") -> Config:
    """Rebuild a dataclass from a plain tree; unknown keys are errors that name them."""
    if not isinstance(tree, dict):
        raise DataError(f"{origin}: {where or 'the configuration'} should be a mapping, not {tree!r}")
    fields = {field.name: field for field in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(config_class)
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
            values[key] = _value(hints[key], value, origin=origin, where=path)
        elif value is not None:
            values[key] = component_from_plain(role, value, origin=origin, user_dir=tree.get("user_dir"))
    return config_class(**values)


def _value(hint: Any, value: Any, *, origin: str, where: str) -> Any:
    """A plain value converted to its annotated type; a value of another type is an error."""
    if hint is Any:
        return value
    if len(alternatives(hint)) > 1:
        *others, last = (choice for choice in alternatives(hint) if choice is not type(None))
        if value is None and type(None) in alternatives(hint):
            return None
        for choice in others:
            with contextlib.suppress(DataError):
                return _value(choice, value, origin=origin, where=where)
        return _value(last, value, origin=origin, where=where)
    origin_type = typing.get_origin(hint)
    if origin_type in (list, tuple):
        if not isinstance(value, list):
            raise DataError(f"{origin}: {where}={value!r} should be a list")
        inner = (typing.get_args(hint) or (Any,))[0]
        items = [_value(inner, item, origin=origin, where=where) for item in value]
        return items if origin_type is list else tuple(items)
    if dataclasses.is_dataclass(hint):
        return from_plain(typing.cast(type, hint), value, origin=origin, where=where)
    if isinstance(hint, type) and issubclass(hint, Enum):
        if value not in hint.__members__:
            raise DataError(f"{origin}: {where}={value!r} is none of {', '.join(hint.__members__)}")
        return hint[value]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool) and (not isinstance(value, hint) or (hint is int and isinstance(value, bool))):
        raise DataError(f"{origin}: {where}={value!r} should be of type {hint.__name__}")
    return value
