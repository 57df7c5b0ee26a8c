"""Hydra's and OmegaConf's complaints in one line each, with the right word or the list of choices."""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Sequence
from typing import Any

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from nmt.config.option import alternatives, choices_of, flags_of, groups_of, options_of
from nmt.config.presets import COMMANDS, MOST_LISTED, default_choices, program_of, unknown_preset
from nmt.errors import closest, did_you_mean
from nmt.plugins import preset_folders
from nmt.registry import registered_name

CONFIGURATION_ERRORS = (HydraException, OmegaConfBaseException)

LAUNCHERS_AND_SWEEPERS = {
    **dict.fromkeys(("joblib", "submitit_local", "submitit_slurm"), "'nmt-toolkit[sweep]'"),
    "optuna": "'nmt-toolkit[optuna]'",
}

_NO_SUCH_KEY = re.compile(r"Could not override '(?P<key>[^']*)'")
_EXISTS = re.compile(r"Could not append to config. An item is already at '(?P<key>[^']*)'")
_AMBIGUOUS = re.compile(r"Ambiguous value for argument '(?P<override>.*)'")
_SWEEP = re.compile(r"Sweep parameters '(?P<override>.*)' requires --multirun")
_NO_FOLDER = re.compile(r"(?:Additional config|config) directory '(?P<folder>[^']*)' (?:not found|exists)")
_QUOTED = re.compile(r'resolving interpolation: "?(.*?)"?$')
_INNER = re.compile(r"(full_key|reference_type|object_type)\b")

_SINGLE = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_SEVERAL = {int: "whole numbers", float: "numbers", str: "words"}

# What was meant by a value that belongs to another option.
_NUMBERS_MEANT_FOR = {"length_penalty": "--lenpen"}


def explain(error: BaseException, command: str, config_class: type) -> str:
    """One line for a user: what was wrong, and what there is instead."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_preset(error.missing_cfg_file, error.options or ())
    if isinstance(error, OverrideParseException):
        return f"cannot read {error.override}  (put quotes around special characters: \"key='a, b'\")"
    if several := _AMBIGUOUS.search(str(error)) or _SWEEP.search(str(error)):
        key = several["override"].partition("=")[0]
        alone = "" if key in default_choices(command) else ", or write [a,b] for a list, or quote the value"
        return f"{several['override']} gives several values: add --multirun to run each of them{alone}"
    if exists := _EXISTS.search(str(error)):
        return f"{exists['key']} exists already; leave out the plus sign: {exists['key']}=VALUE"
    if folder := _NO_FOLDER.search(str(error)):
        return f"there is no folder {folder['folder']} with configurations (--config-dir, --config-path)"
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OmegaConfBaseException):
        cause = cause.__cause__
    if cause is not None and cause.full_key:
        return _of_value(cause, command, config_class)
    if no_such_key := _NO_SUCH_KEY.search(str(error)):
        return unknown_key(no_such_key["key"].partition("=")[0], command, config_class)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(line for line in lines if not _INNER.match(line)) or type(error).__name__


def _of_value(cause: OmegaConfBaseException, command: str, config_class: type) -> str:
    """What is wrong with a key that exists, or with its name."""
    key, first_line = str(cause.full_key), (str(cause).strip().splitlines() or [type(cause).__name__])[0]
    if isinstance(cause, InterpolationKeyError):
        return f"{key}: there is no option {first_line.split()[2]} whose value it could take"
    if isinstance(cause, UnsupportedInterpolationType):
        return f"{key}: ${{...:}} names a function that does not exist: {first_line.rpartition(' ')[2]}"
    if isinstance(cause, InterpolationResolutionError):
        reason = _QUOTED.search(first_line)
        return f"{key}: ${{...}} has no value: {reason[1] if reason else first_line}"
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        if cause.object_type is dict:
            return f"{key} is a new name; say so with two plus signs: ++{key}=VALUE"
        return unknown_key(key, command, config_class)
    return refusal_of_value(config_class, key, cause.value, cause.object_type)


def unknown_key(key: str, command: str, config_class: type) -> str:
    """A wrong key: perhaps in another section, perhaps misspelt, perhaps of another component."""
    options = options_of(config_class)
    sections = {flag.key.rpartition(".")[0] for flag in options} - {""}
    known = sorted({*(flag.key for flag in options), *sections, *default_choices(command)})
    if key.startswith(("hydra.", "hydra/")):
        return f"unknown option {key}; --hydra-help and --cfg hydra show Hydra's own"
    if key not in known and (commands := [other for other in COMMANDS if key in default_choices(other)]):
        return f"unknown option {key}; it is chosen with {' and '.join(map(program_of, commands))}"
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
    if nearest := closest(last, {other.rpartition(".")[2] for other in known}):
        meant = " or ".join(f"'{other}'" for other in known if other.rpartition(".")[2] == nearest)
        return f"unknown option {key} (did you mean {meant}?)"
    if not siblings:
        return f"unknown option {key}{did_you_mean(key, known)}"
    if len(siblings) > MOST_LISTED:
        return f"unknown option {key}; --help lists those of the {section} chosen"
    return f"unknown option {key}; there are: {', '.join(siblings.values())}"


def _missing_preset(file: str, options: Sequence[str]) -> str:
    group, _, name = file.rpartition("/")
    if not group:
        return f"there is no configuration called '{name}'"
    try:
        return str(unknown_preset(group, name, preset_folders()))
    except KeyError:  # a group of Hydra's own
        if name in LAUNCHERS_AND_SWEEPERS and group in ("hydra/launcher", "hydra/sweeper"):
            return f"{group}={name} is not installed: pip install {LAUNCHERS_AND_SWEEPERS[name]}"
    return f"unknown {group} '{name}'{did_you_mean(name, options)}; there are: {', '.join(options) or 'none'}"


def refusal_of_value(config_class: type, key: str, value: Any, owner: Any) -> str:
    """``key=value`` is not what the option takes. ``owner``: the dataclass that has the option, if it is known."""
    hint = _hint(config_class, key, owner)
    shown = f"{key}={_typed(value)}"
    flag = next((f" ({flag.name})" for flag in flags_of(config_class) if flag.key == key.partition("[")[0]), "")
    if dataclasses.is_dataclass(hint):
        return f"{shown}: {key} has options of its own; give them one by one, {key}.OPTION=VALUE"
    choices = choices_of(hint)
    if not choices:
        wanted = " or ".join(_in_words(kind) for kind in alternatives(hint) if kind is not type(None))
        return f"{shown} is not {wanted}{flag}"
    refusal = f"{shown} is none of {', '.join(choices)}{flag}"
    meant = _NUMBERS_MEANT_FOR.get(key.rpartition(".")[2])
    if meant is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{refusal}; the number is {meant} {value}"
    match = closest(str(value), choices)
    return f"{refusal}; did you mean {match}?" if match else refusal


def _hint(config_class: type, key: str, owner: Any) -> Any:
    """The annotation of an option; of an item of a list that of the item."""
    name, _, item = key.partition("[")
    last = name.rpartition(".")[2]
    for candidate in (owner, *(flag.owner for flag in options_of(config_class) if flag.key == name), config_class):
        hints = typing.get_type_hints(candidate) if dataclasses.is_dataclass(candidate) else {}
        if last in hints:
            return (typing.get_args(hints[last]) or (Any,))[0] if item else hints[last]
    return Any


def _in_words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (list, tuple):
        return f"a list of {_SEVERAL.get(inner[0], 'values')}, [A,B]"
    if origin is dict:
        return f"a name with {_SINGLE.get(inner[1], 'a value')} each, {{NAME:VALUE}}"
    return _SINGLE.get(hint, "a value of the right kind")


def _typed(value: Any) -> str:
    """As a user types it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_typed(item)}" for name, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_typed, value)) + "]"
    return str(value)
