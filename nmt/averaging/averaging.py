"""The mean of several checkpoints: which of them enter it, and adding them up, with one in memory at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from nmt.averaging.average_scores import Row, compare, find_judge
from nmt.config.averaging import AverageConfig
from nmt.data.language_pair import LanguagePair
from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.models.stored import architecture
from nmt.progress import Watch, in_lines
from nmt.storage.checkpoints import KIND, CheckpointInfo, StoredCheckpoint, read_checkpoint, read_info, write_checkpoint
from nmt.storage.files import check_destination
from nmt.storage.lock import remove_leftovers_of
from nmt.storage.run_folder import checkpoints_in, read_config, tokenizer_folder
from nmt.training.checkpoints.store import BY_EPOCH, BY_MINUTES, BY_UPDATES, best_first
from nmt.training.metrics import check_metric, higher_is_better
from nmt.training.setup.fingerprint import differences

logger = logging.getLogger("nmt.average")

Infos = Mapping[Path, CheckpointInfo]


@dataclass(frozen=True)
class Average:
    """Where it was written, and its scores after those of its parts (empty: they were not computed)."""

    folder: Path
    scores: list[Row]


def average_checkpoints(config: AverageConfig) -> Average:
    """Average the checkpoints that ``config`` selects and write one without training state."""
    if not config.output:
        raise UsageError("say where to write the average: --output FOLDER")
    output = Path(config.output)
    remove_leftovers_of(output)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)
    paths = select(config)
    _check_apart(output, [*map(Path, config.inputs), *paths])
    _check_vocabularies(paths)
    if len(paths) == 1:
        logger.warning("there is one checkpoint to average: the result is a copy of its parameters")
    logger.info("averaging %d checkpoints: %s", len(paths), ", ".join(path.name for path in paths))
    judge = find_judge(config, paths[-1])
    newest, mean = running_mean(paths)
    rows = [] if judge is None else compare(judge, paths, mean, newest.info.update)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)  # again: reading took a while
    scores = rows[-1].scores if rows else {}
    made = {name: value for name, value in newest.info.made.items() if name == "vocabularies"}
    write_checkpoint(
        output,
        model=mean,
        config=newest.config,
        info=CheckpointInfo(newest.info.update, newest.info.epoch, ("average",), scores, made),
        tokenizer=tokenizer_folder(newest.path),
        overwrite=config.overwrite,
    )
    logger.info("wrote %s", output)
    return Average(output, rows)


def running_mean(paths: Sequence[Path], watch: Watch = in_lines) -> tuple[StoredCheckpoint, dict[str, Tensor]]:
    """The last checkpoint, and the mean of the parameters of all, computed in float64."""
    sums: dict[str, Tensor] = {}
    first: StoredCheckpoint | None = None
    stored: StoredCheckpoint | None = None
    count = watch("added up", "checkpoints", len(paths))
    for path in paths:
        stored = read_checkpoint(path)
        _check_finite(stored)
        first = first or stored
        _check_alike(first, stored)
        for name, tensor in stored.model.items():
            wide = tensor.to(torch.float64) if tensor.is_floating_point() else tensor
            if name not in sums:
                sums[name] = wide
            elif tensor.is_floating_point():
                sums[name] += wide
            elif not torch.equal(sums[name], tensor):
                raise DataError(
                    f"{path}: {name} holds integers that differ from the other checkpoints'; they have no mean"
                )
        count(1)
    assert first is not None and stored is not None
    mean = {
        name: (total / len(paths)).to(first.model[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }
    return stored, mean


def select(config: AverageConfig) -> list[Path]:
    """The checkpoints to average, oldest first."""
    _check(config)
    infos = _candidates([Path(name) for name in config.inputs])
    by_epoch = config.num_epoch_checkpoints is not None
    if config.checkpoint_upper_bound is not None:
        bound = config.checkpoint_upper_bound
        infos = {path: info for path, info in infos.items() if (info.epoch if by_epoch else info.update) <= bound}
    if infos and config.num_best_checkpoints is not None:
        return _best(config, infos, config.num_best_checkpoints)
    found, count, hint = list(infos), config.num_update_checkpoints, ""
    if by_epoch:
        found, count = _written_by(infos, BY_EPOCH), config.num_epoch_checkpoints
        hint = "; none was written at an epoch's end"
    elif count is not None:
        found = _written_by(infos, BY_UPDATES, BY_MINUTES)
        hint = "; none was written by updates (was --save-interval-updates set?)"
    if not found:
        raise MissingInputError(f"no checkpoint to average in {', '.join(config.inputs)}{hint}")
    return found if count is None else _as_many(found, count)[-count:]


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


def _written_by(infos: Infos, *reasons: str) -> list[Path]:
    return [path for path, info in infos.items() if set(reasons) & set(info.reasons)]


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


def _check_apart(output: Path, inputs: Iterable[Path]) -> None:
    """The output replaces what bears its name: that must not be an input, nor a folder with an input in it."""
    for path in inputs:
        if path.resolve().is_relative_to(output.resolve()):
            raise OutputError(f"writing {output} would replace {path}, which is averaged; choose another --output")


def _check_vocabularies(paths: Sequence[Path]) -> None:
    """Parameters of models with different vocabularies have no mean, even where the sizes agree."""
    first_of = {tokenizer_folder(path).resolve(): path for path in reversed(paths)}
    if len(first_of) == 1:
        return
    digests = {path: LanguagePair.load(folder).digest() for folder, path in first_of.items()}
    for path, digest in digests.items():
        if digest != digests[paths[0]]:
            raise DataError(f"{path} has other vocabularies than {paths[0]}; they cannot be averaged")


def _check_finite(stored: StoredCheckpoint) -> None:
    for name, tensor in stored.model.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DataError(f"{stored.path}: {name} contains NaN or infinity; leave this checkpoint out")


def _check_alike(first: StoredCheckpoint, other: StoredCheckpoint) -> None:
    """Only checkpoints of one architecture have a mean."""
    others = differences(architecture(first.config.get("model")), architecture(other.config.get("model")))
    if others:
        said = "; ".join(f"model.{option}: {change}" for option, change in others.items())
        raise DataError(f"{other.path} holds another architecture than {first.path} ({said}); they cannot be averaged")
    shapes = {name: tensor.shape for name, tensor in first.model.items()}
    for name in sorted(shapes.keys() | other.model.keys()):
        found = other.model[name].shape if name in other.model else None
        if shapes.get(name) != found:
            raise DataError(f"{other.path}: {name} has shape {found}, but {shapes.get(name)} in {first.path}")
