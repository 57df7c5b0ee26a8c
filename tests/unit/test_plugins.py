"""Loading plugins: folders, installed packages, and everything that may be wrong with them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt import Translator, plugins
from nmt.errors import MissingInputError, UsageError
from tests.tiny_models import write_tiny_model

Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def _forget_what_a_test_loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name, module in [*sys.modules.items()]:
        if str(tmp_path) in str(getattr(module, "__file__", None)):
            del sys.modules[name]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def package(name: str, code: str = "", presets: bool = False) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text(code)
        if presets:
            (folder / "conf").mkdir()
        return folder

    return package


def test_a_folder_is_imported_under_its_own_name(make: Make) -> None:
    folder = make("my_plugin", "from . import part\nVALUE = part.VALUE")
    (folder / "part.py").write_text("VALUE = 3")
    plugins.load_plugins(str(folder))
    assert sys.modules["my_plugin"].VALUE == 3
    assert tuple(plugins._loaded) == ("my_plugin",)


def test_a_file_is_imported_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text("VALUE = 3")
    plugins.load_plugins(str(tmp_path / "my_model.py"))
    assert sys.modules["my_model"].VALUE == 3
    assert (tuple(plugins._loaded), plugins.preset_folders()) == (("my_model",), ())


def test_presets_of_files_stand_beside_them(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    for name in ("one.py", "two.py"):
        (tmp_path / name).touch()
    plugins.load_plugins([tmp_path / "one.py", tmp_path / "two.py"])
    assert plugins.preset_folders() == (tmp_path / "conf",)


def test_several_are_loaded_in_order(make: Make, tmp_path: Path) -> None:
    (tmp_path / "my_model.py").touch()
    plugins.load_plugins(f"{make('my_plugin')}, {tmp_path / 'my_model.py'}")
    assert tuple(plugins._loaded) == ("my_plugin", "my_model")


@pytest.mark.slow
def test_a_translator_loads_the_folders_that_its_model_comes_from(make: Make, tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    Translator.load(model, device="cpu", user_dir=[make("my_plugin"), make("my_other")])
    assert tuple(plugins._loaded) == ("my_plugin", "my_other")


def test_the_file_of_a_package_stands_for_its_folder(make: Make) -> None:
    plugins.load_plugins(make("my_plugin") / "__init__.py")
    assert tuple(plugins._loaded) == ("my_plugin",)


def test_loading_twice_imports_once(make: Make) -> None:
    folder = make(
        "my_plugin", "import pathlib\nwith open(pathlib.Path(__file__).with_name('log'), 'a') as f: f.write('x')"
    )
    plugins.load_plugins(str(folder))
    plugins.load_plugins(str(folder) + "/")
    assert (folder / "log").read_text() == "x"


def test_its_folder_of_presets_is_remembered(make: Make) -> None:
    plugins.load_plugins(str(make("without")))
    assert plugins.preset_folders() == ()
    folder = make("with_presets", presets=True)
    plugins.load_plugins(str(folder))
    assert plugins.preset_folders() == (folder / "conf",)


@pytest.mark.parametrize("name", ["json", "numpy", "nmt"])
def test_a_name_that_is_taken_is_refused(make: Make, name: str) -> None:
    with pytest.raises(UsageError, match=f"the name '{name}' is taken by .*; rename it"):
        plugins.load_plugins(str(make(name)))


def test_two_folders_of_one_name_are_refused(make: Make, tmp_path: Path) -> None:
    plugins.load_plugins(str(make("my_plugin")))
    other = tmp_path / "elsewhere" / "my_plugin"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    with pytest.raises(UsageError, match="the name 'my_plugin' is taken by"):
        plugins.load_plugins(str(other))


def test_a_name_that_python_cannot_import_is_refused(make: Make) -> None:
    with pytest.raises(UsageError, match="a Python module cannot be called 'my-plugin'"):
        plugins.load_plugins(str(make("my-plugin")))


def test_what_is_no_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="notes.txt is not a Python file"):
        plugins.load_plugins(str(tmp_path / "notes.txt"))
    with pytest.raises(MissingInputError, match="is not a folder or a file"):
        plugins.load_plugins(str(tmp_path / "absent"))
    with pytest.raises(MissingInputError, match="has no __init__.py"):
        plugins.load_plugins(str(tmp_path))


def test_a_failing_import_stops_and_is_tried_again(make: Make) -> None:
    folder = make("my_plugin", "import a_module_that_nobody_has")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
            plugins.load_plugins(str(folder))
    assert tuple(plugins._loaded) == ()


def test_installed_plugins_are_found_by_their_entry_point(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make("installed_plugin", "LOADED = True", presets=True)
    metadata = tmp_path / "installed_plugin-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-plugin\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[nmt.plugins]\nany = installed_plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    plugins.load_plugins()
    assert sys.modules["installed_plugin"].LOADED
    assert plugins.preset_folders() == (folder / "conf",)
