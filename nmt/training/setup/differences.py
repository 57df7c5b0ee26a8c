"""What differs between two sets of options, said so that a person can judge it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Options whose values are checksums.
_OTHERS = {
    "data": "the corpus or its vocabulary is another one",
    "validation.data": "the validation data is another one",
    "criterion.teacher": "it has other parameters, or the run folder another best checkpoint",
}


def differences(stored: Mapping[str, Any], current: Mapping[str, Any]) -> dict[str, str]:
    """What changed: option -> ``old -> new``."""
    changed = {
        key: f"{_shown(stored.get(key))} -> {_shown(current.get(key))}"
        for key in [*current, *(key for key in stored if key not in current)]
        if stored.get(key) != current.get(key)
    }
    return {key: _OTHERS.get(key, change) for key, change in changed.items()}


def _shown(value: Any) -> str:
    return "null" if value is None else str(value)
