"""Declaring options: one dataclass field holds an option's default, help text and command-line flag.

@dataclass
class BeamConfig:
    beam_size: int = option(5, help="hypotheses kept per sentence", flag="--beam")
    model: Any = group("model", help="architecture and its sizes", flag="--arch")
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from nmt.registry import registry_for


class FlagKind(Enum):
    """How a flag's value is turned into an override."""

    plain = "plain"  # passed as it is; may be swept with commas in a multirun
    text = "text"  # quoted: paths, names, anything typed by hand
    switch = "switch"  # no value: sets the key to true
    many = "many"  # a list: comma-separated, or several values
    joined = "joined"  # text; several, each after its own flag, are joined with commas
    optional = "optional"  # one of an enum's names; without a value the implied one


@dataclass(frozen=True)
class Flag:
    """A command-line flag: an alias of a configuration key."""

    name: str  # "--beam"; of an option that has none its key and "="
    key: str  # "search.beam_size", or a group such as "model"
    kind: FlagKind
    help: str
    default: Any
    implied: Enum | None = None  # the value of a flag that stands alone
    choices: tuple[str, ...] = ()  # of an enum


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    flag: str | None = None,
    kind: FlagKind | None = None,
    implied: Enum | None = None,
) -> Any:
    """A dataclass field with help text and, if named, a flag. Mutable defaults are copied per instance.

    Without ``kind`` a flag's kind follows the default: a bool is a switch, a list is many, a str or None is text when
    the annotation says str (decided by ``flags_of``), everything else is plain. With ``implied`` the value of the flag
    may be left out.
    """
    kind = FlagKind.optional if implied is not None else kind
    metadata = {"help": help, "flag": flag, "kind": kind, "implied": implied}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def user_dir_option() -> Any:
    """Every command can load plugins."""
    text = "plugins: folders of packages, or Python files; several with commas"
    return option(None, help=text, flag="--user-dir", kind=FlagKind.joined)


def section(section_type: type, *, help: str) -> Any:
    """A dataclass field that holds a nested section with its own defaults."""
    return dataclasses.field(default_factory=section_type, metadata={"help": help, "section": section_type})


def group(role: str, *, help: str, flag: str | None = None) -> Any:
    """A dataclass field that holds the options of a component, chosen by name from the registry of its role."""
    return dataclasses.field(default=None, metadata={"help": help, "flag": flag, "group": role})


def groups_of(config: type) -> dict[str, str]:
    """The group fields of a section: field name -> role of the registry."""
    return {f.name: f.metadata["group"] for f in dataclasses.fields(config) if "group" in f.metadata}


def flags_of(config: type) -> list[Flag]:
    """Every flag of a command's configuration: its sections', and those of each component that a group may hold.

    Components that declare the same flag for the same key share it (``--lr`` of every optimizer).
    """
    flags: dict[str, list[Flag]] = {}
    for flag in _walk(config, prefix=""):
        flags.setdefault(flag.name, []).append(flag)
    return [shared(same) for same in flags.values()]


def options_of(config: type, prefix: str = "") -> list[Flag]:
    """Every option of a section, also those without a flag."""
    return [*_walk(config, prefix, all_of_them=True)]


def shared(flags: Sequence[Flag]) -> Flag:
    """Flags of the same name as one. A switch that is on in some components can be given either way."""
    first = flags[0]
    for flag in flags:
        assert flag.key == first.key, f"{flag.name} stands for both {first.key} and {flag.key}"
    differs = any(flag.default is not first.default for flag in flags)
    return dataclasses.replace(first, default=None) if first.kind is FlagKind.switch and differs else first


def _walk(config: type, prefix: str, *, all_of_them: bool = False) -> Iterator[Flag]:
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        key = f"{prefix}{field.name}"
        is_option = "section" not in field.metadata and "group" not in field.metadata
        if field.metadata.get("flag") or (all_of_them and is_option):
            name = field.metadata.get("flag") or f"{key}="
            kind, implied = _kind(field.metadata.get("kind"), hints[field.name]), field.metadata.get("implied")
            choices = choices_of(hints[field.name])
            yield Flag(name, key, kind, field.metadata["help"], default_of(field), implied, choices)
        if "section" in field.metadata:
            yield from _walk(field.metadata["section"], f"{key}.")
        if "group" in field.metadata:
            registry = registry_for(field.metadata["group"])
            for name in registry.names():
                yield from _walk(registry.config_class(name), f"{key}.")


def choices_of(hint: Any) -> tuple[str, ...]:
    """The words that an annotation with an enum allows, as they are typed."""
    enums = [kind for kind in _alternatives(hint) if isinstance(kind, type) and issubclass(kind, Enum)]
    return tuple(name for kind in enums for name in kind.__members__)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _kind(declared: FlagKind | None, hint: Any) -> FlagKind:
    if declared is not None:
        return declared
    if hint is bool:
        return FlagKind.switch
    choices = _alternatives(hint)
    if any(choice in (list, tuple) or typing.get_origin(choice) in (list, tuple) for choice in choices):
        return FlagKind.many
    return FlagKind.text if {*choices} <= {str, type(None)} else FlagKind.plain


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None
