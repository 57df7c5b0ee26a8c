"""What an update with a gradient that is not finite was made of, kept so that somebody can look at it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nmt.data.batch import Batch
from nmt.data.language_pair import LanguagePair
from nmt.distributed.world import World
from nmt.errors import NMTError
from nmt.reporting.meters import UpdateReport
from nmt.storage.files import write_json

logger = logging.getLogger("nmt.training")

FOLDER = "bad-updates"
MOST = 20  # files; further ones would tell nothing new


@dataclass(frozen=True)
class BadUpdates:
    """Writes a JSON file for each, below the ``run`` folder. One that cannot be written costs no more than itself."""

    run: Path
    pair: LanguagePair

    def record(
        self, update: int, epoch: int, batches: Sequence[Batch], figures: UpdateReport, parameters: Sequence[str]
    ) -> Path | None:
        """``parameters``: those whose gradient is not finite. The file, or None if there is none."""
        folder = self.run / FOLDER
        path = folder / f"update-{update:08d}-{batches[0].sentence_ids[0]}.json"
        try:
            folder.mkdir(exist_ok=True)
            if len(list(folder.glob("*.json"))) >= MOST:
                return None
            contents = {"update": update, "epoch": epoch, "lr": figures.learning_rate, "parameters": list(parameters)}
            contents |= {
                "loss": str(figures.loss),
                "grad_norm": str(figures.grad_norm),
            }  # JSON knows no infinity, no NaN
            write_json(path, contents | {"batches": [self._described(batch) for batch in batches]})
        except (OSError, NMTError) as error:
            logger.warning("cannot write %s, training goes on: %s", path, error)
            return None
        return path

    def _described(self, batch: Batch) -> list[dict[str, Any]]:
        """Sentence pairs, numbered as in the corpus."""
        rows = zip(
            batch.sentence_ids.tolist(),
            [row[:length] for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist())],
            [part.tolist() for part in torch.split(batch.targets, batch.target_lengths.tolist())],
        )
        return [
            {
                "sentence": number,
                "source": self.pair.source.decode(source),
                "target": self.pair.target.decode(target),
                "source_ids": source,
                "target_ids": target,
            }
            for number, source, target in rows
        ]


def without_finite_gradient(parameters: Iterable[tuple[str, nn.Parameter]], world: World) -> list[str]:
    """Names of parameters. Each process looks at what it holds of them, and all are told what any has found."""
    gradients = [(name, parameter.grad) for name, parameter in parameters if parameter.grad is not None]
    own = [name for name, gradient in gradients if not world.held(gradient).isfinite().all()]
    found = {name for part in world.gather(own) for name in part}
    return [name for name, _ in gradients if name in found]
