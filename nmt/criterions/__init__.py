"""Training objectives. A criterion runs the model itself and returns its own denominator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmt.config.roles import CriterionConfig
from nmt.registry import CONFIG, Registry, import_all

if TYPE_CHECKING:
    from nmt.criterions.criterion import Criterion, CriterionParts

__all__ = ["Criterion", "CriterionParts", "criterions"]

# builder(config) or builder(config, parts: CriterionParts) -> Criterion. A builder may also take single parts as parameters:
# `sampler`, `reward` or `teacher`.
criterions: Registry[Criterion] = Registry("criterion", CriterionConfig)

import_all(__name__, __path__, CONFIG)


def __getattr__(name: str) -> Any:
    if name in ("Criterion", "CriterionParts"):  # on first use, so that options do not import torch
        from nmt.criterions import criterion

        return getattr(criterion, name)
    raise AttributeError(f"module 'nmt.criterions' has no attribute '{name}'")
