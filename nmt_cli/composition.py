"""What ``--cfg job`` prints: a configuration in the form of a run's config.yaml, which ``--config`` reads again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from nmt.config.option import groups_of
from nmt.config.publish import STORED
from nmt.errors import UsageError
from nmt.registry import registered_name


def text_of(
    composed: DictConfig, config_class: type, choices: Mapping[str, str | None], package: str | None, *, resolve: bool
) -> str:
    """The whole, or the part ``package``. ``choices``: of each group, what was chosen; it is said in a comment."""
    if resolve:
        OmegaConf.resolve(composed)
    tree: Any = OmegaConf.to_container(composed, enum_to_str=True)
    for group in groups_of(config_class):
        if isinstance(tree.get(group), dict):
            name = registered_name(OmegaConf.get_type(composed, group) or dict)
            tree[group] = ({} if name is None else {"name": name}) | tree[group]
    if package in (None, "_global_"):
        return f"{_comment(choices)}{_yaml(tree)}"
    part = _part(tree, str(package))
    return f"# @package {package}\n{_yaml(part)}" if isinstance(part, (dict, list)) else f"{part}\n"


def _comment(choices: Mapping[str, str | None]) -> str:
    chosen = [f"{group}={choice}" for group, choice in choices.items() if choice not in (None, STORED)]
    return f"# {' '.join(chosen)}\n" if chosen else ""


def _part(tree: Any, package: str) -> Any:
    part = tree
    for key in package.split("."):
        if not isinstance(part, dict) or key not in part:
            raise UsageError(f"--package {package}: there is no such part; --cfg job alone shows all of them")
        part = part[key]
    return part


def _yaml(tree: Any) -> str:
    text: str = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
    return text
