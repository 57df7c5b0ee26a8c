"""Training objectives. A criterion runs the model itself and returns its own denominator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nmt.registry import Registry, import_configs

if TYPE_CHECKING:
    from nmt.criterions.criterion import Criterion

__all__ = ["Criterion", "criterions"]

# builder(config, **parts) -> Criterion. A builder is handed the finished parts that it names as parameters: `sampler`
# and `reward` (see `nmt.criterions.sequences`; their options are those of `SequenceConfig`), `teacher` (an
# `EncoderDecoder` in eval mode; the option `teacher` says where it lies).
criterions: Registry[Criterion] = Registry("criterion")

import_configs(__name__, __path__)


def __getattr__(name: str) -> Any:
    if name == "Criterion":  # on first use: options are known without torch
        from nmt.criterions.criterion import Criterion

        return Criterion
    raise AttributeError(f"module 'nmt.criterions' has no attribute '{name}'")
