"""Which presets exist: the YAML files of ``nmt/conf`` and of plugins, and the bare schemas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import OmegaConf

from nmt.config.names_of_fairseq import NAMES_OF_FAIRSEQ
from nmt.errors import UsageError, did_you_mean
from nmt.registry import registry_for

CONF = Path(__file__).resolve().parent.parent / "conf"
COMMANDS = tuple(sorted(file.stem for file in CONF.glob("*.yaml")))
MOST_LISTED = 20  # names in a message
RECIPE = "recipe"  # whole experiments: the one group that is not a registry


def program_of(command: str) -> str:
    """What users type."""
    return f"nmt-{command.replace('_', '-')}"


def default_choices(command: str) -> dict[str, str | None]:
    """The groups of a command and what each holds if nothing is said, from the defaults list of its primary config."""
    config = OmegaConf.to_container(OmegaConf.load(CONF / f"{command}.yaml"))
    assert isinstance(config, dict)
    entries = [entry for entry in config["defaults"] if isinstance(entry, dict)]
    return {key: choice for entry in entries for key, choice in entry.items() if not key.startswith("override ")}


def preset_names(group: str, plugin_folders: Sequence[Path] = ()) -> list[str]:
    """The presets of a group: names of YAML files."""
    folders = [folder / group for folder in (CONF, *plugin_folders)]
    return sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})


def schema_names(group: str) -> list[str]:
    """The components of a group, which are choices as well: a schema with its defaults."""
    return [] if group == RECIPE else list(registry_for(group).names())


def unknown_preset(group: str, name: str, plugin_folders: Sequence[Path] = ()) -> UsageError:
    """The complaint about a name that a group does not have."""
    if not name:
        return UsageError(f"{group}= names nothing; {group}=NAME chooses, and --help lists the names")
    called = NAMES_OF_FAIRSEQ.get(group, {}).get(name)
    if called is not None:
        return UsageError(f"{group} '{name}' of fairseq is not here under that name: {called}")
    choices = [*preset_names(group, plugin_folders), *schema_names(group)]
    listed = f"there are: {', '.join(choices) or 'none'}"
    if len(choices) > MOST_LISTED:
        listed = f"--help lists all {len(choices)}"
    return UsageError(
        f"unknown {group} '{name}'{did_you_mean(name, choices)}; {listed}. A plugin's presets need it: --user-dir PATH"
    )


def refuse_clashes(plugin_folders: Sequence[Path]) -> None:
    """A plugin's preset must not share its name with one of ours (ours would win in silence) or with a schema."""
    for folder in plugin_folders:
        for file in sorted(folder.glob("*/*.yaml")):
            group, name = file.parent.name, file.stem
            if name in preset_names(group):
                raise UsageError(f"{file}: '{name}' is already a preset of nmt; rename the file")
            if name in _schemas_if_known(group):
                raise UsageError(f"{file}: '{name}' is a {group} itself; call its preset {name}_base, say")


def _schemas_if_known(group: str) -> list[str]:
    try:
        return schema_names(group)
    except KeyError:  # a group that this command does not use
        return []
