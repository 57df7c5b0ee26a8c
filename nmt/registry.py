"""Names for components: one registry a role, one configuration type a name.

A component is a class or a function ("builder") that takes its configuration and finished parts. It registers itself
where it is defined, so adding one takes one file:

    @models.register("transformer", TransformerConfig)
    class Transformer(EncoderDecoder): ...

The options of a component whose file imports torch may stand beside it, in ``NAME_config.py``, or in the ``config.py`` of
a whole family: ``declare`` makes them known, and the module that builds is imported when one is built. So a page of help
or a misspelt option is answered without torch.
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

CONFIG = "config"  # what the name of a module of options ends in


@dataclass(frozen=True)
class Entry(Generic[T]):
    """What is known of one component."""

    config: type
    source: str  # the file that declared it, or registered it
    module: str = ""  # registers the builder of a declared component when it is imported
    builder: Builder[T] | None = None  # None: declared, and not imported yet


class Registry(Generic[T]):
    """The components of one role ("model", "criterion", ...), by name and by configuration type."""

    def __init__(self, role: str, base: type = object) -> None:
        """``base``: declares, with defaults, what is asked of the configurations of this role."""
        self.role = role
        self._base = base
        self._entries: dict[str, Entry[T]] = {}
        _registries[role] = self

    def declare(self, name: str, builder: str = "") -> Callable[[ConfigType], ConfigType]:
        """A decorator of the dataclass in ``X_config.py`` or ``config.py``. ``builder``: the module beside it that registers
        what is built; left out, it is ``X``."""

        def file(config: ConfigType) -> ConfigType:
            package, _, module = config.__module__.rpartition(".")
            assert builder or module.endswith(f"_{CONFIG}"), (
                f"{self.role} '{name}' of {module}: which module builds it?"
            )
            beside = builder or module.removesuffix(f"_{CONFIG}")
            self._file(name, Entry(config, _source_file(config), f"{package}.{beside}".lstrip(".")))
            return config

        return file

    def register(self, name: str, config: type) -> Callable[[BuilderType], BuilderType]:
        """A decorator that files a builder under ``name``; ``config`` is the dataclass that it is built from."""
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
        """One component has a name, and one component a configuration."""
        for other, known in self._entries.items():
            if other == name:
                raise ValueError(f"{self.role} '{name}' is registered twice: in {known.source} and in {entry.source}")
            if known.config is entry.config:
                raise ValueError(f"{known.config.__name__} already configures {self.role} '{other}' ({known.source})")
        fields = {field.name for field in dataclasses.fields(entry.config)}
        for fact, default in vars(self._base).items():  # a plug-in's configuration need not extend the base
            if not fact.startswith("_") and fact not in fields and not hasattr(entry.config, fact):
                setattr(entry.config, fact, default)
        self._entries[name] = entry

    def build(self, config: Any, /, *parts: Any, **named_parts: Any) -> T:
        """Build the component that ``config`` (an instance of a registered dataclass) describes."""
        return self.builder(type(config))(config, *parts, **named_parts)

    def builder(self, config: type) -> Builder[T]:
        """What makes the component of this configuration. Its module is imported now if it was only declared."""
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
                f"{', '.join(self.names())}. A plugin's components need it: --user-dir PATH"
            )
        return self._entries[name].config

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._entries))


_registries: dict[str, Registry[Any]] = {}


def registry_for(role: str) -> Registry[Any]:
    """The registry of a role; its package must have been imported."""
    return _registries[role]


def registered_name(config: type) -> str | None:
    """The name under which a configuration type is registered in any registry, or None."""
    entries = [pair for registry in _registries.values() for pair in registry._entries.items()]
    return next((name for name, entry in entries if entry.config is config), None)


def import_all(package: str, path: Iterable[str], ending: str | tuple[str, ...] = "") -> None:
    """Import all modules of a package and of those inside it, so that its components make themselves known without a
    list to edit; ``ending``: only those whose names end so."""
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
