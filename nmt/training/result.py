"""The outcome of a run: where it ended, its curves and scores, and a translator of its best model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nmt.config.sections import LOSSES
from nmt.errors import MissingInputError, quantity
from nmt.pages.frames import framed
from nmt.pages.numbers import figure
from nmt.reporting.html_report import page_of
from nmt.reporting.run_record import RunRecord
from nmt.storage.run_folder import update_of
from nmt.translation import Translator

Curve = list[tuple[int, float]]  # (update, value)


@dataclass(frozen=True, repr=False)
class TrainingResult:
    """The outcome of a run."""

    folder: Path
    update: int
    epoch: int
    ending: str  # the reason
    metric: str
    best: float | None  # the best value of `metric`; None: never validated
    checkpoint: Path | None  # the best one, else the last
    failures: Mapping[str, str] = field(default_factory=dict)  # metrics that could not be computed, and why

    @property
    def curves(self) -> dict[str, Curve]:
        """The figures of ``log.jsonl`` over updates, such as ``train.loss``, ``valid.loss`` and ``valid.bleu``."""
        record = RunRecord.read(self.folder)
        curves = {f"train.{name}": record.training(name) for name in record.names("train") or LOSSES}
        curves |= {f"valid.{name}": record.curve("valid", name) for name in record.names("valid")}
        return {
            name: [(int(update), value) for update, value in curve]
            for name, curve in curves.items()
            if curve and not name.endswith(".seconds")
        }

    @property
    def best_scores(self) -> dict[str, float]:
        """The validation scores of ``checkpoint``; empty without validation."""
        if self.checkpoint is None:
            return {}
        update = update_of(self.checkpoint)
        points = {name: dict(curve) for name, curve in self.curves.items() if name.startswith("valid.")}
        return {name.removeprefix("valid."): curve[update] for name, curve in points.items() if update in curve}

    @cached_property
    def translator(self) -> Translator:
        """A translator of ``checkpoint``, loaded on first use."""
        if self.checkpoint is None:
            raise MissingInputError(f"{self.folder} has no checkpoint to translate with; train for longer")
        return Translator.load(self.checkpoint)

    def __repr__(self) -> str:
        best = "" if self.best is None else f", best {self.metric} {figure(self.best)}"
        made = f"{quantity(self.update, 'update')}, {quantity(self.epoch, 'epoch')}"
        return f"<TrainingResult {self.folder}: {made}{best}>"

    def _repr_html_(self) -> str:
        return framed(page_of(self.folder), f"Training run {self.folder}")
