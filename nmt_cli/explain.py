"""Hydra's and OmegaConf's complaints in one line each, with the right word or the list of choices."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    InterpolationKeyError,
    InterpolationResolutionError,
    OmegaConfBaseException,
    UnsupportedInterpolationType,
)

from nmt.config.option import groups_of
from nmt.config.presets import COMMANDS, MOST_LISTED, default_choices, program_of, unknown_preset
from nmt.errors import closest, did_you_mean
from nmt.plugins import preset_folders
from nmt.registry import registry_for
from nmt_cli.wanted import refusal_of_value

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


def explain(error: BaseException, command: str, config_class: type) -> str:
    """One line for a user: what was wrong, and what there is instead."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _missing_preset(error.missing_cfg_file, error.options or ())
    if isinstance(error, OverrideParseException):
        return f"cannot read {error.override}  (put quotes around special characters: \"key='a, b'\")"
    several = _AMBIGUOUS.search(str(error)) or _SWEEP.search(str(error))
    if several is not None:
        key = several["override"].partition("=")[0]
        alone = "" if key in default_choices(command) else ", or write [a,b] for a list, or quote the value"
        return f"{several['override']} gives several values: add --multirun to run each of them{alone}"
    exists = _EXISTS.search(str(error))
    if exists is not None:
        return f"{exists['key']} exists already; leave out the plus sign: {exists['key']}=VALUE"
    folder = _NO_FOLDER.search(str(error))
    if folder is not None:
        return f"there is no folder {folder['folder']} with configurations (--config-dir, --config-path)"
    cause = _omegaconf_cause(error)
    if cause is not None and cause.full_key:
        return _of_value(cause, command, config_class)
    no_such_key = _NO_SUCH_KEY.search(str(error))
    if no_such_key is not None:
        return unknown_key(no_such_key["key"].partition("=")[0], command, config_class)
    return _one_line(error)


def _of_value(cause: OmegaConfBaseException, command: str, config_class: type) -> str:
    """What is wrong with a key that exists, or with its name."""
    key = str(cause.full_key)
    if isinstance(cause, InterpolationKeyError):
        return f"{key}: there is no option {_first_line(cause).split()[2]} whose value it could take"
    if isinstance(cause, UnsupportedInterpolationType):
        return f"{key}: ${{...:}} names a function that does not exist: {_first_line(cause).rpartition(' ')[2]}"
    if isinstance(cause, InterpolationResolutionError):
        reason = _QUOTED.search(_first_line(cause))
        return f"{key}: ${{...}} has no value: {reason[1] if reason else _first_line(cause)}"
    if isinstance(cause, (ConfigKeyError, ConfigAttributeError)):
        if cause.object_type is dict:
            return f"{key} is a new name; say so with two plus signs: ++{key}=VALUE"
        return unknown_key(key, command, config_class)
    return refusal_of_value(config_class, key, cause.value, cause.object_type)


def keys_of(config_class: type, prefix: str = "") -> Iterator[str]:
    """Every key that a configuration may have, whatever component its groups hold."""
    for field in dataclasses.fields(config_class):
        key = f"{prefix}{field.name}"
        yield key
        if "section" in field.metadata:
            yield from keys_of(field.metadata["section"], f"{key}.")
        if "group" in field.metadata:
            registry = registry_for(field.metadata["group"])
            for name in registry.names():
                yield from keys_of(registry.config_class(name), f"{key}.")


def unknown_key(key: str, command: str, config_class: type) -> str:
    """A wrong key: perhaps in another section, perhaps misspelt, perhaps of another component."""
    known = sorted({*keys_of(config_class), *default_choices(command)})
    if key.startswith(("hydra.", "hydra/")):
        return f"unknown option {key}; --hydra-help and --cfg hydra show Hydra's own"
    commands = [other for other in COMMANDS if key in default_choices(other)] if key not in known else []
    if commands:
        return f"unknown option {key}; it is chosen with {' and '.join(map(program_of, commands))}"
    last = key.rpartition(".")[2]
    elsewhere = [other for other in known if other.rpartition(".")[2] == last and other != key]
    if key in known:
        owners = _owners(key, config_class)
        return f"{key} is an option of {' and '.join(owners)}, which this configuration does not use"
    if elsewhere:
        return f"unknown option {key}; it is called {' or '.join(elsewhere)}"
    section = key.rpartition(".")[0]
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == section}
    match = closest(last, siblings)
    if match is not None:
        return f"unknown option {key} (did you mean '{siblings[match]}'?)"
    nearest = closest(last, {other.rpartition(".")[2] for other in known})
    if nearest is not None:
        meant = " or ".join(f"'{other}'" for other in known if other.rpartition(".")[2] == nearest)
        return f"unknown option {key} (did you mean {meant}?)"
    if not siblings:
        return f"unknown option {key}{did_you_mean(key, known)}"
    if len(siblings) > MOST_LISTED:
        return f"unknown option {key}; --help lists those of the {section} chosen"
    return f"unknown option {key}; there are: {', '.join(siblings.values())}"


def _owners(key: str, config_class: type) -> list[str]:
    """The components that have an option."""
    field, _, option = key.partition(".")
    role = groups_of(config_class).get(field)
    if role is None:
        return ["another component"]
    registry = registry_for(role)
    return [f"{role} '{name}'" for name in registry.names() if option in set(keys_of(registry.config_class(name)))]


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


def _omegaconf_cause(error: BaseException | None) -> OmegaConfBaseException | None:
    while error is not None and not isinstance(error, OmegaConfBaseException):
        error = error.__cause__
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _one_line(error: BaseException) -> str:
    """Without the lines that speak of classes."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return "; ".join(line for line in lines if not _INNER.match(line)) or type(error).__name__
