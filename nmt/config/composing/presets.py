"""Names that a group can be set to: presets (YAML files of ``nmt/conf`` and of plugins) and components (their defaults)."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.errors import UsageError, did_you_mean
from nmt.registry import registry_for

CONF = Path(__file__).resolve().parents[2] / "conf"
MOST_LISTED = 20  # names in a message
RECIPE, METHOD = "recipe", "method"
RECIPES = (RECIPE, METHOD)  # groups of whole experiments, which are not registries

# fairseq's names for choices, by group: the counterpart here.
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
        "fixed": "use constant, or for --force-anneal N halving with --halve-after N-1",
        "tri_stage": "use wsd",
    },
}


@dataclass(frozen=True)
class Base:
    """Options that replace the defaults of a command. Presets, recipes and assignments change them like defaults."""

    tree: Mapping[str, Any] = field(default_factory=dict)  # plain: options by section, components with their names
    primary: str | None = None  # a primary configuration of the user's (--config-name)
    config_path: str | None = None  # the folder of the primary configuration (--config-path)


def default_presets(config_class: type) -> dict[str, str | None]:
    """Return the groups of a command, and what each is set to by default."""
    groups = [group for group in dataclasses.fields(config_class) if "group" in group.metadata]
    presets = {group.name: group.metadata["preset"] for group in groups}
    return presets | dict.fromkeys(group for group in RECIPES if group == getattr(config_class, "recipes", None))


def preset_names(group: str, plugin_folders: Sequence[Path] = ()) -> list[str]:
    """Return the presets of a group: names of YAML files."""
    folders = [folder / group for folder in (CONF, *plugin_folders)]
    return sorted({file.stem for folder in folders for file in folder.glob("*.yaml")})


def component_names(group: str) -> list[str]:
    """Return the components of a group. Each is a choice too: its options at their defaults."""
    return [] if group in RECIPES else list(registry_for(group).names())


def unknown_preset(group: str, name: str, plugin_folders: Sequence[Path] = ()) -> UsageError:
    """Return the error for a name that a group does not have."""
    if not name:
        return UsageError(f"{group}= has no value; give {group}=NAME (--help presets lists the names)")
    counterpart = NAMES_OF_FAIRSEQ.get(group, {}).get(name)
    if counterpart is not None:
        return UsageError(f"fairseq's {group} '{name}' does not exist here: {counterpart}")
    choices = [*preset_names(group, plugin_folders), *component_names(group)]
    listed = f"there are: {', '.join(choices) or 'none'}"
    if len(choices) > MOST_LISTED:
        listed = f"--help presets lists all {len(choices)}"
    return UsageError(
        f"unknown {group} '{name}'{did_you_mean(name, choices)}; {listed}; for a preset of a plugin, add --user-dir PATH"
    )


def refuse_clashes(plugin_folders: Sequence[Path]) -> None:
    """Refuse presets, ours too, with the name of a component, and presets of plugins with the name of one of ours, which
    would win silently."""
    for folder in (CONF, *plugin_folders):
        for file in sorted(folder.glob("*/*.yaml")):
            group, name = file.parent.name, file.stem
            if folder != CONF and name in preset_names(group):
                raise UsageError(f"{file}: '{name}' is already a preset of nmt; rename the file")
            with contextlib.suppress(KeyError):  # this command does not use the group
                if name in component_names(group):
                    raise UsageError(
                        f"{file}: '{name}' is a {group} itself; rename its preset, for example to {name}_base"
                    )
