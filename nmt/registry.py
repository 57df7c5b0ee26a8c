"""Names for components: one registry a role, one configuration type a name.

A component is a class or a function ("builder") that takes its configuration and finished parts. It registers itself
where it is defined, so adding one takes one file:

    @models.register("transformer", TransformerConfig)
    class Transformer(EncoderDecoder): ...

The options of a component whose file imports torch may stand beside it, in ``NAME_config.py``: ``declare`` makes them
known, and NAME is imported when one is built. So a page of help or a misspelt option is answered without torch.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from nmt.errors import UsageError, did_you_mean

T = TypeVar("T")
Builder = Callable[..., T]
BuilderType = TypeVar("BuilderType", bound=Callable[..., Any])
ConfigType = TypeVar("ConfigType", bound=type)

CONFIG = "_config"  # what the name of a module of options ends in


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What is known of one registered component."""

    name: str
    config: type
    builder: Builder[T]
    source: str  # the file that registered it


@dataclass(frozen=True)
class _Declared:
    """What is known of a component before its builder is imported."""

    config: type
    module: str  # registers the builder
    source: str  # the file that declared it


class Registry(Generic[T]):
    """The components of one role ("model", "criterion", ...), by name and by configuration type."""

    def __init__(self, role: str, base: type = object) -> None:
        """``base``: declares, with defaults, what is asked of the configurations of this role."""
        self.role = role
        self._base = base
        self._entries: dict[str, Entry[T]] = {}
        self._declared: dict[str, _Declared] = {}
        _registries[role] = self

    def declare(self, name: str) -> Callable[[ConfigType], ConfigType]:
        """A decorator of the dataclass in ``X_config.py``; the module ``X`` beside it registers the builder."""

        def file(config: ConfigType) -> ConfigType:
            module = config.__module__
            assert module.endswith(CONFIG), f"{config.__name__} of {self.role} '{name}' is declared in {module}"
            declared = _Declared(config, module.removesuffix(CONFIG), _source_file(config))
            self._refuse_clash(name, config, declared.source)
            self._complete(config)
            self._declared[name] = declared
            return config

        return file

    def register(self, name: str, config: type) -> Callable[[BuilderType], BuilderType]:
        """A decorator that files a builder under ``name``; ``config`` is the dataclass that it is built from."""
        if not dataclasses.is_dataclass(config):
            raise TypeError(f"the configuration of {self.role} '{name}' must be a dataclass, not {config!r}")

        def file(builder: BuilderType) -> BuilderType:
            entry: Entry[T] = Entry(name, config, builder, _source_file(builder))
            declared = self._declared.get(name)
            if declared is None or declared.config is not config or name in self._entries:
                self._refuse_clash(name, config, entry.source)
            self._complete(config)
            self._entries[name] = entry
            return builder

        return file

    def _refuse_clash(self, name: str, config: type, source: str) -> None:
        """One component has a name, and one component a configuration."""
        for other, known in self._known().items():
            if other == name:
                raise ValueError(f"{self.role} '{name}' is registered twice: in {known.source} and in {source}")
            if known.config is config:
                raise ValueError(f"{config.__name__} already configures {self.role} '{other}' ({known.source})")

    def _complete(self, config: type) -> None:
        """Give a configuration that does not extend the base what it lacks of it: a plug-in's need not extend it."""
        fields = {field.name for field in dataclasses.fields(config)}
        for name, default in vars(self._base).items():
            if not name.startswith("_") and name not in fields and not hasattr(config, name):
                setattr(config, name, default)

    def build(self, config: Any, /, *parts: Any, **named_parts: Any) -> T:
        """Build the component that ``config`` (an instance of a registered dataclass) describes."""
        return self.entry(self.name_of(type(config))).builder(config, *parts, **named_parts)

    def name_of(self, config: type) -> str:
        for name, known in self._known().items():
            if known.config is config:
                return name
        raise UsageError(f"no {self.role} is registered for the configuration {config.__name__}")

    def config_class(self, name: str) -> type:
        known = self._known()
        if name not in known:
            raise UsageError(
                f"unknown {self.role} '{name}'{did_you_mean(name, known)}; there are: "
                f"{', '.join(self.names())}. A plugin's components need it: --user-dir PATH"
            )
        return known[name].config

    def entry(self, name: str) -> Entry[T]:
        """With its builder, which is imported now if it was only declared."""
        self.config_class(name)
        if name not in self._entries:
            importlib.import_module(self._declared[name].module)
        return self._entries[name]

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._known()))

    def _known(self) -> dict[str, Entry[T] | _Declared]:
        return {**self._declared, **self._entries}


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


def import_all(package: str, path: Iterable[str], ending: str = "") -> None:
    """Import every module of a package, or those whose names have an ending, so that its components make themselves
    known: there is no list to edit."""
    for module in pkgutil.iter_modules(path):
        if module.name.endswith(ending):
            importlib.import_module(f"{package}.{module.name}")


def import_configs(package: str, path: Iterable[str]) -> None:
    """Import the modules of options alone, which declare the components of a package."""
    import_all(package, path, ending=CONFIG)


def _source_file(part: Callable[..., Any]) -> str:
    try:
        return inspect.getsourcefile(part) or "<unknown>"
    except TypeError:
        return "<unknown>"
