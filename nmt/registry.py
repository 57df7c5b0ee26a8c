"""Names for components: one registry a role, one configuration type a name.

A component is a class or a function ("builder") that takes its configuration and finished parts. It registers itself
where it is defined, so adding one takes one file:

    @models.register("transformer", TransformerConfig)
    class Transformer(EncoderDecoder): ...
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, is_dataclass
from typing import Any, Generic, TypeVar

from nmt.errors import UsageError, did_you_mean

T = TypeVar("T")
Builder = Callable[..., T]
BuilderType = TypeVar("BuilderType", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What is known of one registered component."""

    name: str
    config: type
    builder: Builder[T]
    source: str  # the file that registered it


class Registry(Generic[T]):
    """The components of one role ("model", "criterion", ...), by name and by configuration type."""

    def __init__(self, role: str) -> None:
        self.role = role
        self._entries: dict[str, Entry[T]] = {}
        _registries[role] = self

    def register(self, name: str, config: type) -> Callable[[BuilderType], BuilderType]:
        """A decorator that files a builder under ``name``; ``config`` is the dataclass that it is built from."""
        if not is_dataclass(config):
            raise TypeError(f"the configuration of {self.role} '{name}' must be a dataclass, not {config!r}")

        def file(builder: BuilderType) -> BuilderType:
            entry: Entry[T] = Entry(name, config, builder, _source_file(builder))
            for other in self._entries.values():
                if other.name == name:
                    raise ValueError(
                        f"{self.role} '{name}' is registered twice: in {other.source} and in {entry.source}"
                    )
                if other.config is config:
                    raise ValueError(
                        f"{config.__name__} already configures {self.role} '{other.name}' ({other.source})"
                    )
            self._entries[name] = entry
            return builder

        return file

    def build(self, config: Any, /, *parts: Any, **named_parts: Any) -> T:
        """Build the component that ``config`` (an instance of a registered dataclass) describes."""
        name = self.name_of(type(config))
        return self._entries[name].builder(config, *parts, **named_parts)

    def name_of(self, config: type) -> str:
        for entry in self._entries.values():
            if entry.config is config:
                return entry.name
        raise UsageError(f"no {self.role} is registered for the configuration {config.__name__}")

    def config_class(self, name: str) -> type:
        return self._entry(name).config

    def entry(self, name: str) -> Entry[T]:
        return self._entry(name)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))

    def _entry(self, name: str) -> Entry[T]:
        if name not in self._entries:
            raise UsageError(
                f"unknown {self.role} '{name}'{did_you_mean(name, self._entries)}; there are: "
                f"{', '.join(self.names())}. A plugin's components need it: --user-dir PATH"
            )
        return self._entries[name]


_registries: dict[str, Registry[Any]] = {}


def registry_for(role: str) -> Registry[Any]:
    """The registry of a role; its package must have been imported."""
    return _registries[role]


def registered_name(config: type) -> str | None:
    """The name under which a configuration type is registered in any registry, or None."""
    for registry in _registries.values():
        for name in registry.names():
            if registry.config_class(name) is config:
                return name
    return None


def import_all(package: str, path: Iterable[str]) -> None:
    """Import every module of a package, so that its components register themselves: there is no list to edit."""
    for module in pkgutil.iter_modules(path):
        importlib.import_module(f"{package}.{module.name}")


def _source_file(builder: Callable[..., Any]) -> str:
    try:
        return inspect.getsourcefile(builder) or "<unknown>"
    except TypeError:
        return "<unknown>"
