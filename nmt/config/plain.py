"""Configurations as plain trees and back: what a checkpoint stores, and how it is read; and the search that a model was
validated with, which it translates with unless the user says otherwise.

A plain tree holds strings, numbers, booleans, None, lists and dicts only. A component carries its registry name under
``name``; reading goes through the registry, never through a class path, so nothing in a file can name code to run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import typing
from collections.abc import Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.option import alternatives, default_of
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.registry import registered_name, registry_for

logger = logging.getLogger("nmt.search")

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
    """The configuration of one component, by its registry name. ``origin``: the file, for messages; ``user_dir``: the
    plugins that it was trained with."""
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


def from_keywords(
    config_class: type[Config], given: Mapping[str, Any], called: str, names: Collection[str] | None = None, **own: Any
) -> Config:
    """The options of a command from keyword arguments of the function ``called`` that does the same. ``names``: of the
    options that it takes, if not all; ``own``: options that it sets itself."""
    known = names or [field.name for field in dataclasses.fields(config_class)]  # type: ignore[arg-type]
    for name in given:
        if name not in known:
            near = did_you_mean(name, known)
            raise UsageError(f"{called} has no option '{name}'{near}; there are: {', '.join(known)}")
    try:
        return from_plain(config_class, to_plain({**given, **own}), origin=called)
    except DataError as error:
        raise UsageError(str(error)) from None


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


# Options that do not change the score of a given translation: key, flag, and the value that does nothing.
WITHOUT_MEANING_FOR_SCORING: tuple[tuple[str, str, Any], ...] = (
    ("coverage_penalty", "--coverage-penalty", 0.0),
    ("repetition_penalty", "--repetition-penalty", 1.0),
    ("no_repeat_ngram", "--no-repeat-ngram-size", 0),
    ("forbid_unknown", "--forbid-unk", False),
    ("min_len", "--min-len", 1),
)


def validated_search(trees: Mapping[str, Mapping[str, Any]], chosen: str | None, options: Collection[str]) -> Any:
    """The options of the search stored with a model, or with the models of an ensemble, of which the first decides.

    ``trees``: configurations as plain trees, by the file that each was read from; a search of a plugin that is not loaded is
    an error only where it is used. None: none is stored, or the user wants another one, says its name (``chosen``) or
    ``options`` that the stored one does not have.
    """
    origin, tree = next(iter(trees.items()), ("", {}))
    section = tree.get("search")
    if section is None or (chosen is not None and isinstance(section, dict) and chosen != section.get("name")):
        return None
    another = "choose a search to translate without the stored one (--search beam)"
    try:
        search = component_from_plain("search", section, origin=origin)
    except DataError as error:
        raise DataError(f"{error}; {another}") from None
    except UsageError as error:
        raise UsageError(f"{origin}: {error}; or {another}") from None
    if not {field.name for field in dataclasses.fields(search)}.issuperset(options):
        return None
    if any(other.get("search") != section for other in trees.values()):
        logger.info("the models of the ensemble were validated with different searches; that of %s counts", origin)
    return search


def for_scoring(search: Any) -> Any:
    """The search with neutral values of the options that do not change the score of a given translation."""
    fields = {field.name for field in dataclasses.fields(search)}
    return dataclasses.replace(search, **{key: usual for key, _, usual in WITHOUT_MEANING_FOR_SCORING if key in fields})


def described(search: Any, besides: Collection[str] = ()) -> str:
    """The name of a search and its options that are not at their defaults: ``beam, beam_size=4``. ``besides``: left out."""
    values = to_plain(search)
    unusual = [
        f"{field.name}={_shown(values[field.name])}"
        for field in dataclasses.fields(search)
        if field.name not in besides and values[field.name] != to_plain(default_of(field))
    ]
    return ", ".join([str(registered_name(type(search))), *unusual])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return f"{value:g}" if isinstance(value, float) else str(value)
