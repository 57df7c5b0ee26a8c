"""Translations that a validation shows."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

logger = logging.getLogger("nmt.training")


@dataclass(frozen=True)
class Sample:
    """A sentence of the validation set, and what the model makes of it."""

    source: str
    reference: str
    hypothesis: str


def log_samples(samples: Sequence[Sample]) -> None:
    for number, sample in enumerate(samples, start=1):
        logger.info("sample %d source:     %s", number, sample.source)
        logger.info("sample %d reference:  %s", number, sample.reference)
        logger.info("sample %d hypothesis: %s", number, sample.hypothesis)
