"""Which checkpoints enter an average."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from nmt.config.commands import AverageConfig
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.storage.checkpoints import CheckpointInfo, checkpoints_in, read_info
from nmt.storage.run_folder import read_config
from nmt.training.checkpoints.retention import BY_EPOCH, BY_MINUTES, BY_UPDATES, best_first
from nmt.training.metrics import check_metric, higher_is_better

logger = logging.getLogger("nmt.average")

Infos = Mapping[Path, CheckpointInfo]


def select(config: AverageConfig) -> list[Path]:
    """The checkpoints to average, oldest first."""
    _check(config)
    infos = _candidates([Path(name) for name in config.inputs])
    by_epoch = config.num_epoch_checkpoints is not None
    if config.checkpoint_upper_bound is not None:
        bound = config.checkpoint_upper_bound
        infos = {path: info for path, info in infos.items() if (info.epoch if by_epoch else info.update) <= bound}
    if not infos:
        raise _nothing(config)
    if config.num_best_checkpoints is not None:
        return _best(config, infos, config.num_best_checkpoints)
    if by_epoch:
        return _last(config, infos, {BY_EPOCH}, config.num_epoch_checkpoints)
    if config.num_update_checkpoints is not None:
        return _last(config, infos, {BY_UPDATES, BY_MINUTES}, config.num_update_checkpoints)
    return list(infos)


def _check(config: AverageConfig) -> None:
    if not config.inputs:
        raise UsageError("say what to average: --inputs RUN_FOLDER, or --inputs CHECKPOINT CHECKPOINT ...")
    counts = {
        "--num-update-checkpoints": config.num_update_checkpoints,
        "--num-epoch-checkpoints": config.num_epoch_checkpoints,
        "--num-best-checkpoints": config.num_best_checkpoints,
    }
    given = [flag for flag, count in counts.items() if count is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} exclude each other; give one")
    if config.metric is None:
        return
    check_metric(config.metric, "metric")
    if config.num_best_checkpoints is None:
        raise UsageError(f"metric={config.metric} chooses among the best; say how many: --num-best-checkpoints N")


def _last(config: AverageConfig, infos: Infos, wanted: set[str], count: int | None) -> list[Path]:
    assert count is not None
    found = [path for path, info in infos.items() if wanted & set(info.reasons)]
    if not found:
        raise _nothing(config)
    return _as_many(found, count)[-count:]


def _best(config: AverageConfig, infos: Infos, count: int) -> list[Path]:
    metric = config.metric or _own_metric(infos)
    found = best_first(infos, metric, higher_is_better=higher_is_better(metric))
    if not found:
        others = sorted({name for info in infos.values() for name in info.scores})
        raise MissingInputError(
            f"no checkpoint in {', '.join(config.inputs)} has a score '{metric}'"
            + (f"; there are: {', '.join(others)}" if others else ", or any other: none was written at a validation")
        )
    best = set(_as_many(found, count)[:count])
    logger.info(
        "the best by %s: %s", metric, ", ".join(f"{p.name} ({infos[p].scores[metric]:.4f})" for p in found[:count])
    )
    return [path for path in infos if path in best]


def _own_metric(infos: Infos) -> str:
    """What decided which checkpoint of the run is the best."""
    metrics = {str(read_config(path)["validation"]["best_metric"]) for path in infos}
    if len(metrics) > 1:
        raise UsageError(
            f"the checkpoints are of runs with several best-checkpoint metrics ({', '.join(sorted(metrics))}); choose one: "
            f"--metric {min(metrics)}"
        )
    (metric,) = metrics
    check_metric(metric, "validation.best_metric")
    return metric


def _as_many(found: list[Path], count: int) -> list[Path]:
    if len(found) < count:
        logger.warning("only %d of the %d checkpoints asked for exist; averaging these", len(found), count)
    return found


def _candidates(inputs: list[Path]) -> dict[Path, CheckpointInfo]:
    """Checkpoints named one by one, oldest first; a run folder stands for all that it holds."""
    found: list[Path] = []
    for path in inputs:
        if not path.exists():
            raise MissingInputError(f"{path} does not exist (working directory: {Path.cwd()})")
        found.extend([path] if (path / "manifest.json").is_file() or path.is_file() else checkpoints_in(path))
    seen: set[Path] = set()
    for path in found:
        if path.resolve() in seen:
            raise DataError(f"{path} is given twice; each checkpoint may enter the average once")
        seen.add(path.resolve())
    infos = {path: read_info(path) for path in found}
    return dict(sorted(infos.items(), key=lambda item: (item[1].update, item[1].epoch)))


def _nothing(config: AverageConfig) -> MissingInputError:
    hint = ""
    if config.num_update_checkpoints is not None:
        hint = "; none was written by updates (was --save-interval-updates set?)"
    elif config.num_epoch_checkpoints is not None:
        hint = "; none was written at an epoch's end"
    return MissingInputError(f"no checkpoint to average in {', '.join(config.inputs)}{hint}")
