"""What an option takes, in words: for messages about values of the wrong kind."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any

from nmt.config.option import choices_of, flags_of
from nmt.errors import closest
from nmt.registry import registry_for

_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_SEVERAL = {int: "whole numbers", float: "numbers", str: "words"}

# What was meant by a value that belongs to another option.
_NUMBERS_MEANT_FOR = {"length_penalty": "--lenpen"}


def refusal_of_value(config_class: type, key: str, value: Any, owner: Any) -> str:
    """``key=value`` is not what the option takes. ``owner``: the dataclass that has the option, if it is known."""
    hint = _hint(config_class, key, owner)
    shown = f"{key}={_typed(value)}"
    whole = key.partition("[")[0]
    flag = next((f" ({flag.name})" for flag in flags_of(config_class) if flag.key == whole), "")
    if dataclasses.is_dataclass(hint):
        return f"{shown}: {key} has options of its own; give them one by one, {key}.OPTION=VALUE"
    meant = _NUMBERS_MEANT_FOR.get(key.rpartition(".")[2])
    if meant is not None and _is_number(value):
        return f"{shown} is none of {', '.join(choices_of(hint))}{flag}; the number is {meant} {value}"
    choices = choices_of(hint)
    if choices:
        match = closest(str(value), choices)
        return f"{shown} is none of {', '.join(choices)}{flag}{f'; did you mean {match}?' if match else ''}"
    return f"{shown} is not {_in_words(hint)}{flag}"


def _hint(config_class: type, key: str, owner: Any) -> Any:
    """The annotation of an option; of an item of a list that of the item."""
    name, _, item = key.partition("[")
    last = name.rpartition(".")[2]
    for candidate in (owner, *_owners(config_class, name)):
        if dataclasses.is_dataclass(candidate) and isinstance(candidate, type):
            hints = typing.get_type_hints(candidate)
            if last in hints:
                return (typing.get_args(hints[last]) or (Any,))[0] if item else hints[last]
    return Any


def _owners(config_class: type, key: str) -> Iterator[type]:
    """The dataclasses that may have an option of this key."""
    section, dot, _ = key.partition(".")
    for field in dataclasses.fields(config_class):
        if not dot:
            yield config_class
        elif field.name == section and "section" in field.metadata:
            yield field.metadata["section"]
        elif field.name == section and "group" in field.metadata:
            registry = registry_for(field.metadata["group"])
            yield from map(registry.config_class, registry.names())


def _in_words(hint: Any) -> str:
    alternatives = list(typing.get_args(hint)) if typing.get_origin(hint) in (typing.Union, types.UnionType) else [hint]
    return " or ".join(_kind(kind) for kind in alternatives if kind is not type(None))


def _kind(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple):
        return f"a list of {_SEVERAL.get(inner[0], 'values')}, [A,B]"
    if origin is dict:
        return f"a name with {_KINDS.get(inner[1], 'a value')} each, {{NAME:VALUE}}"
    return _KINDS.get(hint, "a value of the right kind")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _typed(value: Any) -> str:
    """As a user types it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_typed(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_typed, value)) + "]"
    return str(value)
