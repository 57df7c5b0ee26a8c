"""nmt-train: learn a model from a corpus folder. Nothing goes to standard output; the run folder is the result."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import nmt.criterions
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - their options are known from here on; torch is imported by what trains
from nmt.config.sections import TrainConfig
from nmt.data.corpus import Corpus
from nmt.scoring import scorers
from nmt_cli.launch import launch

if TYPE_CHECKING:
    from nmt.training.assemble import TrainingResult

logger = logging.getLogger("nmt.train")


def run(config: TrainConfig) -> float | None:
    """Train; the best validation figure is what a sweep compares."""
    _check_names(config)
    from nmt.training.assemble import train

    result = train(config)
    for metric, reason in result.failures.items():
        logger.warning("%s could not be computed: %s", metric, reason)
    logger.info(_summary(result))
    return result.best


def _check_names(config: TrainConfig) -> None:
    """Misspelt names are refused before anybody waits for torch."""
    for metric in config.validation.metrics:
        scorers.config_class(metric)
    for folder in config.data:
        if not Path(folder).expanduser().exists():
            Corpus.open(Path(folder))  # says what is missing


def main() -> None:
    launch("train", TrainConfig, run)


def _summary(result: TrainingResult) -> str:
    best = "" if result.best is None else f", best {result.metric} {result.best:.4f}"
    return (
        f"done: {result.ending} (update {result.update}, epoch {result.epoch}){best}; the model is {result.checkpoint}"
    )


if __name__ == "__main__":
    main()
