"""Configurations in files: a whole one in place of a command's defaults (``--config``), the search that the model of
``--path`` was validated with, and what ``--cfg job`` prints. None needs torch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from nmt.config.option import groups_of
from nmt.config.plain import component_from_plain, described, for_scoring, from_plain, validated_search
from nmt.config.presets import default_choices, program_of
from nmt.config.publish import STORED, Defaults
from nmt.errors import DataError, MissingInputError, NMTError, UsageError, closest
from nmt.registry import registered_name
from nmt.storage.run_folder import CONFIG, read_config, resolve, split_paths
from nmt_cli.argv import CommandLine, by_key
from nmt_cli.process import logger

_SEVERAL = "(several)"  # stands for a choice that each job of a sweep makes


@dataclass(frozen=True)
class ConfigFile:
    """A configuration as a run stores it, or as ``--cfg job`` prints it."""

    path: Path
    tree: dict[str, Any]

    @classmethod
    def read(cls, given: str) -> ConfigFile:
        """A file, or the folder of a run or a checkpoint with its ``config.yaml``."""
        path = Path(given).expanduser()
        path = path / CONFIG if path.is_dir() else path
        if not path.is_file():
            raise MissingInputError(f"--config {given}: there is no file {path} (working directory: {Path.cwd()})")
        try:
            # OmegaConf's reader knows 1e-3 as a number, and interpolations.
            composed = OmegaConf.create(path.read_text(encoding="utf-8"))
            tree = OmegaConf.to_container(composed, resolve=True)
        except (OSError, UnicodeDecodeError, yaml.YAMLError, OmegaConfBaseException) as error:
            raise DataError(f"{path} cannot be read as a configuration: {' '.join(str(error).split())}") from None
        if not isinstance(tree, dict):
            raise DataError(f"{path} holds no configuration; give the config.yaml of a run, or what --cfg job printed")
        return cls(path, {str(key): value for key, value in tree.items()})

    @property
    def user_dir(self) -> str | None:
        found = self.tree.get("user_dir")
        return found if isinstance(found, str) else None

    def defaults(self, command: str, config_class: type) -> Defaults:
        """Checked against the options of a command: whatever is wrong is said of the file."""
        refuse_file_of_another(command, self.path, self.tree)
        origin, groups = str(self.path), groups_of(config_class)
        try:
            from_plain(config_class, self.tree, origin=origin)
            components = {
                group: None if self.tree[group] is None else component_from_plain(role, self.tree[group], origin=origin)
                for group, role in groups.items()
                if group in self.tree
            }
        except UsageError as error:
            raise UsageError(f"{origin}: {error}") from None
        return Defaults(components, {key: value for key, value in self.tree.items() if key not in groups})


def taken_from_files(
    command: str, config_class: type, line: CommandLine, file: ConfigFile | None
) -> tuple[CommandLine, Defaults | None, bool]:
    """What one start of a command takes from files: the line, without what would choose the stored search once more by its
    name; defaults; and whether the model is known only when Hydra has composed (``put_search_of_model``)."""
    other_primary = line.value_of("--config-name", "-cn")
    if file is not None and other_primary is not None:
        raise UsageError(f"--config {file.path} and --config-name {other_primary} exclude each other; give one")
    defaults = None if file is None else file.defaults(command, config_class)
    if command != "generate" or (defaults is not None and "search" in defaults.components):
        return line, defaults, False
    asked = by_key(line.overrides)
    path, scoring = None if file is None else file.tree.get("path"), asked.get("score_reference")
    if (given := asked.get("path")) is not None:
        known = not given.is_sweep_override() and "${" not in str(given.value())
        path = str(given.value()) if known else None
    if path is None or other_primary is not None:
        return line, defaults, True
    in_file = file is not None and file.tree.get("score_reference") is True
    search = _search_of_model(path, asked, scoring=in_file or (scoring is not None and scoring.value() is True))
    if search is None:
        return line, defaults, False
    if not line.only_prints:
        _tell(search, asked)
    defaults = defaults or Defaults()
    own = tuple(override for override in line.overrides if override.partition("=")[0] != "search")
    with_search = dataclasses.replace(defaults, components={**defaults.components, "search": search})
    return dataclasses.replace(line, overrides=own), with_search, False


def _search_of_model(path: str, asked: Mapping[str, Override], *, scoring: bool) -> Any:
    """What the model was validated with, as far as the user does not ask for something else; None: nothing of it."""
    trees: dict[str, Mapping[str, Any]] = {}
    with contextlib.suppress(NMTError, OSError):  # a model that cannot be read is told of when it is loaded
        checkpoints = [resolve(one) for one in split_paths(path)]
        trees = {str(checkpoint / CONFIG): read_config(checkpoint) for checkpoint in checkpoints}
    chosen = asked.get("search")
    name = None if chosen is None else _SEVERAL if chosen.is_sweep_override() else str(chosen.value())
    search = validated_search(trees, name, _options_in(asked))
    return for_scoring(search) if search is not None and scoring else search


def _tell(search: Any, asked: Mapping[str, Override]) -> None:
    """Say in the log what nobody asked for, unless the command would do the same without a model's word."""
    what = described(search, besides=_options_in(asked))
    if what != default_choices("generate")["search"]:
        logger.info(f"searching as the model was validated: {what}")


def put_search_of_model(composed: DictConfig, overrides: Sequence[str]) -> None:
    """Into a composed configuration: where the model was not known before."""
    asked = by_key(overrides)
    search = _search_of_model(composed.path, asked, scoring=bool(composed.score_reference))
    if search is None:
        return
    node = OmegaConf.structured(search)
    for option in _options_in(asked):
        node[option] = composed.search[option]
    with open_dict(composed):
        composed.search = node
    _tell(search, asked)


def _options_in(asked: Mapping[str, Override]) -> frozenset[str]:
    """The options of the search that a command line gives."""
    return frozenset(key.split(".")[1] for key in asked if key.startswith("search."))


def configurations() -> dict[str, type]:
    """Of all commands, for which most starts of one have no use: they take some milliseconds."""
    from nmt.config.aligning import AlignConfig
    from nmt.config.commands import AverageConfig, GenerateConfig, ScoreConfig, ShortlistConfig
    from nmt.config.comparing import CompareConfig
    from nmt.config.exchange import ExportConfig, ImportConfig
    from nmt.config.preprocessing import PreprocessConfig
    from nmt.config.sections import TrainConfig
    from nmt.config.serving import ServeConfig
    from nmt.config.visualizing import VisualizeConfig

    return {
        "preprocess": PreprocessConfig,
        "train": TrainConfig,
        "average_checkpoints": AverageConfig,
        "generate": GenerateConfig,
        "shortlist": ShortlistConfig,
        "score": ScoreConfig,
        "import_": ImportConfig,
        "export": ExportConfig,
        "serve": ServeConfig,
        "visualize": VisualizeConfig,
        "compare": CompareConfig,
        "align": AlignConfig,
    }


# What those who give a run's file to these commands may have meant: the flag that names the run.
_FLAG_OF_RUN = {
    **dict.fromkeys(("generate", "serve", "visualize", "align"), "--path"),
    "average_checkpoints": "--inputs",
}


def refuse_file_of_another(command: str, path: Path, tree: Mapping[str, Any]) -> None:
    """Refuse the configuration of another command; what only has a wrong option here and there is left to others."""
    names = {other: {field.name for field in dataclasses.fields(kind)} for other, kind in configurations().items()}
    if all(key in names[command] or closest(key, names[command]) for key in tree):
        return
    known = {other: len(tree.keys() & names[other]) for other in names}
    owner, *others = [other for other in known if known[other] == max(known.values())]
    if others or owner == command:  # in doubt it is of this command
        return
    its, here = program_of(owner), program_of(command)
    advice = f"give it to {its}, or give a file that {here} --cfg job printed"
    if owner == "train" and command in _FLAG_OF_RUN:
        run = path.parent if path.name == CONFIG else "RUN"
        advice = f"to use the model of the run, leave --config out and give {_FLAG_OF_RUN[command]} {run}"
    raise UsageError(f"{path} is a configuration of {its}, not of {here}; {advice}")


def text_of(
    composed: DictConfig, config_class: type, choices: Mapping[str, str | None], package: str | None, *, resolve: bool
) -> str:
    """What ``--cfg job`` prints: the whole in the form of a run's config.yaml, which ``--config`` reads again, or the part
    ``package``. ``choices``: of each group, what was chosen; it is said in a comment."""
    if resolve:
        OmegaConf.resolve(composed)
    tree: Any = OmegaConf.to_container(composed, enum_to_str=True)
    for group in groups_of(config_class):
        if isinstance(tree.get(group), dict):
            name = registered_name(OmegaConf.get_type(composed, group) or dict)
            tree[group] = ({} if name is None else {"name": name}) | tree[group]
    if package in (None, "_global_"):
        said = " ".join(f"{group}={choice}" for group, choice in choices.items() if choice not in (None, STORED))
    else:
        said = f"@package {package}"
        for key in str(package).split("."):
            if not isinstance(tree, dict) or key not in tree:
                raise UsageError(f"--package {package}: there is no such part; --cfg job alone shows all of them")
            tree = tree[key]
        if not isinstance(tree, (dict, list)):
            return f"{tree}\n"
    return (f"# {said}\n" if said else "") + str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
