"""Registries of components: one registry for each role, one configuration type for each name.

The builder of a component is a class or function that takes its configuration and finished parts. It registers itself in
its own file, so a new component needs one file:

    @models.register("transformer", TransformerConfig)
    class Transformer(EncoderDecoder): ...

If the file of a component imports torch, its options may be in a separate file: ``NAME_config.py`` in the same folder,
or the ``config.py`` of a family. ``declare`` registers the options; the builder's module is imported when a component is
built. So help pages and errors about options need no torch.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from nmt.errors import UsageError, did_you_mean

T = TypeVar("T")
Builder = Callable[..., T]
BuilderType = TypeVar("BuilderType", bound=Callable[..., Any])
ConfigType = TypeVar("ConfigType", bound=type)

CONFIG = "config"  # ending of the names of modules with options


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A declared or registered component."""

    config: type
    source: str  # the file that declared it, or registered it
    module: str = ""  # registers the builder of a declared component when it is imported
    builder: Builder[T] | None = None  # None: declared, but not imported yet


class Registry(Generic[T]):
    """The components of one role ("model", "criterion", ...), by name and by configuration type."""

    def __init__(self, role: str, base: type = object) -> None:
        """``base`` declares the attributes, with defaults, that the program reads from configurations of this role."""
        self.role = role
        self._base = base
        self._entries: dict[str, Entry[T]] = {}
        _registries[role] = self

    def declare(self, name: str, builder: str = "") -> Callable[[ConfigType], ConfigType]:
        """Return a decorator for the dataclass in ``X_config.py`` or ``config.py``.

        ``builder``: the module in the same folder that registers the builder; empty: ``X``.
        """

        def file(config: ConfigType) -> ConfigType:
            package, _, module = config.__module__.rpartition(".")
            assert builder or module.endswith(f"_{CONFIG}"), (
                f"{self.role} '{name}' of {module}: which module builds it?"
            )
            builder_module = builder or module.removesuffix(f"_{CONFIG}")
            self._file(name, Entry(config, _source_file(config), f"{package}.{builder_module}".lstrip(".")))
            return config

        return file

    def register(self, name: str, config: type) -> Callable[[BuilderType], BuilderType]:
        """Return a decorator that registers a builder by ``name``; ``config``: the dataclass of its options."""
        if not dataclasses.is_dataclass(config):
            raise TypeError(f"the configuration of {self.role} '{name}' must be a dataclass, not {config!r}")

        def file(builder: BuilderType) -> BuilderType:
            declared = self._entries.get(name)
            if declared is not None and declared.config is config and declared.builder is None:
                self._entries[name] = replace(declared, builder=builder)
            else:
                self._file(name, Entry(config, _source_file(builder), builder=builder))
            return builder

        return file

    def _file(self, name: str, entry: Entry[T]) -> None:
        """Add an entry; refuse a name or a configuration type that is already registered."""
        for other, known in self._entries.items():
            if other == name:
                raise ValueError(f"{self.role} '{name}' is registered twice: in {known.source} and in {entry.source}")
            if known.config is entry.config:
                raise ValueError(f"{known.config.__name__} already configures {self.role} '{other}' ({known.source})")
        fields = {field.name for field in dataclasses.fields(entry.config)}
        for fact, default in vars(self._base).items():  # a plugin's configuration need not extend the base
            if not fact.startswith("_") and fact not in fields and not hasattr(entry.config, fact):
                setattr(entry.config, fact, default)
        self._entries[name] = entry

    def build(self, config: Any, /, *parts: Any, **named_parts: Any) -> T:
        """Build the component that ``config`` (an instance of a registered dataclass) describes."""
        return self.builder(type(config))(config, *parts, **named_parts)

    def builder(self, config: type) -> Builder[T]:
        """Return the builder for a configuration type; import its module if it was only declared."""
        name = self.name_of(config)
        if self._entries[name].builder is None:
            importlib.import_module(self._entries[name].module)
        builder = self._entries[name].builder
        assert builder is not None, f"{self._entries[name].module} does not register {self.role} '{name}'"
        return builder

    def name_of(self, config: type) -> str:
        for name, known in self._entries.items():
            if known.config is config:
                return name
        raise UsageError(f"no {self.role} is registered for the configuration {config.__name__}")

    def config_class(self, name: str) -> type:
        if name not in self._entries:
            raise UsageError(
                f"unknown {self.role} '{name}'{did_you_mean(name, self._entries)}; there are: "
                f"{', '.join(self.names()) or 'none'}; for a component of a plugin, add --user-dir PATH"
            )
        return self._entries[name].config

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))


_registries: dict[str, Registry[Any]] = {}


def registry_for(role: str) -> Registry[Any]:
    """Return the registry of a role; its package must have been imported."""
    return _registries[role]


def registered_name(config: type) -> str | None:
    """Return the registered name of a configuration type in any registry, or None."""
    entries = [pair for registry in _registries.values() for pair in registry._entries.items()]
    return next((name for name, entry in entries if entry.config is config), None)


def import_all(package: str, path: Iterable[str], ending: str | tuple[str, ...] = "") -> None:
    """Import all modules of a package and its subpackages, so that their components register themselves.

    ``ending``: import only modules whose names end so; components in other files must be declared, or stay unknown.
    """
    for module in pkgutil.iter_modules(path):
        name = f"{package}.{module.name}"
        if module.ispkg:
            import_all(name, importlib.import_module(name).__path__, ending)
        elif module.name.endswith(ending):
            importlib.import_module(name)


def _source_file(part: Callable[..., Any]) -> str:
    try:
        return inspect.getsourcefile(part) or "<unknown>"
    except TypeError:
        return "<unknown>"
