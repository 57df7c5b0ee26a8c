"""Which presets exist, the YAML files of ``nmt/conf`` and of plugins and the bare schemas; and what a command line chooses.

Hydra composes the same, but reads every file many times; a page of help reads the few files that are chosen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from nmt.errors import UsageError, did_you_mean
from nmt.registry import registry_for

CONF = Path(__file__).resolve().parent.parent / "conf"
COMMANDS = tuple(sorted(file.stem for file in CONF.glob("*.yaml")))
MOST_LISTED = 20  # names in a message
RECIPE = "recipe"  # whole experiments: the one group that is not a registry

# Choices that fairseq calls otherwise: by group and fairseq's name, what to write here.
_GUIDED = "use --criterion guided_alignment with any model that attends to the source"
NAMES_OF_FAIRSEQ: dict[str, dict[str, str]] = {
    "model": {"transformer_align": _GUIDED, "transformer_wmt_en_de_big_align": _GUIDED},
    "criterion": {
        "label_smoothed_cross_entropy_with_alignment": "use guided_alignment, on a corpus made with --align-suffix; "
        "--alignment-lambda is the same",
        "adaptive_loss": "there is no adaptive softmax; use label_smoothed_cross_entropy",
    },
    "scheduler": {
        "reduce_lr_on_plateau": "use plateau; its --lr-shrink is 0.5 unless given (fairseq's is 0.1)",
        "fixed": "use constant; where --force-anneal N was given, halving with --halve-after N-1",
        "tri_stage": "use wsd",
    },
}


def program_of(command: str) -> str:
    """What users type."""
    return f"nmt-{command.strip('_').replace('_', '-')}"


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
            with contextlib.suppress(KeyError):  # a group that this command does not use
                if name in schema_names(group):
                    raise UsageError(f"{file}: '{name}' is a {group} itself; call its preset {name}_base, say")


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


def chosen(command: str, overrides: Sequence[str] = (), folders: Sequence[Path] = ()) -> Chosen:
    """What ``overrides`` (``model=lstm_luong``) choose; ``folders`` hold presets beside our own."""
    presets = default_choices(command)
    said = dict(_said(overrides, presets))
    recipe = read_preset(RECIPE, said.get(RECIPE, presets.get(RECIPE)), folders)
    presets |= recipe.groups | said
    components: dict[str, str | None] = {}
    values: dict[str, Any] = {}
    for group, name in presets.items():
        if group != RECIPE:
            preset = read_preset(group, name, folders)
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


def read_preset(group: str, name: str | None, folders: Sequence[Path]) -> Preset:
    """A preset and what its defaults list names, in Hydra's order: later values count. None: nothing is chosen."""
    if name is None:
        return Preset()
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
            inherited = read_preset(group, entry, folders)
            preset.component = inherited.component
            preset.values |= inherited.values
            preset.groups |= inherited.groups
        else:
            preset.groups |= {key.removeprefix("override ").strip("/ "): choice for key, choice in entry.items()}
    return preset


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
