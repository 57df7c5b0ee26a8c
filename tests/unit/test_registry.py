"""Registries: one name, one configuration type, one component."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.errors import UsageError
from nmt.registry import Registry, _registries, registered_name, registry_for


@dataclass
class SmallConfig:
    size: int = 1


@dataclass
class OtherConfig:
    size: int = 2


@pytest.fixture
def boxes() -> Iterator[Registry[tuple[object, ...]]]:
    registry: Registry[tuple[object, ...]] = Registry("box")
    registry.register("small", SmallConfig)(lambda config, *parts, **named: (config.size, *parts, named))
    yield registry
    del _registries["box"]


def test_a_component_is_built_from_its_configuration_and_parts(boxes: Registry[tuple[object, ...]]) -> None:
    assert boxes.build(SmallConfig(5), "part", named=3) == (5, "part", {"named": 3})


def test_a_configuration_type_knows_its_name_and_role(boxes: Registry[tuple[object, ...]]) -> None:
    assert registered_name(SmallConfig) == "small" and registry_for("box") is boxes
    assert registered_name(OtherConfig) is None


def test_a_second_component_of_one_name_names_both_files(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(
        ValueError, match=r"'small' is registered twice: in .*test_registry.py and in .*test_registry.py"
    ):
        boxes.register("small", OtherConfig)(lambda config: ())


def test_one_configuration_type_serves_one_name(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(ValueError, match="already configures box 'small'"):
        boxes.register("large", SmallConfig)(lambda config: ())


class Base:
    """What is asked of every configuration of a role."""

    is_heavy = False
    weight: float = 1.0

    @property
    def doubled(self) -> float:
        return 2 * self.weight


@pytest.fixture
def weights() -> Iterator[Registry[object]]:
    yield Registry("weight", Base)
    del _registries["weight"]


def test_a_configuration_without_the_base_of_its_role_is_given_what_it_lacks(weights: Registry[object]) -> None:
    @dataclass
    class Foreign:
        is_heavy = True
        doubled: float = dataclasses.field(default_factory=lambda: 7.0)  # no attribute of the class

    weights.register("foreign", Foreign)(lambda config: config)
    config: Any = Foreign()
    assert (config.is_heavy, config.weight, config.doubled) == (True, 1.0, 7.0)
    assert [field.name for field in dataclasses.fields(config)] == ["doubled"], "nothing of it becomes an option"


def test_a_property_of_the_base_reads_the_options_of_a_configuration_without_it(weights: Registry[object]) -> None:
    @dataclass
    class Foreign:
        weight: float = 3.0

    weights.register("foreign", Foreign)(lambda config: config)
    config: Any = Foreign()
    assert config.doubled == 6.0


def test_a_configuration_must_be_a_dataclass(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(TypeError, match="must be a dataclass"):
        boxes.register("text", str)


def test_an_unknown_name_lists_what_exists_and_the_nearest(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(
        UsageError, match=r"unknown box 'smal' \(did you mean 'small'\?\); there are: small; .*--user-dir"
    ):
        boxes.config_class("smal")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[str]]:
    """A registry with the component ``late``, of which only the options are imported."""
    registry: Registry[str] = Registry("crate")
    (tmp_path / "late_config.py").write_text(
        "import dataclasses\nfrom nmt.registry import registry_for\n"
        "@registry_for('crate').declare('late')\n@dataclasses.dataclass\nclass LateConfig:\n    size: int = 7\n"
    )
    (tmp_path / "late.py").write_text(
        "from late_config import LateConfig\nfrom nmt.registry import registry_for\n"
        "registry_for('crate').register('late', LateConfig)(lambda config: f'built {config.size}')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("late_config")
    yield registry
    del _registries["crate"]
    for module in ("late", "late_config"):
        sys.modules.pop(module, None)


def test_a_declared_component_is_known_before_it_is_imported(package: Registry[str]) -> None:
    assert package.names() == ("late",) and registered_name(package.config_class("late")) == "late"
    assert "late" not in sys.modules


def test_a_declared_component_is_imported_when_it_is_built(package: Registry[str]) -> None:
    assert package.build(package.config_class("late")()) == "built 7" and "late" in sys.modules


def test_a_plugin_cannot_take_a_declared_name(package: Registry[str]) -> None:
    with pytest.raises(ValueError, match=r"'late' is registered twice: in .*late_config.py and in .*test_registry.py"):
        package.register("late", OtherConfig)(lambda config: "")


def test_every_component_of_nmt_is_registered_by_the_module_beside_its_options() -> None:
    import nmt.criterions
    import nmt.models
    import nmt.optim
    import nmt.search

    for registry in (nmt.models.models, nmt.criterions.criterions, nmt.optim.optimizers, nmt.search.searches):
        for name in registry.names():
            assert callable(registry.builder(registry.config_class(name)))


ROLES = {  # registries, by name, of packages that import only some of their files
    "criterions": "nmt.criterions",
    "models": "nmt.models",
    "optimizers": "nmt.optim",
    "schedulers": "nmt.optim",
    "searches": "nmt.search",
}


def test_every_component_of_nmt_is_known_as_soon_as_the_package_of_its_role_is_imported() -> None:
    """Files are imported by their endings (CONTRIBUTING.md); the component of another file would not be found."""
    names = "; ".join(
        f"print(*('{role}.' + n for n in importlib.import_module('{package}').{role}.names()), sep='\\n')"
        for role, package in ROLES.items()
    )
    printed = subprocess.run([sys.executable, "-c", f"import importlib; {names}"], capture_output=True, check=True)
    registered = {
        f"{node.func.value.id}.{node.args[0].value}"
        for file in Path(nmt.__file__).parent.rglob("*.py")
        if ".register(" in (text := file.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "register"
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ROLES
        and isinstance(node.args[0], ast.Constant)
    }
    assert len(registered) > 30
    assert registered - set(printed.stdout.decode().splitlines()) == set()


def test_an_unregistered_configuration_is_refused(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(UsageError, match="OtherConfig"):
        boxes.build(OtherConfig())
