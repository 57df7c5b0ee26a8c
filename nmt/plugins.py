"""Components from elsewhere: installed packages (entry points ``nmt.plugins``) and a folder given as ``user_dir``.

Importing a plugin runs its ``register`` decorators; if it has a folder ``conf/``, that adds presets. An import that
fails is not hidden: the user would only meet "unknown model" later.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from nmt.errors import MissingInputError, UsageError

ENTRY_POINTS = "nmt.plugins"

_loaded: dict[str, Path | None] = {}  # name of the imported module -> its folder of presets


def load_plugins(user_dir: str | None = None) -> None:
    """Import every installed plugin, and the package in the folder ``user_dir``. Repeating it does nothing."""
    for entry_point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if entry_point.module not in _loaded:
            _remember(importlib.import_module(entry_point.module))
    if user_dir:
        _load_folder(Path(user_dir))


def loaded_plugins() -> tuple[str, ...]:
    """Names of the plugin modules imported so far."""
    return tuple(_loaded)


def preset_folders() -> tuple[Path, ...]:
    """The ``conf/`` folders of all plugins imported so far."""
    return tuple(folder for folder in _loaded.values() if folder is not None)


def _load_folder(given: Path) -> None:
    folder = given.expanduser().resolve()
    if not folder.is_dir():
        raise MissingInputError(f"user_dir={given} is not a folder (working directory: {Path.cwd()})")
    if not (folder / "__init__.py").is_file():
        raise MissingInputError(f"user_dir={given} has no __init__.py: give the folder of a Python package")
    name = folder.name
    if not name.isidentifier():
        raise UsageError(f"user_dir={given}: a package cannot be called '{name}'; rename the folder")
    _refuse_clash(name, folder)
    if name not in sys.modules:
        _import_package(name, folder)
    _remember(sys.modules[name])


def _refuse_clash(name: str, folder: Path) -> None:
    """Another module of this name, imported or importable, would be taken for the plugin, or the plugin for it."""
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, such as __main__
        spec = None
    origin = spec.origin if spec is not None else None
    if origin is not None and Path(origin).resolve() != folder / "__init__.py":
        raise UsageError(f"user_dir={folder}: the name '{name}' is taken by {origin}; rename the folder")


def _import_package(name: str, folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None, folder
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if str(folder.parent) not in sys.path:
        sys.path.append(str(folder.parent))  # worker processes import the package anew, by its name


def _remember(module: ModuleType) -> None:
    _loaded[module.__name__] = _presets_of(module)


def _presets_of(module: ModuleType) -> Path | None:
    """``conf/`` beside a package's ``__init__.py``; a lone module in site-packages has no folder of its own."""
    if not module.__package__ or module.__file__ is None:
        return None
    folder = Path(module.__file__).resolve().parent / "conf"
    return folder if folder.is_dir() else None
