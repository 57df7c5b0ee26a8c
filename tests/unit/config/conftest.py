"""Composing options as the commands do, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import Draft, compose, find_option
from nmt.config.composing.presets import Base
from nmt.config.option import groups_of, options_of
from nmt_cli.command_line.programs import COMMANDS, options_class

Compose = Callable[..., Any]


@pytest.fixture(scope="session")
def unchecked() -> Callable[..., dict[str, Any]]:
    """unchecked(command, *overrides) -> the plain values of all options by key, before sections are checked."""

    def values(command: str, *overrides: str) -> dict[str, Any]:
        config_class = options_class(command)
        draft = Draft(config_class, read(overrides), (), Base())
        draft.refuse_wrong_types()
        keys = [flag.key for flag in options_of(config_class) if flag.key not in groups_of(config_class)]
        return {key: draft.value(key) for key in keys if find_option(config_class, key, draft.tree) is not None}

    return values


@pytest.fixture(scope="session")
def composed() -> Compose:
    """composed(command, *overrides) -> the options as dataclasses."""
    return lambda command, *overrides: compose(options_class(command), read(overrides)).config


@pytest.fixture(scope="session")
def commands() -> dict[str, type]:
    return {command: options_class(command) for command in COMMANDS}
