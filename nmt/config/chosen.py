"""What a command line chooses: the component of each group, and the values that presets and the recipe give.

Hydra composes the same, but reads every file many times; a page of help reads the few files that are chosen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nmt.config.presets import CONF, RECIPE, default_choices, schema_names, unknown_preset


@dataclass(frozen=True)
class Chosen:
    """Names of presets and of their components by group (None: nothing is chosen), and values by key."""

    presets: Mapping[str, str | None]
    components: Mapping[str, str | None]
    values: Mapping[str, Any]


@dataclass
class Preset:
    """A preset with all that it inherits."""

    component: str | None = None
    values: dict[str, Any] = field(default_factory=dict)  # by key within the group
    groups: dict[str, str | None] = field(default_factory=dict)  # of a recipe: what it chooses

    def inherit(self, other: Preset) -> None:
        self.component = other.component
        self.values |= other.values
        self.groups |= other.groups


def chosen(command: str, overrides: Sequence[str] = (), folders: Sequence[Path] = ()) -> Chosen:
    """What ``overrides`` (``model=lstm_luong``) choose; ``folders`` hold presets beside our own."""
    presets = default_choices(command)
    said = dict(_said(overrides, presets))
    recipe = Preset()
    if (name := said.get(RECIPE, presets.get(RECIPE))) is not None:
        recipe = read_preset(RECIPE, name, folders)
    presets |= recipe.groups | said
    components: dict[str, str | None] = {}
    values: dict[str, Any] = {}
    for group, name in presets.items():
        if group != RECIPE:
            preset = Preset() if name is None else read_preset(group, name, folders)
            components[group] = preset.component
            values |= {f"{group}.{key}": value for key, value in preset.values.items()}
    return Chosen(presets, components, values | recipe.values)


def _said(overrides: Sequence[str], groups: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """The overrides that choose; of several values (a sweep) the first."""
    for override in overrides:
        group, equals, value = override.lstrip("+").partition("=")
        if equals and group in groups:
            name = value.strip("[]").split(",")[0].strip("'\" ")
            yield group, None if name in ("", "null") else name


def read_preset(group: str, name: str, folders: Sequence[Path]) -> Preset:
    """A preset and what its defaults list names, in Hydra's order: later values count."""
    file = next((path for folder in (CONF, *folders) if (path := folder / group / f"{name}.yaml").is_file()), None)
    if file is None:
        if name not in schema_names(group):
            raise unknown_preset(group, name, folders)
        return Preset(component=name)
    tree = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(tree, dict), f"{file} is not a mapping"
    defaults = list(tree.pop("defaults", []))
    own = {str(key): value for key, value in tree.items()}
    preset = Preset()
    for entry in defaults if "_self_" in defaults else [*defaults, "_self_"]:
        if entry == "_self_":
            preset.values |= dict(_flat(own))
        elif isinstance(entry, str):
            preset.inherit(read_preset(group, entry, folders))
        else:
            preset.groups |= {key.removeprefix("override ").strip("/ "): choice for key, choice in entry.items()}
    return preset


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
