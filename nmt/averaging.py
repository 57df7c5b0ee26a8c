"""Average checkpoints: select them, compute the mean of their parameters with one checkpoint in memory at a time, and
compare its validation scores with theirs, all measured in the same way.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config.choices import Precision
from nmt.config.commands import AverageConfig
from nmt.config.earlier_versions import as_today
from nmt.config.plain import from_plain
from nmt.config.sections import BY_EPOCH, BY_MINUTES, BY_UPDATES, LOSSES, TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.devices import choose_device
from nmt.distributed.world import World
from nmt.errors import DataError, DeviceError, MissingInputError, NMTError, OutputError, UsageError, quantity
from nmt.keywords import configured
from nmt.models.loading import architecture, base_at, find_base, load_model
from nmt.pages.numbers import figure
from nmt.progress import in_lines
from nmt.storage.adapted import ADAPTER, AdapterBase
from nmt.storage.checkpoints import (
    KIND,
    CheckpointInfo,
    StoredCheckpoint,
    load_parameters,
    read_checkpoint,
    read_info,
    write_checkpoint,
)
from nmt.storage.files import check_destination
from nmt.storage.lock import remove_leftovers_of
from nmt.storage.run_folder import checkpoints_in, read_config, tokenizer_folder
from nmt.threads import set_threads
from nmt.training.checkpoints.fingerprint import differences, validation_fingerprint
from nmt.training.checkpoints.retention import best_first, written_for
from nmt.training.loop.learner import Step
from nmt.training.loop.validation import build_validators, validate
from nmt.training.setup.datasets import Datasets, check_lengths, open_validation
from nmt.training.setup.metrics import build_scorers, check_metric, higher_is_better
from nmt.training.setup.parts import build_arithmetic, build_criterion

logger = logging.getLogger("nmt.average")

ELSEWHERE = "name a corpus folder with the same vocabularies (--data), or skip validation (--no-validate)"

Infos = Mapping[Path, CheckpointInfo]


@dataclass(frozen=True)
class Row:
    """One row of the table of scores."""

    name: str
    update: int | None
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Average:
    """The folder of the average, and the scores of its checkpoints, then its own (empty: they were not computed)."""

    folder: Path
    scores: list[Row]

    def __repr__(self) -> str:
        best = ", ".join(
            f"{name} {figure(value)}" for name, value in (self.scores[-1].scores if self.scores else {}).items()
        )
        return f"<Average {self.folder}{': ' if best else ''}{best}>"


def average_checkpoints(config: AverageConfig | None = None, **options: Any) -> Average:
    """Average the checkpoints that ``config`` selects and write one without training state.

    ``options``: options of nmt-average-checkpoints, instead of ``config``.
    """
    config = configured(AverageConfig, config, options, "average_checkpoints")
    if not config.output:
        raise UsageError("no folder for the average is given; set --output FOLDER")
    output = Path(config.output)
    remove_leftovers_of(output)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)
    paths = select(config)
    for path in (*map(Path, config.inputs), *paths):
        if path.resolve().is_relative_to(output.resolve()):  # a file or folder of this name is replaced
            raise OutputError(f"--output {output} would replace {path}, an input of the average; choose another folder")
    _check_vocabularies(paths)
    base = _base_of(paths, output)
    if len(paths) == 1:
        logger.warning("averaging a single checkpoint: the result is a copy of its parameters")
    logger.info("averaging %s: %s", quantity(len(paths), "checkpoint"), ", ".join(path.name for path in paths))
    set_threads(config.threads)
    judge = find_judge(config, paths[-1])
    newest, mean = running_mean(paths)
    rows = [] if judge is None else compare(judge, paths, mean, newest.info.update)
    check_destination(output, KIND, "--output", overwrite=config.overwrite)  # again: reading took a while
    scores = rows[-1].scores if rows else {}
    made = {name: value for name, value in newest.info.made.items() if name in ("vocabularies", ADAPTER)} | base
    info = CheckpointInfo(newest.info.update, newest.info.epoch, ("average",), scores, made)
    folder = tokenizer_folder(newest.path)
    write_checkpoint(output, model=mean, config=newest.config, info=info, tokenizer=folder, overwrite=config.overwrite)
    logger.info("wrote %s", output)
    return Average(output, rows)


def running_mean(paths: Sequence[Path]) -> tuple[StoredCheckpoint, dict[str, Tensor]]:
    """Return the last checkpoint, and the mean of the parameters of all, computed in float64."""
    sums: dict[str, Tensor] = {}
    first: StoredCheckpoint | None = None
    stored: StoredCheckpoint | None = None
    count = in_lines("added up", "checkpoints", len(paths))
    for path in paths:
        stored = read_checkpoint(path)
        first = first or stored
        _check_alike(first, stored)
        for name, tensor in stored.model.items():
            if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise DataError(f"{path}: {name} contains NaN or infinity; omit this checkpoint")
            wide = tensor.to(torch.float64) if tensor.is_floating_point() else tensor
            if name not in sums:
                sums[name] = wide
            elif tensor.is_floating_point():
                sums[name] += wide
            elif not torch.equal(sums[name], tensor):
                raise DataError(
                    f"{path}: the integers of {name} differ from the other checkpoints' and have no mean; omit this "
                    f"checkpoint"
                )
        count(1)
    assert first is not None and stored is not None
    mean = {
        name: (total / len(paths)).to(first.model[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }
    return stored, mean


def select(config: AverageConfig) -> list[Path]:
    """Return the checkpoints to average, oldest first."""
    _check(config)
    infos = _candidates([Path(name) for name in config.inputs])
    by_epoch = config.num_epoch_checkpoints is not None
    if config.checkpoint_upper_bound is not None:
        bound = config.checkpoint_upper_bound
        infos = {path: info for path, info in infos.items() if (info.epoch if by_epoch else info.update) <= bound}
    if infos and config.num_best_checkpoints is not None:
        return _best(config, infos, config.num_best_checkpoints)
    paths, count, hint = list(infos), config.num_update_checkpoints, ""
    if by_epoch:
        paths, count = written_for(infos, {BY_EPOCH}), config.num_epoch_checkpoints
        hint = "; none was written at the end of an epoch"
    elif count is not None:
        paths = written_for(infos, {BY_UPDATES, BY_MINUTES})
        hint = "; none was written within an epoch (train with --save-interval-updates)"
    if not paths:
        raise MissingInputError(f"no checkpoint to average in {', '.join(config.inputs)}{hint}")
    return paths if count is None else _as_many(paths, count)[-count:]


def _check(config: AverageConfig) -> None:
    if not config.inputs:
        raise UsageError("no checkpoints are given; set --inputs RUN_FOLDER, or --inputs CHECKPOINT CHECKPOINT ...")
    counts = {
        "--num-update-checkpoints": config.num_update_checkpoints,
        "--num-epoch-checkpoints": config.num_epoch_checkpoints,
        "--num-best-checkpoints": config.num_best_checkpoints,
    }
    chosen = [flag for flag, count in counts.items() if count is not None]
    if len(chosen) > 1:
        raise UsageError(f"{' and '.join(chosen)} exclude each other; give one")
    if config.metric is None:
        return
    check_metric(config.metric, "metric")
    if config.num_best_checkpoints is None:
        raise UsageError(
            f"metric={config.metric} selects the best checkpoints; set their number with --num-best-checkpoints N"
        )


def _best(config: AverageConfig, infos: Infos, count: int) -> list[Path]:
    metric = config.metric or _own_metric(infos)
    ranked = best_first(infos, metric, higher_is_better=higher_is_better(metric))
    if not ranked:
        others = sorted({name for info in infos.values() for name in info.scores})
        raise MissingInputError(
            f"no checkpoint in {', '.join(config.inputs)} has a score '{metric}'"
            + (f"; there are: {', '.join(others)}" if others else "; none was written at a validation")
        )
    best = set(_as_many(ranked, count)[:count])
    logger.info(
        "best checkpoints by %s: %s",
        metric,
        ", ".join(f"{p.name} ({infos[p].scores[metric]:.4f})" for p in ranked[:count]),
    )
    return [path for path in infos if path in best]


def _own_metric(infos: Infos) -> str:
    """Return the metric that decides which checkpoint of the run is best."""
    metrics = {str(read_config(path)["validation"]["best_metric"]) for path in infos}
    if len(metrics) > 1:
        raise UsageError(
            f"the runs of these checkpoints have different best-checkpoint metrics ({', '.join(sorted(metrics))}); choose "
            f"one, such as --metric {min(metrics)}"
        )
    (metric,) = metrics
    check_metric(metric, "validation.best_metric")
    return metric


def _as_many(paths: list[Path], count: int) -> list[Path]:
    if len(paths) < count:
        logger.warning("only %d of %d requested checkpoints exist; averaging these", len(paths), count)
    return paths


def _candidates(inputs: list[Path]) -> dict[Path, CheckpointInfo]:
    """Return single checkpoints, and all checkpoints of run folders, oldest first."""
    paths: list[Path] = []
    for path in inputs:
        if not path.exists():
            raise MissingInputError(f"{path} does not exist (working directory: {Path.cwd()})")
        paths.extend([path] if (path / "manifest.json").is_file() or path.is_file() else checkpoints_in(path))
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise DataError(f"{path} is given twice; name each checkpoint once")
        seen.add(path.resolve())
    infos = {path: read_info(path) for path in paths}
    return dict(sorted(infos.items(), key=lambda item: (item[1].update, item[1].epoch)))


def _check_vocabularies(paths: Sequence[Path]) -> None:
    """Refuse models of different vocabularies: even if the sizes agree, a mean of their parameters has no meaning."""
    first_of = {tokenizer_folder(path).resolve(): path for path in reversed(paths)}
    if len(first_of) == 1:
        return
    digests = {path: LanguagePair.load(folder).digest() for folder, path in first_of.items()}
    for path, digest in digests.items():
        if digest != digests[paths[0]]:
            raise DataError(f"{path} and {paths[0]} have different vocabularies and cannot be averaged; omit one")


def _base_of(paths: Sequence[Path], output: Path) -> dict[str, Any]:
    """Return the manifest entry for the base model of an average in ``output``; empty if it is missing, or for whole models.
    Refuse adapters with different base models or alphas, and base models with another checksum."""
    kinds, facts = dict[str, Path](), dict[str, Any]()
    for path in paths:
        base = AdapterBase.of(read_info(path).made, str(path))
        kind = "a whole model"
        if base is not None:
            kind = f"an adapter with alpha {base.alpha:g} of the base model with checksum {base.sha256[:12]}"
        kinds.setdefault(kind, path)
        if base is not None:
            with contextlib.suppress(MissingInputError):
                facts = base_at(find_base(base, path), output, base.alpha).facts()
    if len(kinds) > 1:
        listed = "; ".join(f"{path} is {kind}" for kind, path in kinds.items())
        raise DataError(f"cannot average different kinds of checkpoints ({listed}); omit those of other kinds")
    return facts


def _check_alike(first: StoredCheckpoint, other: StoredCheckpoint) -> None:
    """Refuse checkpoints of different architectures."""
    others = differences(architecture(first.config.get("model")), architecture(other.config.get("model")))
    if others:
        listed = "; ".join(f"model.{option}: {change}" for option, change in others.items())
        raise DataError(
            f"{other.path} and {first.path} have different architectures ({listed}) and cannot be averaged; omit one"
        )
    for name in sorted(first.model.keys() | other.model.keys()):
        for stored, reference in ((first, other), (other, first)):
            if name not in stored.model:
                raise DataError(f"{stored.path} lacks {name}, which {reference.path} has; omit one of them")
        shape, expected = other.model[name].shape, first.model[name].shape
        if shape != expected:
            raise DataError(f"{other.path}: {name} has shape {shape}, but {expected} in {first.path}; omit one of them")


class Judge:
    """Validate parameters as a run does: with its validation set, criterion, search, metrics and precision."""

    def __init__(self, path: Path, data: Sequence[str], device: torch.device) -> None:
        """``path``: a checkpoint of the run; ``data``: corpus folders that replace those of its configuration."""
        loaded = load_model(path, device)
        model, pair, tree = loaded.module, loaded.pair, loaded.tree
        config = from_plain(TrainConfig, as_today(tree, path), origin=str(path / "config.yaml"))
        datasets = _open(data or config.data, config.valid_subset, pair)
        check_lengths(model, datasets, config.batching)
        before = read_info(path).made.get("precision")  # the precision that ``auto`` chose in the run
        try:
            arithmetic = build_arithmetic(config, datasets, model, device, Precision[before] if before else None)
        except NMTError:
            raise DeviceError(
                f"the run computes in {config.device.precision.name}, which device {device} does not support; "
                f"choose another --device, or skip validation (--no-validate)"
            ) from None
        criterion = build_criterion(config, datasets, device, World())
        if any(parameter.requires_grad for parameter in criterion.parameters()):
            raise UsageError(
                "the criterion has learned parameters, which an average does not contain; set --no-validate"
            )
        self._step = Step(model, criterion).to(device).eval()
        scorers = build_scorers(config.validation)
        self._validators = build_validators(config, self._step, arithmetic, World(), pair, datasets.validated, scorers)
        self._seed, self._loaded = config.seed, loaded
        self._names = {*LOSSES, *scorers}
        self._fingerprint = validation_fingerprint(config, datasets.valid_identities, str(arithmetic))

    def __call__(self, model: Mapping[str, Tensor], update: int, origin: str) -> dict[str, float]:
        load_parameters(self._step.model, self._loaded.whole(model), origin)
        return validate(self._validators, self._seed, update, lambda: False)

    def of_checkpoint(self, path: Path) -> Mapping[str, float]:
        """Return the stored scores if they are complete and were measured in the same way; otherwise validate."""
        info = read_info(path)
        if self._names <= info.scores.keys() and info.made.get("validated_as") == self._fingerprint:
            return info.scores
        logger.info("validating %s, because it has no scores from the same validation", path)
        return self(read_checkpoint(path).model, info.update, str(path))


def find_judge(config: AverageConfig, path: Path) -> Judge | None:
    """Return the judge; None with ``--no-validate``, or with a warning if no ``--data`` is named and it cannot be built."""
    if not config.validate:
        return None
    device = choose_device(config.device)
    try:
        return Judge(path, config.data, device)
    except NMTError as error:
        if config.data:
            raise
        logger.warning("skipped the validation of the average: %s", error)
        return None


def compare(judge: Judge, paths: Sequence[Path], mean: Mapping[str, Tensor], update: int) -> list[Row]:
    """Return the scores of the checkpoints and, last, of their mean; nothing, with a warning, if they cannot be computed."""
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    try:
        rows = [Row(name, read_info(path).update, judge.of_checkpoint(path)) for name, path in zip(names, paths)]
        return [*rows, Row(f"average of {len(paths)}", None, judge(mean, update, "the average"))]
    except NMTError as error:
        logger.warning("skipped the validation of the average: %s", error)
        return []


def table(rows: Sequence[Row]) -> list[str]:
    """Return lines with aligned columns; "-" for a missing score."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.scores))
    cells = [["checkpoint", "update", *metrics]]
    for row in rows:
        scores = [figure(row.scores[name]) if name in row.scores else "-" for name in metrics]
        cells.append([row.name, "" if row.update is None else str(row.update), *scores])
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in cells]


def _open(folders: Sequence[str], valid_subset: str, pair: LanguagePair) -> Datasets:
    if not folders:
        raise UsageError(f"the configuration of the run names no corpus; {ELSEWHERE}")
    try:
        datasets = open_validation(folders, valid_subset)
    except NMTError as error:
        raise type(error)(f"{error}; {ELSEWHERE}") from None
    if datasets.pair.is_reverse_of(pair) and pair.languages is None:
        raise DataError(
            f"{folders[0]} is a corpus from {pair.target_lang} to {pair.source_lang}, the reverse of the model's direction; "
            f"{ELSEWHERE}"
        )
    if datasets.pair.digest() != pair.digest():
        raise DataError(f"{folders[0]} and the model have different vocabularies; {ELSEWHERE}")
    return datasets
