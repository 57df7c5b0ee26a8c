"""Registries: one name, one configuration type, one component."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

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


def test_a_configuration_must_be_a_dataclass(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(TypeError, match="must be a dataclass"):
        boxes.register("text", str)


def test_an_unknown_name_lists_what_exists_and_the_nearest(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(
        UsageError, match=r"unknown box 'smal' \(did you mean 'small'\?\); there are: small\..*--user-dir"
    ):
        boxes.config_class("smal")


def test_an_unregistered_configuration_is_refused(boxes: Registry[tuple[object, ...]]) -> None:
    with pytest.raises(UsageError, match="OtherConfig"):
        boxes.build(OtherConfig())
