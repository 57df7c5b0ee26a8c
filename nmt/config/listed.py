"""Options of components that a list option names, such as ``--augment typos=0.1:words=2``."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from enum import Enum
from typing import Any

from nmt.config.option import alternatives
from nmt.errors import UsageError, did_you_mean


def with_options(config_class: type, name: str, parts: Sequence[str], item: str, option: str) -> Any:
    """Return the options of the component ``name``. ``parts``: each ``OPTION=VALUE``; ``item``, ``option``: the text that
    they come from and the option that holds it, for messages."""
    return config_class(**dict(_assigned(config_class, name, part, f"{option}: '{item}'") for part in parts))


def _assigned(config_class: type, name: str, part: str, where: str) -> tuple[str, Any]:
    key, equals, value = (piece.strip() for piece in part.partition("="))
    names = [field.name for field in dataclasses.fields(config_class)]
    if not equals or key not in names:
        listed = f"has no option '{key}'{did_you_mean(key, names)}; it has {', '.join(names) or 'none'}"
        raise UsageError(f"{where}: {name} {f'needs a value: {key}=VALUE' if key in names else listed}")
    kind = alternatives(typing.get_type_hints(config_class)[key])[0]
    try:
        return key, {"true": True, "false": False}[value] if kind is bool else kind(value)
    except (KeyError, ValueError):
        allowed = f"one of {', '.join(kind.__members__)}" if issubclass(kind, Enum) else f"of type {kind.__name__}"
        raise UsageError(f"{where}: {key}={value} must be {allowed}") from None
