"""What a file has in place of a command's defaults: a whole configuration (``--config``). It needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.config.option import groups_of
from nmt.config.plain import component_from_plain, from_plain
from nmt.config.publish import Defaults
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.run_folder import CONFIG
from nmt_cli.argv import CommandLine


@dataclass(frozen=True)
class ConfigFile:
    """A configuration as a run stores it, or as ``--cfg job`` prints it."""

    path: Path
    tree: dict[str, Any]

    @classmethod
    def read(cls, given: str) -> ConfigFile:
        """A file, or the folder of a run or a checkpoint with its ``config.yaml``."""
        path = Path(given).expanduser()
        path = path / CONFIG if path.is_dir() else path
        if not path.is_file():
            raise MissingInputError(f"--config {given}: there is no file {path} (working directory: {Path.cwd()})")
        try:
            # OmegaConf's reader knows 1e-3 as a number, and interpolations.
            composed = OmegaConf.create(path.read_text(encoding="utf-8"))
            tree = OmegaConf.to_container(composed, resolve=True)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
            raise DataError(f"{path} cannot be read as a configuration: {' '.join(str(error).split())}") from None
        if not isinstance(tree, dict):
            raise DataError(f"{path} holds no configuration; give the config.yaml of a run, or what --cfg job printed")
        return cls(path, {str(key): value for key, value in tree.items()})

    @property
    def user_dir(self) -> str | None:
        found = self.tree.get("user_dir")
        return found if isinstance(found, str) else None

    def defaults(self, config_class: type) -> Defaults:
        """Checked against the options of a command: whatever is wrong is said of the file."""
        origin, groups = str(self.path), groups_of(config_class)
        try:
            from_plain(config_class, self.tree, origin=origin)
            components = {
                group: None if self.tree[group] is None else component_from_plain(role, self.tree[group], origin=origin)
                for group, role in groups.items()
                if group in self.tree
            }
        except UsageError as error:
            raise UsageError(f"{origin}: {error}") from None
        return Defaults(components, {key: value for key, value in self.tree.items() if key not in groups})


@dataclass(frozen=True)
class Stored:
    """What one start of a command takes from files."""

    line: CommandLine
    defaults: Defaults | None = None

    @classmethod
    def of(cls, command: str, config_class: type, line: CommandLine, file: ConfigFile | None) -> Stored:
        other_primary = line.value_of("--config-name", "-cn")
        if file is not None and other_primary is not None:
            raise UsageError(f"--config {file.path} and --config-name {other_primary} exclude each other; give one")
        defaults = None if file is None else file.defaults(config_class)
        return cls(line, defaults)
