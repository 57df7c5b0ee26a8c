"""nmt-train: learn a model from a corpus folder. The run folder is the result; only --dry-run says something on standard
output."""

from __future__ import annotations

import logging
from pathlib import Path

import nmt.criterions
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - their options are known from here on; torch is imported by what trains
from nmt.config.sections import TrainConfig
from nmt.data.augmentations import chosen
from nmt.registry import registered_name
from nmt.reporting.callbacks import checked
from nmt.scoring import scorers
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.train")


def check(config: TrainConfig) -> None:
    """Check the options that need no corpus."""
    _check_names(config)
    from nmt.training.setup.parts import check_without_corpus

    check_without_corpus(config)


def _check_names(config: TrainConfig) -> None:
    """Refuse misspelled names, before torch is imported."""
    for metric in config.validation.metrics:
        scorers.config_class(metric)
    chosen(config.variation.augment)
    checked(config.report.callbacks)


def run(config: TrainConfig) -> float | None:
    """Train; the best validation figure is what a sweep compares."""
    _check_names(config)
    for folder in config.data:
        if not Path(folder).expanduser().exists():
            from nmt.data.corpus.folder import Corpus

            Corpus.open(Path(folder))  # says what is missing
    # Before torch is imported, which takes seconds.
    name, corpora = registered_name(type(config.model)), ", ".join(config.data)
    logger.info(f"training {name} on {corpora}; run folder: {config.checkpoint.save_dir}")
    from nmt.training.assemble import dry_run, train

    if config.dry_run:
        rows = dry_run(config)
        width = max(map(len, rows), default=0)
        for label, value in rows.items():
            print(f"{label:<{width}}  {value}")
        return None
    result = train(config)
    for metric, reason in result.failures.items():
        logger.warning("%s could not be computed: %s", metric, reason)
    best = "" if result.best is None else f", best {result.metric} {result.best:.4f}"
    logger.info(
        f"done: {result.ending} (update {result.update}, epoch {result.epoch}){best}; the model is {result.checkpoint}"
    )
    return result.best


def main() -> None:
    launch(TrainConfig, run)


if __name__ == "__main__":
    main()
