"""Composing configurations as the commands do, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.publish import publish
from nmt_cli.stored import configurations

Compose = Callable[..., Any]


@pytest.fixture(scope="session")
def unchecked() -> Callable[..., DictConfig]:
    """compose(command, *overrides) -> the configuration before its dataclasses look at the values."""
    for command, config_class in configurations().items():
        publish(command, config_class)

    def compose_command(command: str, *overrides: str) -> DictConfig:
        with initialize_config_module("nmt.conf", version_base="1.3"):
            return compose(command, overrides=list(overrides))

    return compose_command


@pytest.fixture(scope="session")
def composed(unchecked: Callable[..., DictConfig]) -> Compose:
    """compose(command, *overrides) -> the configuration as dataclasses."""
    return lambda command, *overrides: OmegaConf.to_object(unchecked(command, *overrides))


@pytest.fixture(scope="session")
def commands() -> dict[str, type]:
    return configurations()
