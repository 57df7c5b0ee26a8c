"""Options of runs that earlier versions stored, as this version writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.errors import UsageError

# Options that runs of earlier versions stored: those that are gone, with the value that had no effect, and new values.
_REMOVED = {"training.cuda_graphs": False}
_REPLACED = {"training.compile": {False: "none", True: "layers"}}
_RENAMED = {f"model.{side}_neighbourhood": f"{side}_neighborhood" for side in ("encoder", "decoder")}


def as_today(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    """Omit options that are gone, and replace earlier names and values. Refuse an option that is gone and had an effect."""
    for key in (*_REMOVED, *_REPLACED, *_RENAMED):
        section, _, name = key.partition(".")
        options = tree.get(section)
        if not isinstance(options, dict) or name not in options:
            continue
        value = options[name]
        if key in _REPLACED:
            options = options | ({name: _REPLACED[key][value]} if isinstance(value, bool) else {})
        elif key in _RENAMED:
            options = {_RENAMED[key] if other == name else other: kept for other, kept in options.items()}
        elif value == _REMOVED[key]:
            options = {other: kept for other, kept in options.items() if other != name}
        else:
            raise UsageError(f"{path}: the option {key} was removed; delete it from the file")
        tree = tree | {section: options}
    return tree
