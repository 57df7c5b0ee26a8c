"""Load plugins: installed packages (entry points ``nmt.plugins``), and the folders and files of ``user_dir``.

Importing a plugin runs its ``register`` decorators; a folder ``conf/`` in its package or next to its file adds presets.
A failed import is an error at once; otherwise the user would see "unknown model" later.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt.errors import MissingInputError, UsageError

ENTRY_POINTS = "nmt.plugins"

UserDir = str | Path | Sequence[str | Path] | None

_loaded: dict[str, Path | None] = {}  # name of the imported module -> its folder of presets


def load_plugins(user_dir: UserDir = None) -> None:
    """Import all installed plugins and those of ``user_dir``. A second call does nothing.

    ``user_dir``: folders of packages and Python files, separated by commas or as a sequence.
    """
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if entry_point.module not in _loaded:
            module = importlib.import_module(entry_point.module)
            file = module.__file__ if module.__package__ else None  # a single-file module has no folder
            _loaded[module.__name__] = _presets_beside(Path(file)) if file else None
    for path in plugin_paths(user_dir):
        _load(path)


def plugin_paths(user_dir: UserDir) -> list[Path]:
    """Return the folders and files in ``user_dir``, without resolving them."""
    if isinstance(user_dir, str):
        return [Path(name.strip()) for name in user_dir.split(",") if name.strip()]
    if isinstance(user_dir, Path):
        return [user_dir]
    return [Path(path) for path in user_dir or ()]


def preset_folders() -> tuple[Path, ...]:
    """Return the ``conf/`` folders of all plugins imported so far."""
    return tuple(dict.fromkeys(folder for folder in _loaded.values() if folder is not None))


def _load(named: Path) -> None:
    path = named.expanduser().resolve()
    path = path.parent if path.name == "__init__.py" else path
    if not path.exists():
        raise MissingInputError(f"user_dir={named} is not a folder or a file (working directory: {Path.cwd()})")
    file = path / "__init__.py" if path.is_dir() else path
    if not file.is_file():
        raise MissingInputError(f"user_dir={named} has no __init__.py: give the folder of a Python package, or a file")
    if file.suffix != ".py":
        raise UsageError(
            f"user_dir={named} is not a Python file: give one whose name ends in .py, or a package's folder"
        )
    name = path.name if path.is_dir() else path.stem
    if not name.isidentifier():
        raise UsageError(f"user_dir={named}: a Python module cannot be called '{name}'; rename it")
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, such as __main__
        spec = None
    origin = spec.origin if spec is not None else None
    if origin is not None and Path(origin).resolve() != file:  # imports would confuse the two modules
        raise UsageError(f"user_dir={path}: the name '{name}' is taken by {origin}; rename it")
    if name not in sys.modules:
        inside = [str(path)] if path.is_dir() else None
        spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=inside)
        assert spec is not None and spec.loader is not None, file
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))  # worker processes import the plugin anew, by its name
    _loaded[name] = _presets_beside(file)


def _presets_beside(file: Path) -> Path | None:
    folder = file.resolve().parent / "conf"
    return folder if folder.is_dir() else None
