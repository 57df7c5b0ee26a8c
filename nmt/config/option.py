"""Declaring options: one dataclass field holds an option's default, help text and command-line flag.

@dataclass
class BeamConfig:
    lenpen: float = flag(1.0, help="exponent of the length penalty")  # its flag is --lenpen
    beam_size: int = option(5, help="hypotheses kept per sentence", flag="--beam")
    model: Any = group("model", help="architecture and its sizes", flag="--arch")
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from nmt.registry import registry_for

OWN_NAME = "--"  # of an option whose flag is called like its field


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
    owner: type = object  # the dataclass that declares it
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
    return dataclasses.field(default=default, metadata=metadata)


def flag(default: Any, **options: Any) -> Any:
    """An ``option`` whose flag is called like the field: ``save_dir`` has ``--save-dir``."""
    return option(default, flag=OWN_NAME, **options)


def user_dir_option() -> Any:
    """Every command can load plugins."""
    return flag(None, help="plugins: folders of packages, or Python files; several with commas", kind=FlagKind.joined)


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

    Components that declare the same flag for the same key share it (``--lr`` of every optimizer). A switch that is on in
    some components can be given either way.
    """
    flags: dict[str, Flag] = {}
    for flag in _walk(config, "", with_flags_alone=True):
        first = flags.setdefault(flag.name, flag)
        assert flag.key == first.key, f"{flag.name} stands for both {first.key} and {flag.key}"
        if flag.kind is FlagKind.switch and flag.default is not first.default:
            flags[flag.name] = dataclasses.replace(first, default=None)
    return list(flags.values())


def options_of(config: type, prefix: str = "") -> list[Flag]:
    """Every option of a section, also those without a flag, with those of its sections and possible components."""
    return [*_walk(config, prefix)]


def _walk(config: type, prefix: str, *, with_flags_alone: bool = False) -> Iterator[Flag]:
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        facts, hint, key = field.metadata, hints[field.name], f"{prefix}{field.name}"
        name = facts.get("flag")
        if name or not (with_flags_alone or "section" in facts or "group" in facts):
            name = f"--{field.name.replace('_', '-')}" if name == OWN_NAME else name or f"{key}="
            default, kind = default_of(field), facts.get("kind") or _kind(hint)
            yield Flag(name, key, kind, facts["help"], default, facts.get("implied"), config, choices_of(hint))
        inside = [facts["section"]] if "section" in facts else []
        if "group" in facts:
            registry = registry_for(facts["group"])
            inside = [registry.config_class(name) for name in registry.names()]
        for part in inside:
            yield from _walk(part, f"{key}.", with_flags_alone=with_flags_alone)


def choices_of(hint: Any) -> tuple[str, ...]:
    """The words that an annotation with an enum allows, as they are typed."""
    enums = [kind for kind in alternatives(hint) if isinstance(kind, type) and issubclass(kind, Enum)]
    return tuple(name for kind in enums for name in kind.__members__)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The parts of a union; of any other annotation itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _kind(hint: Any) -> FlagKind:
    if hint is bool:
        return FlagKind.switch
    choices = alternatives(hint)
    if any(choice in (list, tuple) or typing.get_origin(choice) in (list, tuple) for choice in choices):
        return FlagKind.many
    return FlagKind.text if {*choices} <= {str, type(None)} else FlagKind.plain


def default_of(field: dataclasses.Field[Any]) -> Any:
    """A fresh copy of a field's default; None where there is none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
