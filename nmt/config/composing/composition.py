"""The one composition of options: assignments, folders of presets and a base become the dataclass of a command.

Every entry uses it: the command line, each job of a sweep, ``--help``, ``--cfg job``, ``--config`` and the keyword arguments
of the Python API. It has two stages. Hydra composes the chosen presets to a plain tree, where each component has its name.
Then the assignments are put into the tree, interpolations are resolved, and every value is converted to its declared type.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from nmt.config.composing.assignments import SEARCH_PATH, Assignment
from nmt.config.composing.presets import Base, component_names, default_presets, unknown_preset
from nmt.config.composing.refusals import as_typed, unknown_key, wrong_value
from nmt.config.option import default_of, flags_of, hints_of
from nmt.config.plain import WrongValue, component_from_plain, convert, flattened, from_text, put, to_plain
from nmt.errors import NMTError, UsageError, did_you_mean, numbered
from nmt.registry import registry_for

Config = TypeVar("Config")
Tree = dict[str, Any]
MOST_NAMES = 60  # of options in a message


@dataclass(frozen=True)
class Presets:
    """The first stage: what each group is set to, and the values that the presets state."""

    choices: Mapping[str, str | None]  # by group: a preset or a component; None: an instance, or nothing
    tree: Mapping[str, Any]

    def component(self, group: str) -> str | None:
        section = self.tree.get(group)
        return section.get("name") if isinstance(section, dict) else None

    def value(self, key: str, default: Any) -> Any:
        """Return the value that the presets state for an option."""
        return _get(self.tree, key, default)


@dataclass(frozen=True)
class Composition:
    """The options of a command, and what they were composed from."""

    config: Any
    choices: Mapping[str, str | None]
    interpolations: Mapping[str, Any]  # by key: values with ``${...}``, which ``config`` holds resolved


@dataclass(frozen=True)
class DeclaredOption:
    """The declaration of the option that a key names."""

    hint: Any  # its annotation
    default: Any = None


def compose(
    config_class: type,
    assignments: Sequence[Assignment] = (),
    folders: Sequence[Path] = (),
    base: Base = Base(),  # noqa: B008 - it is frozen
    origin: str = "the presets",
) -> Composition:
    """Compose the options ``config_class``. All sections are checked, and their refusals are reported together.

    ``folders`` hold presets of plugins and of the user. ``origin``: where values come from that no text gives, for messages.
    """
    draft = Draft(config_class, assignments, folders, base)
    draft.require_values()
    draft.resolve(draft.interpolations)
    return Composition(draft.build(origin), draft.presets.choices, draft.interpolations)


def check(config_class: type, assignments: Sequence[Assignment], folders: Sequence[Path], base: Base) -> None:
    """Refuse keys that do not exist and values of a wrong type in a sweep, before its first job. Options of swept components
    are left to the jobs. No section is checked, because its rules may concern swept options."""
    swept_groups = default_presets(config_class).keys() & {a.key for a in assignments if a.is_sweep}
    known = [assignment for assignment in assignments if assignment.key.partition(".")[0] not in swept_groups]
    draft = Draft(config_class, [assignment for assignment in known if not assignment.is_sweep], folders, base)
    draft.refuse_wrong_types()
    for assignment in known:
        if assignment.is_sweep and not assignment.of_hydra:
            draft.refuse_wrong_sweep(assignment)


def unchecked(
    config_class: type, key: str, assignments: Sequence[Assignment], folders: Sequence[Path], base: Base
) -> Any:
    """Return the value of one option as a plain value, before any section is checked."""
    draft = Draft(config_class, assignments, folders, base)
    draft.resolve([key])
    return draft.value(key)


def chosen_presets(
    config_class: type,
    assignments: Sequence[Assignment] = (),
    folders: Sequence[Path] = (),
    base: Base = Base(),  # noqa: B008 - it is frozen
) -> Presets:
    """Compose the presets alone. The first value counts in a sweep over presets."""
    defaults = default_presets(config_class)
    values = {group: _choice(group, assignment) for assignment in assignments if (group := assignment.key) in defaults}
    names = {group: value for group, value in values.items() if isinstance(value, str)}
    instances = {group: to_plain(value) for group, value in values.items() if not isinstance(value, (str, type(None)))}
    without_preset = dict.fromkeys([group for group in defaults if group in base.tree or group in instances])
    choices = defaults | without_preset | names
    search_path = [str(assignment.text) for assignment in assignments if assignment.key == SEARCH_PATH]
    if base.primary is None and all(name is None or name in component_names(group) for group, name in choices.items()):
        components = {group: {"name": name} for group, name in choices.items() if name is not None}
        return Presets(choices, {**base.tree, **components, **instances})
    from nmt.config.composing.hydra_bridge import compose_presets  # takes 0.1 s to import; only presets need it

    composed, tree = compose_presets(config_class, names, folders, base, search_path)
    return Presets(composed | dict.fromkeys(instances), tree | instances)


def preset(group: str, name: str, folders: Sequence[Path] = ()) -> Tree:
    """Return what a preset of a group states: the name of its component, and values."""
    if name in component_names(group):
        return {"name": name}
    from nmt.config.composing.hydra_bridge import compose_preset

    return compose_preset(group, name, folders)


def from_keywords(
    config_class: type[Config],
    keywords: Mapping[str, Any],
    called: str,
    names: Collection[str] | None = None,
    folders: Sequence[Path] = (),
    **own: Any,
) -> Config:
    """Compose options from keyword arguments of the function ``called``. A group takes a preset's name or a dataclass.

    A keyword is a field, a key, or a flag with underscores. ``names``: the options that the function takes, if not all;
    ``own``: options that it sets itself.
    """
    if names is None:
        keys = keys_by_keyword(config_class) | {name: name for name in keywords if "." in name}
    else:
        keys = {name: name for name in names}
    assignments = assigned(keywords, keys, called) + [Assignment(key, to_plain(value)) for key, value in own.items()]
    config: Config = compose(config_class, assignments, folders, origin=called).config
    return config


def keys_by_keyword(config_class: type) -> dict[str, str]:
    """Return the keys of options by Python keyword: a field, or a flag with underscores."""
    fields = {field.name: field.name for field in dataclasses.fields(config_class)}
    return {flag.name.lstrip("-").replace("-", "_"): flag.key for flag in flags_of(config_class)} | fields


def assigned(keywords: Mapping[str, Any], keys: Mapping[str, str], called: str) -> list[Assignment]:
    """Return the assignments that keyword arguments of the function ``called`` stand for. ``keys``: keys of options by
    keyword."""
    for name in keywords:
        if name not in keys:
            listed = f"; there are: {', '.join(keys)}" if len(keys) <= MOST_NAMES else ""
            raise UsageError(f"{called} has no option '{name}'{did_you_mean(name, keys)}{listed}")
    return [Assignment(keys[name], to_plain(value)) for name, value in keywords.items()]


def find_option(config_class: type, key: str, tree: Mapping[str, Any]) -> DeclaredOption | None:
    """Return the option that ``key`` names, given the components that ``tree`` chooses; None if it does not exist."""
    name, _, rest = key.partition(".")
    field = {field.name: field for field in dataclasses.fields(config_class)}.get(name)
    if field is None:
        return None
    hint = hints_of(config_class)[name]
    if not rest:
        return DeclaredOption(hint, default_of(field))
    if "group" in field.metadata:
        section = tree.get(name)
        component = section.get("name") if isinstance(section, dict) else None
        inner = None if component is None else registry_for(field.metadata["group"]).config_class(component)
        return None if inner is None else find_option(inner, rest, {})
    if dataclasses.is_dataclass(hint):
        return find_option(typing.cast(type, hint), rest, {})
    return DeclaredOption(typing.get_args(hint)[1]) if typing.get_origin(hint) is dict else None


class Draft:
    """Options as a plain tree that becomes complete."""

    def __init__(
        self, config_class: type, assignments: Sequence[Assignment], folders: Sequence[Path], base: Base
    ) -> None:
        self._config_class = config_class
        groups = default_presets(config_class)
        ours = [assignment for assignment in assignments if not assignment.of_hydra]
        for assignment in ours:
            if assignment.is_sweep:
                advice = "" if assignment.key in groups else ", or write [a,b] for a list, or quote the value"
                raise UsageError(f"{assignment.text} gives several values: add --multirun to run each of them{advice}")
        self.presets = chosen_presets(config_class, assignments, folders, base)
        self.tree: Tree = to_plain(dict(self.presets.tree))
        self._hints: dict[str, Any] = {}  # of options whose value is text, by key
        for assignment in ours:
            if assignment.key not in groups:
                self._assign(assignment.key, assignment.value, from_text=assignment.text is not None)
        self.interpolations = {key: value for key, value in flattened(self.tree).items() if "${" in str(value)}

    def require_values(self) -> None:
        """Refuse values that a preset or an assignment leaves open with ``???``, as OmegaConf writes it."""
        missing = sorted(key for key, value in flattened(self.tree).items() if value == "???")
        if missing:
            raise UsageError(f"no value for {', '.join(missing)}; give {missing[0]}=VALUE")

    def resolve(self, keys: Iterable[str]) -> None:
        """Resolve the interpolations ``${...}`` of these options."""
        requested = {*keys}
        keys = [key for key in self.interpolations if key in requested]
        if not keys:
            return
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        whole = OmegaConf.create(_complete(self._config_class, self.tree))
        for key in keys:
            try:
                resolved = OmegaConf.select(whole, key)
                if OmegaConf.is_config(resolved):
                    resolved = OmegaConf.to_container(resolved, resolve=True)
            except OmegaConfBaseException as error:
                reason = str(error).strip().splitlines()[0]
                value = as_typed(self.interpolations[key])
                raise UsageError(f"{key}={value} cannot be resolved: {reason}") from None
            put(self.tree, key, resolved)

    def value(self, key: str) -> Any:
        if key in self._hints:
            return from_text(self._hints[key], _get(self.tree, key))
        option = find_option(self._config_class, key, self.tree)
        return _get(self.tree, key, None if option is None else to_plain(option.default))

    def refuse_wrong_types(self) -> None:
        for key, hint in self._hints.items():
            if key not in self.interpolations:
                self._refuse_wrong_type(key, hint, self.value(key))

    def refuse_wrong_sweep(self, assignment: Assignment) -> None:
        """Refuse a sweep over an option that does not exist, or with a value of a wrong type."""
        option = find_option(self._config_class, assignment.key, self.tree)
        if option is None:
            raise UsageError(unknown_key(assignment.key, self._config_class))
        self._hints[assignment.key] = option.hint
        for value in assignment.sweep or ():
            if "${" not in str(value) and not isinstance(value, dict):
                self._refuse_wrong_type(assignment.key, option.hint, from_text(option.hint, value))

    def _refuse_wrong_type(self, key: str, hint: Any, value: Any) -> None:
        try:
            convert(hint, value, origin="", where=key)
        except WrongValue as error:
            raise UsageError(self._refusal(error)) from None

    def build(self, origin: str) -> Any:
        values: Tree = {}
        for key in self._hints:
            put(self.tree, key, self.value(key))
        self.tree = _complete(self._config_class, self.tree)  # defaults are converted too: 1 becomes 1.0
        refusals = [unknown_key(key, self._config_class) for key in self._unknown()]
        for field in dataclasses.fields(self._config_class):
            if field.name in self.tree:
                try:
                    values[field.name] = self._field(field, origin)
                except WrongValue as error:
                    refusals.append(self._refusal(error))
                except NMTError as error:
                    refusals.append(str(error))
        if refusals:
            raise UsageError(numbered(refusals))
        return self._config_class(**values)

    def _assign(self, key: str, value: Any, *, from_text: bool) -> None:
        names = key.split(".")
        for end in range(1, len(names)):
            mapping = find_option(self._config_class, ".".join(names[:end]), self.tree)
            if mapping is not None and mapping.hint == dict[str, Any]:  # options of another command: keys with dots
                key, value = ".".join(names[:end]), {".".join(names[end:]): value}
                break
        option = find_option(self._config_class, key, self.tree)
        if option is None:
            raise UsageError(unknown_key(key, self._config_class))
        if isinstance(value, dict) and dataclasses.is_dataclass(option.hint):
            for name, item in value.items():
                self._assign(f"{key}.{name}", item, from_text=from_text)
            return
        parent = key.rpartition(".")[0]
        mapping = find_option(self._config_class, parent, self.tree) if parent else None
        for name, owner in ((parent, mapping), (key, option)):  # a mapping keeps names that the assignment leaves out
            if owner is not None and typing.get_origin(owner.hint) is dict and _get(self.tree, name) is None:
                put(self.tree, name, to_plain(owner.default))
        before = _get(self.tree, key)
        put(self.tree, key, before | value if isinstance(before, dict) and isinstance(value, dict) else value)
        if from_text:
            self._hints[key] = option.hint

    def _unknown(self) -> Iterator[str]:
        """Return keys of the base or a preset that the command does not have."""
        names = {field.name for field in dataclasses.fields(self._config_class)}
        return (key for key in self.tree if key not in names)

    def _field(self, field: dataclasses.Field[Any], origin: str) -> Any:
        value = self.tree[field.name]
        if "group" not in field.metadata:
            hint = hints_of(self._config_class)[field.name]
            return convert(hint, value, origin=origin, where=field.name)
        if value is None:
            return None
        role, user_dir = field.metadata["group"], self.tree.get("user_dir")
        return component_from_plain(role, value, origin=origin, user_dir=user_dir)

    def _refusal(self, error: WrongValue) -> str:
        is_text = any(error.key == key or error.key.startswith((f"{key}[", f"{key}.")) for key in self._hints)
        if not is_text:
            return str(error)
        return wrong_value(error.key, as_typed(error.value), error.value, error.hint, self._config_class)


def _choice(group: str, assignment: Assignment) -> Any:
    """Return what an assignment sets a group to: a name, or the options of a component as a dataclass or a mapping."""
    value = assignment.value
    if assignment.text is not None and not assignment.is_sweep and not (isinstance(value, str) and value):
        raise unknown_preset(group, "")
    return value


def _complete(config_class: type, tree: Mapping[str, Any]) -> Tree:
    """Return a plain tree with the defaults of every option that ``tree`` leaves out."""
    whole = dict(tree)
    hints = hints_of(config_class)
    for field in dataclasses.fields(config_class):
        value = tree.get(field.name)
        if "group" in field.metadata and isinstance(value, dict):
            component = registry_for(field.metadata["group"]).config_class(value["name"])
            whole[field.name] = _complete(component, value)
        elif dataclasses.is_dataclass(hints[field.name]) and isinstance(tree.get(field.name, {}), dict):
            whole[field.name] = _complete(typing.cast(type, hints[field.name]), value or {})
        else:
            whole.setdefault(field.name, to_plain(default_of(field)))
    return whole


def _get(tree: Mapping[str, Any], key: str, default: Any = None) -> Any:
    node: Any = tree
    for name in key.split("."):
        if not isinstance(node, dict) or name not in node:
            return default
        node = node[name]
    return node
