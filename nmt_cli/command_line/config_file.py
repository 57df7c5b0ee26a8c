"""Configurations in files: the base that ``--config`` names, the search that the model of ``--path`` was validated with, and
the text that ``--cfg job`` prints. None needs torch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.composing.assignments import Assignment
from nmt.config.composing.composition import Composition, unchecked
from nmt.config.composing.presets import Base
from nmt.config.composing.programs import command_of, program_of
from nmt.config.earlier_versions import as_today
from nmt.config.plain import put, to_plain, values_from_plain
from nmt.config.sections import CheckpointConfig
from nmt.errors import DataError, MissingInputError, NMTError, UsageError, closest
from nmt.hub import checkpoint_at
from nmt.search.validated_search import described, for_scoring, on_validated_search
from nmt.storage.files import yaml_text
from nmt.storage.reading import YAML_FAULTS, read_file, require_bounded_yaml, require_bounds
from nmt.storage.run_folder import CONFIG, read_config, split_paths
from nmt_cli.command_line.argv import CommandLine
from nmt_cli.command_line.programs import COMMANDS, options_class
from nmt_cli.process import logger

_MOST_PARTS = 100_000  # values of a configuration; OmegaConf needs kilobytes for each


@dataclass(frozen=True)
class ConfigFile:
    """A configuration as a run stores it, or as ``--cfg job`` prints it."""

    path: Path
    tree: dict[str, Any]

    @classmethod
    def read(cls, name: str) -> ConfigFile:
        """A file, or the folder of a run or a checkpoint with its ``config.yaml``."""
        from omegaconf import OmegaConf  # most command lines name no file
        from omegaconf.errors import OmegaConfBaseException

        path = Path(name).expanduser()
        path = path / CONFIG if path.is_dir() else path
        if not path.is_file():
            raise MissingInputError(f"--config {name}: {path} does not exist (working directory: {Path.cwd()})")
        content = read_file(path)
        try:
            text = content.decode("utf-8")
            require_bounded_yaml(text, _MOST_PARTS)
            # OmegaConf's reader knows 1e-3 as a number, and interpolations.
            tree = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
            require_bounds(tree)
        except (*YAML_FAULTS, OmegaConfBaseException) as error:
            raise DataError(f"{path} cannot be read as a configuration: {' '.join(str(error).split())}") from None
        if not isinstance(tree, dict):
            raise DataError(f"{path} is not a configuration; give the config.yaml of a run, or the output of --cfg job")
        return cls(path, as_today({str(key): value for key, value in tree.items()}, path))

    @property
    def user_dir(self) -> str | None:
        user_dir = self.tree.get("user_dir")
        return user_dir if isinstance(user_dir, str) else None

    @property
    def save_dir(self) -> str | None:
        """Return the run folder that the file gives to nmt-train; None if its value is invalid."""
        section = self.tree.get("checkpoint", {})
        save_dir = section.get("save_dir", CheckpointConfig().save_dir) if isinstance(section, dict) else None
        return save_dir if isinstance(save_dir, str) and save_dir else None

    def base(self, config_class: type) -> Base:
        """Check the file against the options of a command, and return them. Errors name the file. Rules that concern several
        sections are left to the composition: the command line may give the rest."""
        refuse_file_of_another(config_class, self.path, self.tree)
        try:
            values_from_plain(config_class, self.tree, origin=str(self.path))
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}") from None
        return Base(self.tree)


def base_of(config_class: type, line: CommandLine, file: ConfigFile | None) -> Base:
    """Return what a command line starts from: the file of ``--config``, a primary configuration, or the defaults."""
    name, path = line.hydra.get("--config-name"), line.hydra.get("--config-path")
    if file is None:
        return Base(primary=name, config_path=path)
    if name is not None:
        raise UsageError(f"--config {file.path} and --config-name {name} exclude each other; give one")
    return file.base(config_class)


def with_search_of_model(
    config_class: type, assignments: Sequence[Assignment], folders: Sequence[Path], base: Base, *, tell: bool
) -> tuple[list[Assignment], Base]:
    """Add the search stored with the model of ``path`` to the base, unless the file of ``--config`` has one or the user
    chooses another one. An assignment that chooses the stored search by its name is left out.

    ``tell``: log options of the stored search that differ from the defaults.
    """
    if "search" in base.tree:
        return [*assignments], base
    others = [assignment for assignment in assignments if assignment.key.partition(".")[0] != "search"]
    path, scoring = (unchecked(config_class, key, others, folders, base) for key in ("path", "score_reference"))
    trees = _configurations(path) if isinstance(path, str) and path else {}
    kept, search = on_validated_search(assignments, trees)
    if search is None:
        return kept, base
    search = for_scoring(search) if scoring is True else search
    options = {assignment.key.partition(".")[2] for assignment in assignments if assignment.key.startswith("search.")}
    if tell and (options_told := described(search, omitted=options)) != "beam":  # the default search
        logger.info(f"searching as the model was validated: {options_told}")
    return kept, dataclasses.replace(base, tree={**base.tree, "search": to_plain(search)})


def _configurations(path: str) -> dict[str, Mapping[str, Any]]:
    """Return the stored options of each model of ``--path``, by their file."""
    with contextlib.suppress(NMTError, OSError):  # a model that cannot be read is an error when it is loaded
        checkpoints = [checkpoint_at(place) for place in split_paths(path)]
        return {str(checkpoint / CONFIG): read_config(checkpoint) for checkpoint in checkpoints}
    return {}


# Commands that read a run: the flag that names it.
_FLAG_OF_RUN = {
    **dict.fromkeys(("generate", "serve", "visualize", "align"), "--path"),
    "average_checkpoints": "--inputs",
}


def refuse_file_of_another(config_class: type, path: Path, tree: Mapping[str, Any]) -> None:
    """Refuse the configuration of another command. Single wrong options are left to the check of the file."""
    command = command_of(config_class)
    names = {other: {field.name for field in dataclasses.fields(options_class(other))} for other in COMMANDS}
    if command not in names or all(key in names[command] or closest(key, names[command]) for key in tree):
        return
    known = {other: len(tree.keys() & names[other]) for other in names}
    owner, *others = [other for other in known if known[other] == max(known.values())]
    if others or owner == command:  # in doubt it is of this command
        return
    its, here = program_of(owner), program_of(command)
    advice = f"use it with {its}, or give the output of {here} --cfg job"
    if owner == "train" and command in _FLAG_OF_RUN:
        run = path.parent if path.name == CONFIG else "RUN"
        advice = f"to use the model of the run, omit --config and give {_FLAG_OF_RUN[command]} {run}"
    raise UsageError(f"{path} is a configuration of {its}, not of {here}; {advice}")


def text_of(composition: Composition, package: str | None, *, resolve: bool) -> str:
    """Return the text that ``--cfg job`` prints: the options in the form of a run's config.yaml, which ``--config`` reads,
    or the section ``package``. A comment names the presets."""
    tree: Any = to_plain(composition.config)
    for key, value in {} if resolve else composition.interpolations.items():
        put(tree, key, value)
    if package in (None, "_global_"):
        comment = " ".join(f"{group}={choice}" for group, choice in composition.choices.items() if choice is not None)
    else:
        comment = f"@package {package}"
        for key in str(package).split("."):
            if not isinstance(tree, dict) or key not in tree:
                raise UsageError(f"--package {package} is not a section; --cfg job shows all of them")
            tree = tree[key]
        if not isinstance(tree, (dict, list)):
            return f"{to_plain(tree)}\n"
    return (f"# {comment}\n" if comment else "") + yaml_text(tree)
