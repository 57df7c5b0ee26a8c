"""Declaring options: one dataclass field holds an option's default, help text and command-line flag.

@dataclass
class ExampleConfig:
    min_len: int = flag(1, help="Minimum translation length in tokens")  # its flag is --min-len
    beam_size: int = option(5, help="Beam width", flag="--beam")
    model: Any = group("model", help="Model architecture and sizes", flag="--arch", preset="transformer_base")
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from nmt.registry import registry_for
from nmt.short_repr import ShortRepr as ShortRepr  # the base of dataclasses of options

OWN_NAME = "--"  # the flag has the name of the field


class FlagKind(Enum):
    """How a flag's value becomes the value of an assignment ``key=value``."""

    plain = "plain"  # unchanged; commas separate the values of a sweep
    text = "text"  # quoted: paths, names, free text
    switch = "switch"  # no value: sets the key to true
    many = "many"  # a list: comma-separated, or several values
    joined = "joined"  # text; if the flag is repeated, the values are joined with commas
    optional = "optional"  # a name of an enum; without a value the implied one


@dataclass(frozen=True)
class Flag:
    """A command-line flag: an alias of a configuration key."""

    name: str  # "--beam"; without a flag: the key and "="
    key: str  # "search.beam_size", or a group such as "model"
    kind: FlagKind
    help: str
    default: Any
    implied: Enum | None = None  # the value of a flag that stands alone
    owner: type = object  # the dataclass that declares it
    choices: tuple[str, ...] = ()  # names of an enum


def option(
    default: Any = dataclasses.MISSING,
    *,
    help: str,
    flag: str | None = None,
    kind: FlagKind | None = None,
    implied: Enum | None = None,
    keyword: bool = True,
    http: bool = False,
    scoring: bool = True,
    kw_only: Any = dataclasses.MISSING,
) -> Any:
    """A dataclass field with help text and, if named, a flag. Mutable defaults are copied per instance.

    Without ``kind`` a flag's kind follows the default: a bool is a switch, a list is many, a str or None is text when
    the annotation says str (decided by ``flags_of``), everything else is plain. With ``implied`` the value of the flag
    may be left out.

    Options of translating have three more facts:

    ``keyword``: False: ``Translator.translate`` does not take the option. Read in ``TranslationOptions`` only; every
    option of a search is a keyword.
    ``http``: True: a request to nmt-serve may set the option, under its keyword (``keyword_of``). Read in
    ``TranslationOptions`` and in the options of beam and greedy search. A request cannot set null.
    ``scoring``: False: ``--score-reference`` refuses the option and resets a stored value to its default. Read in the
    options of searches. Scoring references applies the length penalty only. Set it to False if the option changes
    scores, or forbids content: ignoring it would mislead. Options that guide the search alone (``beam_size``, ``stop``)
    keep True: they are ignored.
    """
    kind = FlagKind.optional if implied is not None else kind
    metadata: dict[str, Any] = {"help": help, "flag": flag, "kind": kind, "implied": implied}
    metadata |= {"keyword": keyword, "http": http, "scoring": scoring}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata, kw_only=kw_only)
    return dataclasses.field(default=default, metadata=metadata, kw_only=kw_only)


def flag(default: Any, **options: Any) -> Any:
    """An ``option`` whose flag is called like the field: ``save_dir`` has ``--save-dir``."""
    return option(default, flag=OWN_NAME, **options)


def threads_option() -> Any:
    """Return the option ``threads`` of commands that compute with torch; ``require_threads`` checks its value."""
    return flag(None, help="Number of CPU threads; null: one per core")


def section(section_type: type, *, help: str) -> Any:
    """A dataclass field that holds a nested section with its own defaults."""
    return dataclasses.field(default_factory=section_type, metadata={"help": help, "section": section_type})


def group(role: str, *, help: str, flag: str | None = None, http: bool = False, preset: str | None = None) -> Any:
    """A dataclass field that holds the options of a component, chosen by name from the registry of its role.

    ``http``: a request to nmt-serve may choose it. ``preset``: the preset or component that commands choose by default.
    Instances of the dataclass hold None by default.
    """
    metadata = {"help": help, "flag": flag, "group": role, "http": http, "preset": preset}
    return dataclasses.field(default=None, metadata=metadata)


def keyword_of(field: dataclasses.Field[Any]) -> str:
    """Return the Python keyword of an option, which is also its HTTP field: its flag's name, with underscores."""
    name = field.metadata.get("flag") or OWN_NAME
    return field.name if name == OWN_NAME else str(name).lstrip("-").replace("-", "_")


def not_for_scoring(search: Any) -> dict[str, dataclasses.Field[Any]]:
    """Return the options of a search (None: no search), by name, that declare ``scoring=False``."""
    fields = () if search is None else dataclasses.fields(search)
    return {field.name: field for field in fields if not field.metadata.get("scoring", True)}


def groups_of(config: type) -> dict[str, str]:
    """Return the groups of a section: by field, the role of its registry."""
    return {f.name: f.metadata["group"] for f in dataclasses.fields(config) if "group" in f.metadata}


def flags_of(config: type) -> list[Flag]:
    """Return every flag of a command, of its sections, and of each component that a group may hold.

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
    """Return every option of a section, also without a flag, and those of its sections and possible components."""
    return [*_walk(config, prefix)]


def _walk(config: type, prefix: str, *, with_flags_alone: bool = False) -> Iterator[Flag]:
    hints = hints_of(config)
    for field in own_first(config):
        facts, hint, key = field.metadata, hints[field.name], f"{prefix}{field.name}"
        name = facts.get("flag")
        if name or not (with_flags_alone or dataclasses.is_dataclass(hint) or "group" in facts):
            name = f"--{field.name.replace('_', '-')}" if name == OWN_NAME else name or f"{key}="
            default, kind = default_of(field), facts.get("kind") or _kind(hint)
            yield Flag(name, key, kind, facts.get("help", ""), default, facts.get("implied"), config, choices_of(hint))
        inside: list[type] = [typing.cast(type, hint)] if dataclasses.is_dataclass(hint) else []
        if "group" in facts:
            registry = registry_for(facts["group"])
            inside = [registry.config_class(name) for name in registry.names()]
        for part in inside:
            yield from _walk(part, f"{key}.", with_flags_alone=with_flags_alone)


@functools.cache
def hints_of(config: type) -> dict[str, Any]:
    """Return the annotations of a dataclass by field. Python needs a tenth of a millisecond to evaluate them."""
    return typing.get_type_hints(config)


def own_first(config: Any) -> list[dataclasses.Field[Any]]:
    """Return the fields of a dataclass or an instance. Keyword-only ones, which are mixed in, come last."""
    return sorted(dataclasses.fields(config), key=lambda field: field.kw_only is True)


def choices_of(hint: Any) -> tuple[str, ...]:
    """Return the words that an annotation with an enum allows, as users type them."""
    enums = [kind for kind in alternatives(hint) if isinstance(kind, type) and issubclass(kind, Enum)]
    return tuple(name for kind in enums for name in kind.__members__)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """Return the parts of a union; any other annotation is its only part."""
    return typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)


def _kind(hint: Any) -> FlagKind:
    if hint is bool:
        return FlagKind.switch
    choices = alternatives(hint)
    if any(choice in (list, tuple) or typing.get_origin(choice) in (list, tuple) for choice in choices):
        return FlagKind.many
    return FlagKind.text if {*choices} <= {str, type(None)} else FlagKind.plain


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Return a fresh copy of a field's default; None if it has none."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default
