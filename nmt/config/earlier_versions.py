"""Options of runs that earlier versions stored, as this version writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.errors import UsageError

# Options that runs of earlier versions stored: those that are gone, with the value that had no effect, and new values.
_REMOVED = {"training.cuda_graphs": False}
_REPLACED = {"training.compile": {False: "none", True: "layers"}}


def as_today(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """Leave out options that are gone, and replace values of earlier versions. Refuse a gone option that had an effect."""
    for key in (*_REMOVED, *_REPLACED):
        section, _, name = key.partition(".")
        options = tree.get(section)
        if not isinstance(options, dict) or name not in options:
            continue
        value = options[name]
        if key in _REPLACED:
            options = options | ({name: _REPLACED[key][value]} if isinstance(value, bool) else {})
        elif value == _REMOVED[key]:
            options = {other: kept for other, kept in options.items() if other != name}
        else:
            raise UsageError(f"{path}: the option {key} was removed; delete it from the file")
        tree = tree | {section: options}
    return tree
