"""Handing our schemas to Hydra, just before it composes a configuration.

Components register in our own registries, which refuse duplicates; Hydra's ConfigStore overwrites in silence. So
nothing is stored at import: ``publish`` copies everything there at once. Only this module and ``nmt_cli`` know Hydra.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

from nmt.config.option import groups_of
from nmt.config.presets import refuse_clashes
from nmt.registry import registry_for

CONFIG_PATH = "pkg://nmt.conf"

_plugin_folders: list[Path] = []


class PluginPresets(SearchPathPlugin):
    """Adds the ``conf/`` folders of plugins to where Hydra looks for presets, after our own."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        for folder in _plugin_folders:
            search_path.append(provider="nmt plugin", path=f"file://{folder}")


def publish(command: str, config_class: type, plugin_folders: Sequence[Path] = ()) -> None:
    """Store a command's schema (``train_schema``) and those of its components."""
    refuse_clashes(plugin_folders)
    _plugin_folders[:] = plugin_folders
    Plugins.instance().register(PluginPresets)
    store = ConfigStore.instance()
    store.store(name=f"{command}_schema", node=config_class)
    for role in groups_of(config_class).values():
        registry = registry_for(role)
        for name in registry.names():
            store.store(group=role, name=name, node=registry.config_class(name))
