"""Handing our schemas to Hydra, just before it composes a configuration.

Components register in our own registries, which refuse duplicates; Hydra's ConfigStore overwrites in silence. So
nothing is stored at import: ``publish`` copies everything there at once. Only this module and ``nmt_cli`` know Hydra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf

from nmt.config.option import groups_of
from nmt.config.presets import CONF, refuse_clashes
from nmt.registry import registry_for

CONFIG_PATH = "pkg://nmt.conf"
STORED = "_stored_"  # what a group holds that a file chose, in place of a preset's name

_plugin_folders: list[Path] = []


class PluginPresets(SearchPathPlugin):
    """Adds the ``conf/`` folders of plugins to where Hydra looks for presets, after our own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in _plugin_folders:
            search_path.append(provider="nmt plugin", path=f"file://{folder}")


@dataclass(frozen=True)
class Defaults:
    """What a file has in place of a command's defaults. Presets, recipes and overrides change it as they change those."""

    components: Mapping[str, Any] = field(default_factory=dict)  # by group: an instance of its dataclass; None: nothing
    values: Mapping[str, Any] = field(default_factory=dict)  # of all other options, as a plain tree


def publish(
    command: str, config_class: type, plugin_folders: Sequence[Path] = (), defaults: Defaults | None = None
) -> str:
    """Store a command's schema (``train_schema``) and those of its components. The name of the primary config."""
    refuse_clashes(plugin_folders)
    _plugin_folders[:] = plugin_folders
    Plugins.instance().register(PluginPresets)
    store = ConfigStore.instance()
    store.store(name=f"{command}_schema", node=config_class)
    for role in groups_of(config_class).values():
        registry = registry_for(role)
        for name in registry.names():
            store.store(group=role, name=name, node=registry.config_class(name))
    return command if defaults is None else _publish_defaults(command, defaults)


def _publish_defaults(command: str, defaults: Defaults) -> str:
    """A primary config like the command's own, whose defaults list names what was stored here."""
    store, primary = ConfigStore.instance(), f"{STORED}{command}"
    own: Any = OmegaConf.to_container(OmegaConf.load(CONF / f"{command}.yaml"))
    choices = {group: None if component is None else STORED for group, component in defaults.components.items()}
    for group, component in defaults.components.items():
        if component is not None:
            store.store(group=group, name=STORED, node=component)
    listed: list[Any] = []
    for entry in own["defaults"]:
        if isinstance(entry, dict):  # the choice of one group
            entry = {group: choices.get(group, choice) for group, choice in entry.items()}
        listed.append(entry)
        if entry == "_self_":
            listed.append(f"{STORED}values")
    store.store(name=f"{STORED}values", node=dict(defaults.values))
    store.store(name=primary, node=own | {"defaults": listed})
    return primary
