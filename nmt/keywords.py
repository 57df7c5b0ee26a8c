"""The options of Python functions that do the same as a command: keyword arguments, or the dataclass of the command."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from nmt.config.composing.composition import from_keywords, preset
from nmt.config.composing.presets import default_presets
from nmt.config.option import groups_of
from nmt.config.plain import component_from_plain
from nmt.errors import UsageError
from nmt.plugins import load_plugins, preset_folders

Config = TypeVar("Config")


def configured(config_class: type[Config], config: Config | None, options: Mapping[str, Any], called: str) -> Config:
    """Return ``config``, or the configuration made from keyword arguments, after loading the plugins of ``user_dir``.

    Keyword arguments are named like flags or keys; the value of a group is the name of a preset. ``called``: the function,
    for messages.
    """
    if (config is None) == (not options):
        raise UsageError(f"{called} takes a dataclass of options or keyword arguments; give one of the two")
    if config is not None:
        return config
    load_plugins(options.get("user_dir"))
    return from_keywords(config_class, options, called, folders=preset_folders())


def with_default_components(config: Config) -> Config:
    """Return the options with the default component of the command for each group that holds None."""
    load_plugins(getattr(config, "user_dir", None))
    names, groups, folders = default_presets(type(config)), groups_of(type(config)), preset_folders()
    chosen = {field: name for field in groups if (name := names[field]) is not None and getattr(config, field) is None}
    components = {
        field: component_from_plain(groups[field], preset(groups[field], name, folders), origin=f"the preset {name}")
        for field, name in chosen.items()
    }
    return dataclasses.replace(config, **components)  # type: ignore[type-var]
