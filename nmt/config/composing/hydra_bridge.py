"""All that touches Hydra's internals: composing presets, sweeps, and what Hydra prints about itself.

``hydra.main`` is not used: it builds an argument parser, which fails on Python 3.14 (Hydra's issue 3121), and reads
``sys.argv``. ``hydra.initialize`` is not used: it keeps one composer for the whole process, and jobs of a sweep compose too.

Hydra composes plain trees. Types, unknown keys and values are checked against our dataclasses (``composition.py``).
"""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal import utils
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra._internal.hydra import Hydra
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.errors import HydraException, MissingConfigException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException

from nmt.config.composing.assignments import quoted
from nmt.config.composing.presets import RECIPE, RECIPES, Base, default_presets, refuse_clashes, unknown_preset
from nmt.config.composing.programs import command_of, program_of
from nmt.config.composing.refusals import unknown_key
from nmt.config.option import groups_of, options_of
from nmt.config.plain import to_plain
from nmt.errors import AlreadyReported, UsageError, did_you_mean
from nmt.registry import registry_for

PRESETS = "pkg://nmt.conf"
BASE = "_base_"  # the component of a group that the base has chosen
CONFIGURATION_ERRORS = (HydraException, OmegaConfBaseException)

# What to install for missing launchers and sweepers.
EXTRAS = {
    **dict.fromkeys(("joblib", "submitit_local", "submitit_slurm"), "'nmt-toolkit[sweep]'"),
    "optuna": "'nmt-toolkit[optuna]'",
}

Choices = dict[str, str | None]


def compose_presets(
    config_class: type, names: Mapping[str, str], folders: Sequence[Path], base: Base, search_path: Sequence[str] = ()
) -> tuple[Choices, dict[str, Any]]:
    """Compose the presets ``names`` (by group) and the defaults of the other groups over ``base``.

    Returns what each group is set to, and the values that presets and base state. ``search_path``: an override of Hydra's.
    """
    if folders or search_path or base != Base():  # files may change
        return _compose_presets(config_class, names, folders, base, search_path)
    return copy.deepcopy(_compose_own_presets(config_class, tuple(names.items())))


@functools.lru_cache(maxsize=1000)
def _compose_own_presets(config_class: type, names: tuple[tuple[str, str], ...]) -> tuple[Choices, dict[str, Any]]:
    """Compose presets of this package alone. Hydra takes 20 ms each time, so a program composes them once."""
    return _compose_presets(config_class, dict(names), (), Base(), ())


def _compose_presets(
    config_class: type, names: Mapping[str, str], folders: Sequence[Path], base: Base, search_path: Sequence[str]
) -> tuple[Choices, dict[str, Any]]:
    overrides = [*search_path, *(f"{group}={quoted(name)}" for group, name in names.items())]
    with one_line(config_class, folders), _temporary_store():
        _publish(config_class, base, complete=False)
        loader = _loader(folders, base.config_path)
        if base.primary is not None:  # it may set options of Hydra's own
            whole = loader.load_configuration(base.primary, overrides, RunMode.RUN)
            choices, tree = dict(whole.hydra.runtime.choices), OmegaConf.to_container(whole)
        else:
            choices, tree = _compose(loader, _presets_of(config_class), overrides)
    assert isinstance(tree, dict)
    tree.pop("hydra", None)
    choices = {group: choices.get(group) for group in default_presets(config_class)}
    return {group: None if name == BASE else name for group, name in choices.items()}, {
        str(key): value for key, value in tree.items()
    }


def compose_preset(group: str, name: str, folders: Sequence[Path]) -> dict[str, Any]:
    """Compose one preset of a group. Returns the name of its component and the values that the preset states."""
    with one_line(object, folders), _temporary_store() as store:
        for component in registry_for(group).names():
            store.store(group=group, name=component, node={"name": component})
        store.store(name="_preset", node={"defaults": [{group: name}, "_self_"]})
        _, tree = _compose(_loader(folders, None), "_preset", [])
    section: dict[str, Any] = tree[group]
    return section


class HydraApplication:
    """A command as Hydra's own functions see it: every option in one tree, which they may print or sweep."""

    def __init__(self, config_class: type, folders: Sequence[Path], base: Base) -> None:
        _publish(config_class, base, complete=True)
        self._config_class, self._folders = config_class, folders
        self._primary = base.primary or command_of(config_class)
        with self._one_line():
            self._hydra = Hydra(_program_of(config_class), _loader(folders, base.config_path))

    def check(self, overrides: Sequence[str]) -> None:
        """Refuse options of Hydra's own that do not exist."""
        with self._one_line():
            self._hydra.compose_config(self._primary, [*map(self._written, overrides)], RunMode.RUN)

    def run(self, overrides: Sequence[str], task: Callable[[DictConfig], Any]) -> None:
        """Run one job in the surroundings that options of Hydra's own describe: folder, log, callbacks."""
        with self._one_line():
            self._hydra.run(self._primary, task, [*map(self._written, overrides), "hydra.mode=RUN"])

    def sweep(
        self,
        overrides: Sequence[str],
        task: Callable[[DictConfig], Any],
        begin: Callable[[Path, Path | None], None],
    ) -> None:
        """Run the jobs of a sweep. ``begin`` receives the folder of the sweep and that of the launcher's logs."""
        with self._one_line():
            config = self._hydra.compose_config(
                self._primary,
                [*map(self._written, overrides), "hydra.mode=MULTIRUN"],
                RunMode.MULTIRUN,
                with_log_configuration=True,
            )
            logs = OmegaConf.select(config, "hydra.launcher.submitit_folder")
            begin(Path(config.hydra.sweep.dir), None if logs is None else Path(logs))
            callbacks = Callbacks(config)
            callbacks.on_multirun_start(config=config, config_name=self._primary)
            context = HydraContext(config_loader=self._hydra.config_loader, callbacks=callbacks)
            sweeper = Plugins.instance().instantiate_sweeper(config=config, hydra_context=context, task_function=task)
            sweeper.sweep(arguments=_as_typed(config.hydra.overrides.task))
            callbacks.on_multirun_end(config=config, config_name=self._primary)

    def show_config(self, overrides: Sequence[str], kind: str, package: str | None, *, resolve: bool) -> None:
        """Print the configuration of Hydra (``hydra``), or with it that of the command (``all``)."""
        with self._one_line():
            try:
                self._hydra.show_cfg(self._primary, [*map(self._written, overrides)], kind, package, resolve)
            except SystemExit:  # Hydra has said that the package does not exist
                raise AlreadyReported("", UsageError.exit_status) from None

    def show_info(self, overrides: Sequence[str], subject: str) -> None:
        """Print how Hydra composed: defaults, search path, plugins."""
        with self._one_line():
            self._hydra.show_info(subject, self._primary, [*map(self._written, overrides)])

    def _written(self, override: str) -> str:
        """Return an override as Hydra takes it: it adds a name to a mapping only after two plus signs."""
        mappings = [flag.key for flag in options_of(self._config_class) if isinstance(flag.default, dict)]
        named = any(override.startswith((f"{key}.", f"{key}={{")) for key in mappings)
        return f"++{override}" if named else override

    def _one_line(self) -> contextlib.AbstractContextManager[None]:
        return one_line(self._config_class, self._folders)


def job_overrides() -> tuple[list[str], list[str]]:
    """Return the assignments of the job that Hydra runs in this process: those of the command, and those of Hydra."""
    overrides = HydraConfig.get().overrides
    return _as_typed(overrides.task), _as_typed(overrides.hydra)


def _as_typed(overrides: Any) -> list[str]:
    """Return the texts of overrides. Interpolations in them are kept: composing resolves them."""
    texts: Any = OmegaConf.to_container(overrides, resolve=False)
    return list(texts)


@contextlib.contextmanager
def one_line(config_class: type, folders: Sequence[Path]) -> Iterator[None]:
    """Turn Hydra's errors into a ``UsageError``: a message of ours if the error has attributes to build it from, otherwise
    Hydra's text in one line."""
    try:
        yield
    except MissingConfigException as error:
        raise UsageError(_missing(error, folders)) from None
    except CONFIGURATION_ERRORS as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OmegaConfBaseException):
            cause = cause.__cause__
        if isinstance(cause, (ConfigKeyError, ConfigAttributeError)) and cause.full_key:
            raise UsageError(unknown_key(str(cause.full_key), config_class)) from None
        text = str(error) or str(cause)
        raise UsageError("; ".join(line.strip() for line in text.splitlines() if line.strip())) from None


def _missing(error: MissingConfigException, folders: Sequence[Path]) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = sorted(error.options or ())
    if not error.missing_cfg_file:
        return " ".join(str(error).split())
    if not group:
        return f"there is no configuration '{name}' (--config-name, --config-dir, --config-path)"
    if not group.startswith("hydra/"):
        return str(unknown_preset(group, name, folders))
    if name in EXTRAS and group in ("hydra/launcher", "hydra/sweeper"):
        return f"{group}={name} is not installed: pip install {EXTRAS[name]}"
    return f"unknown {group} '{name}'{did_you_mean(name, options)}; there are: {', '.join(options) or 'none'}"


def _loader(folders: Sequence[Path], config_path: str | None) -> ConfigLoaderImpl:
    version.setbase("1.3")
    setup_globals()
    refuse_clashes(folders)
    named = config_path is not None and "://" not in config_path
    search_path = utils.create_config_search_path(
        f"file://{Path(str(config_path)).resolve()}" if named else config_path
    )
    for place in (PRESETS, *(f"file://{folder.resolve()}" for folder in folders)):
        search_path.prepend("nmt", place, SearchPathQuery(provider="schema"))
    return ConfigLoaderImpl(search_path)


def _compose(loader: ConfigLoaderImpl, primary: str, overrides: Sequence[str]) -> tuple[Choices, dict[str, Any]]:
    """Compose without Hydra's own options, which take two thirds of the time."""
    parsed, repository = loader._parse_overrides_and_create_caching_repo(primary, list(overrides))
    listed = create_defaults_list(repository, primary, parsed, prepend_hydra=False, skip_missing=False)
    tree = OmegaConf.to_container(loader._compose_config_from_defaults_list(listed.defaults, repository))
    return dict(listed.overrides.known_choices), tree  # type: ignore[return-value]


@contextlib.contextmanager
def _temporary_store() -> Iterator[ConfigStore]:
    """Forget what is stored in the block. A sweep in the same process composes its jobs from what it has stored."""
    Plugins.instance()  # stores the options of Hydra's plugins when it is first called; they must stay
    store = ConfigStore.instance()
    before = store.repo
    vars(store)["__deepcopy__"] = lambda memo: store  # Hydra copies the store with each loader: a third of composing
    store.repo = {name: dict(node) if isinstance(node, dict) else node for name, node in before.items()}
    try:
        yield store
    finally:
        store.repo = before


def _publish(config_class: type, base: Base, *, complete: bool) -> None:
    """Store primary configurations and components where Hydra finds them by name.

    ``complete``: with all options and defaults, which sweeps and ``--cfg all`` need; otherwise without defaults.
    """
    store, name, groups = ConfigStore.instance(), command_of(config_class), groups_of(config_class)
    for group, role in groups.items():
        registry = registry_for(role)
        for component in registry.names():
            defaults = to_plain(registry.config_class(component)()) if complete else {}
            store.store(group=group, name=component, node={"name": component, **defaults})
        if base.tree.get(group) is not None:
            store.store(group=group, name=BASE, node=dict(base.tree[group]))
    chosen = {group: None if base.tree[group] is None else BASE for group in groups if group in base.tree}
    schema = {key: value for key, value in to_plain(config_class()).items() if key not in groups} if complete else {}
    store.store(name=f"{name}_schema", node=schema)
    presets = default_presets(config_class)
    entries: list[Any] = [{group: preset} for group, preset in (presets | chosen).items() if group not in RECIPES]
    last: list[Any] = [{group: None} for group in RECIPES if group in presets]  # it changes everything before it
    values = {key: value for key, value in base.tree.items() if key not in groups}
    store.store(name=_presets_of(config_class), node={"defaults": [*entries, "_self_", *last], **values})
    silent = [{f"override hydra/{log}": "none"} for log in ("job_logging", "hydra_logging")]
    listed = [f"{name}_schema", *entries, "_self_", *last, *silent]
    store.store(name=name, node={"defaults": listed, "hydra": _surroundings(config_class), **values})


def _surroundings(config_class: type) -> dict[str, Any]:
    """Return options of Hydra's own: a command leaves nothing in the working folder that it was not asked for."""
    job = {"name": _program_of(config_class), "chdir": False}
    options: dict[str, Any] = {"run": {"dir": "."}, "output_subdir": None, "job": job}
    if RECIPE in default_presets(
        config_class
    ):  # runs of a sweep have folders below --save-dir (nmt_cli/sweeps/sweep.py)
        options["sweep"] = {"dir": "${checkpoint.save_dir}", "subdir": "."}
    return options


def _presets_of(config_class: type) -> str:
    return f"_{command_of(config_class)}_presets"


def _program_of(config_class: type) -> str:
    return program_of(command_of(config_class))
