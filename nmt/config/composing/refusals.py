"""Messages about options: names that do not exist, and values that an option does not take."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from nmt.config.composing.presets import MOST_LISTED, default_presets
from nmt.config.composing.programs import program_of
from nmt.config.option import alternatives, choices_of, flags_of, groups_of, options_of
from nmt.errors import closest, did_you_mean
from nmt.registry import registered_name

_SINGLE = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_SEVERAL = {int: "whole numbers", float: "numbers", str: "words"}

# Options whose value users give to another option: the flag that they mean.
_NUMBERS_MEANT_FOR = {"length_penalty": "--lenpen"}


def unknown_key(key: str, config_class: type) -> str:
    """Return the message for a key that does not exist, or belongs to a component that is not chosen."""
    if key.startswith(("hydra.", "hydra/")):
        return f"unknown option {key}; --cfg hydra shows Hydra's own"
    options = options_of(config_class)
    sections = {flag.key.rpartition(".")[0] for flag in options} - {""}
    known = sorted({*(flag.key for flag in options), *sections, *default_presets(config_class)})
    if key not in known and (programs := _programs_with(key)):
        return f"unknown option {key}; it is an option of {' and '.join(programs)}"
    last = key.rpartition(".")[2]
    elsewhere = [other for other in known if other.rpartition(".")[2] == last and other != key]
    if key in known:
        role = groups_of(config_class).get(key.partition(".")[0])
        names = [registered_name(flag.owner) for flag in options if role and flag.key == key]
        owners = [f"{role} '{name}'" for name in names if name is not None]
        several = " and ".join(owners) or "another component"
        return f"{key} is an option of {several}, which this configuration does not use"
    if elsewhere:
        return f"unknown option {key}; it is called {' or '.join(elsewhere)}"
    section = key.rpartition(".")[0]
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == section}
    if match := closest(last, siblings):
        return f"unknown option {key} (did you mean '{siblings[match]}'?)"
    others = [other for other in known if "." in other or not section]
    if nearest := closest(last, {other.rpartition(".")[2] for other in others}):
        meant = " or ".join(f"'{other}'" for other in others if other.rpartition(".")[2] == nearest)
        return f"unknown option {key} (did you mean {meant}?)"
    if not siblings:
        return f"unknown option {key}{did_you_mean(key, known)}"
    if len(siblings) > MOST_LISTED:
        topic = section.partition(".")[0] or "all"
        listed = f"the options of the chosen {section}" if section else "all options"
        return f"unknown option {key}; --help {topic} lists {listed}"
    return f"unknown option {key}; there are: {', '.join(siblings.values())}"


def _programs_with(group: str) -> list[str]:
    """Return the programs that choose a component of this group."""
    from nmt.config.commands import GenerateConfig  # only this message needs them
    from nmt.config.preprocessing import PreprocessConfig
    from nmt.config.sections import TrainConfig

    commands = (GenerateConfig, PreprocessConfig, TrainConfig)
    return [program_of(command.command) for command in commands if group in default_presets(command)]


def wrong_value(key: str, shown: str, value: Any, hint: Any, config_class: type | None = None) -> str:
    """Return the message for a value that an option does not take. ``shown``: the value as the user wrote it; ``hint``: the
    annotation of the option; ``config_class``: the command, whose flags are named."""
    flags = [] if config_class is None else flags_of(config_class)
    flag = next((f" ({flag.name})" for flag in flags if flag.key == key.partition("[")[0]), "")
    if dataclasses.is_dataclass(hint):
        return f"{key}={shown}: {key} is a section; set its options one by one, {key}.OPTION=VALUE"
    choices = choices_of(hint)
    if not choices:
        kinds = " or ".join(_in_words(kind) for kind in alternatives(hint) if kind is not type(None))
        return f"{key}={shown} is not {kinds}{flag}"
    refusal = f"{key}={shown} must be one of {', '.join(choices)}{flag}"
    meant = _NUMBERS_MEANT_FOR.get(key.rpartition(".")[2])
    if meant is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{refusal}; for a number, use {meant} {value}"
    match = closest(str(value), choices)
    return f"{refusal}; did you mean {match}?" if match else refusal


def _in_words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple):
        return f"a list of {_SEVERAL.get(inner[0], 'values')}, [A,B]"
    if origin is dict:
        return f"a mapping from names to {_SEVERAL.get(inner[1], 'values')}, {{NAME:VALUE}}"
    return _SINGLE.get(hint, "a value of the right kind")


def as_typed(value: Any) -> str:
    """Return a value in the form that users type."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{as_typed(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(as_typed, value)) + "]"
    return str(value)
