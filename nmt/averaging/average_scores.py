"""What an average is worth: its validation scores beside those of its parts, all of them measured alike."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

import nmt.criterions
import nmt.optim
import nmt.search  # noqa: F401  (each fills its registry)
from nmt.config.choices import Precision, ProgressStyle
from nmt.config.commands import AverageConfig
from nmt.config.plain import from_plain
from nmt.config.sections import LOSSES, TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.devices import choose_device, make_current
from nmt.distributed.world import World
from nmt.errors import DataError, DeviceError, NMTError, UsageError
from nmt.interface import EncoderDecoder
from nmt.models.stored import load_model
from nmt.reporting.numbers import figure
from nmt.storage.checkpoints import load_parameters, read_checkpoint, read_info
from nmt.training.loop.precision import Arithmetic, choose_precision
from nmt.training.loop.step import Step
from nmt.training.metrics import build_scorers
from nmt.training.setup.criterion_parts import build_criterion
from nmt.training.setup.datasets import Datasets, check_lengths, open_validation
from nmt.training.setup.fingerprint import validation_fingerprint
from nmt.training.validation.validators import Place, build_validators, validate

logger = logging.getLogger("nmt.average")

ELSEWHERE = "name a corpus folder of the same vocabularies with --data, or do without with --no-validate"


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    update: int | None
    scores: Mapping[str, float]


class Judge:
    """Measures parameters on the validation set of a run: with its criterion, search, metrics and precision."""

    def __init__(self, path: Path, data: Sequence[str], device: torch.device) -> None:
        """``path``: a checkpoint of the run; ``data``: other corpus folders than those of its configuration."""
        loaded = load_model(path, device)
        model, pair, tree = loaded.module, loaded.pair, loaded.tree
        config = from_plain(TrainConfig, tree, origin=str(path / "config.yaml"))
        config = replace(config, data=list(data) or config.data, validation=replace(config.validation, samples=0))
        config = replace(config, report=replace(config.report, progress=ProgressStyle.lines))
        datasets = _open(config, pair)
        check_lengths(model, datasets, config.batching)
        arithmetic = Arithmetic(device, _precision(config, path, model, pair, device))
        arithmetic.prepare(model)
        criterion = build_criterion(config, datasets, device, World())
        if any(parameter.requires_grad for parameter in criterion.parameters()):
            raise UsageError("the criterion has learned parameters of its own, and an average has none of them")
        self._step = Step(model, criterion).to(device).eval()
        place, scorers = Place(device, arithmetic.forward_pass, World()), build_scorers(config.validation)
        self._validators = build_validators(config, self._step, place, pair, datasets.valid, scorers)
        self._seed = config.seed
        self._names = {*LOSSES, *scorers}
        self._fingerprint = validation_fingerprint(config, datasets.valid_identities, arithmetic)

    def __call__(self, model: Mapping[str, Tensor], update: int, origin: str) -> dict[str, float]:
        load_parameters(self._step.model, model, origin)
        return validate(self._validators, self._seed, update, lambda: False)

    def of_checkpoint(self, path: Path) -> Mapping[str, float]:
        """The stored scores if they are complete and were measured as this judge does; otherwise it measures."""
        info = read_info(path)
        if self._names <= info.scores.keys() and info.made.get("validated_as") == self._fingerprint:
            return info.scores
        logger.info("validating %s, which has no scores that were measured like those of the average", path)
        return self(read_checkpoint(path).model, info.update, str(path))


def find_judge(config: AverageConfig, path: Path) -> Judge | None:
    """None if no scores are wanted, or, said in one line, if they cannot be computed and nobody named a corpus."""
    if not config.validate:
        return None
    device = choose_device(config.device)
    make_current(device)
    try:
        return Judge(path, config.data, device)
    except NMTError as error:
        if config.data:
            raise
        logger.warning("the validation score of the average is not computed: %s", error)
        return None


def compare(judge: Judge, paths: Sequence[Path], mean: Mapping[str, Tensor], update: int) -> list[Row]:
    """The parts and, last, their mean; nothing, said in one line, where a device fails."""
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = [str(path) for path in paths]
    try:
        rows = [Row(name, read_info(path).update, judge.of_checkpoint(path)) for name, path in zip(names, paths)]
        return [*rows, Row(f"average of {len(paths)}", None, judge(mean, update, "the average"))]
    except NMTError as error:
        logger.warning("the validation score of the average is not computed: %s", error)
        return []


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of aligned columns; "-" where there is no score."""
    metrics = list(dict.fromkeys(name for row in rows for name in row.scores))
    cells = [["checkpoint", "update", *metrics]]
    for row in rows:
        scores = [figure(row.scores[name]) if name in row.scores else "-" for name in metrics]
        cells.append([row.name, "" if row.update is None else str(row.update), *scores])
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in cells]


def _precision(
    config: TrainConfig, path: Path, model: EncoderDecoder, pair: LanguagePair, device: torch.device
) -> Precision:
    """That of the run; where it was ``auto``, what this meant at the checkpoint."""
    wanted, before = config.device.precision, read_info(path).made.get("precision")
    sizes = {"width": model.width, "vocabulary": len(pair.target.vocabulary)}
    try:
        return choose_precision(wanted, device, **sizes, before=None if before is None else Precision[before])
    except NMTError:
        raise DeviceError(
            f"the run computes in {wanted.name}, which device {device} cannot; choose another --device, or do without with "
            f"--no-validate"
        ) from None


def _open(config: TrainConfig, pair: LanguagePair) -> Datasets:
    if not config.data:
        raise UsageError(f"the configuration of the run names no corpus; {ELSEWHERE}")
    try:
        datasets = open_validation(config)
    except NMTError as error:
        raise type(error)(f"{error}; {ELSEWHERE}") from None
    if datasets.pair.is_reverse_of(pair):
        raise DataError(
            f"{config.data[0]} goes from {pair.target_lang} to {pair.source_lang}, the other way than the model; {ELSEWHERE}"
        )
    if datasets.pair.digest() != pair.digest():
        raise DataError(f"{config.data[0]} has other vocabularies than the model; {ELSEWHERE}")
    return datasets
