"""What the validation set says of a model: its loss, and scores of its translations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from nmt.config.sections import BatchingConfig
from nmt.data.batch import pad
from nmt.data.batching import plan_batches
from nmt.data.corpus import Split
from nmt.data.language_pair import LanguagePair
from nmt.interface import EncoderDecoder, LossReport
from nmt.scoring import Scorer
from nmt.search import Search
from nmt.training.batches import read_batch
from nmt.training.meters import perplexity
from nmt.training.step import described, explained_shortage

logger = logging.getLogger("nmt.training")

SMALLER_BATCHES = "lower --max-tokens (a sentence longer than it is still a batch of its own)"
FEWER_HYPOTHESES = "lower --max-tokens or the beam of the search"

Indices = npt.NDArray[np.int64]
Autocast = Callable[[], AbstractContextManager[object]]


class ValidationStopped(Exception):
    """A request to stop came in the middle of a validation; it is done again when training goes on."""


class Validator(Protocol):
    """Figures about the model as it is now, by name."""

    def __call__(self, stop: Callable[[], bool]) -> dict[str, float]:
        """``stop`` is asked between batches; raise ``ValidationStopped`` when it says so."""
        ...


@dataclass(frozen=True)
class Place:
    """Where and how validation computes."""

    device: torch.device
    autocast: Autocast


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


class LossValidator:
    """Teacher forcing over the whole split: loss per denominator, likelihood per token (nats), perplexity."""

    def __init__(self, step: torch.nn.Module, split: Split, batching: BatchingConfig, place: Place) -> None:
        self._step = step
        self._split = split
        self._place = place
        self._batches = _plan(split.source_lengths, split.target_lengths, batching)

    def __call__(self, stop: Callable[[], bool]) -> dict[str, float]:
        loss = nll = denominator = tokens = 0.0
        for indices in _unless_stopped(self._batches, stop):
            batch = read_batch(self._split, indices)
            where = f"in validation, in a batch of {described(batch)}"
            with explained_shortage(where, SMALLER_BATCHES), torch.no_grad(), self._place.autocast():
                report: LossReport = self._step(batch.to(self._place.device))
            loss += float(report.loss_sum)
            nll += float(report.nll_sum)
            denominator += float(report.denominator)
            tokens += float(report.num_tokens)
        per_token = nll / max(1.0, tokens)
        return {"loss": loss / max(1.0, denominator), "nll": per_token, "ppl": perplexity(per_token)}


class TranslationValidator:
    """Translates the first sentences of a split, shows some, and scores all of them.

    A score that cannot be computed is reported and left out; it never ends training. ``failures`` keeps the reasons.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        search: Search,
        pair: LanguagePair,
        split: Split,
        scorers: Mapping[str, Scorer],
        batching: BatchingConfig,
        place: Place,
        *,
        sentences: int,
        samples: int,
        show: Callable[[Sequence[Sample]], None] = log_samples,
    ) -> None:
        self._model = model
        self._search = search
        self._pair = pair
        self._split = split
        self._scorers = scorers
        self._place = place
        self._count = min(sentences, len(split))
        self._samples = samples
        self._show = show
        self._batches = _plan(split.source_lengths[: self._count], None, batching)
        self.failures: dict[str, str] = {}

    def __call__(self, stop: Callable[[], bool]) -> dict[str, float]:
        try:
            hypotheses = self._translate(stop)
        except ValidationStopped:
            raise
        except Exception as error:  # whatever a search or a plugin does wrong, the training run is worth more
            self._failed("translation", error)
            return {}
        references = self._lines("target")
        shown = zip(range(self._samples), self._lines("source"), references, hypotheses)
        self._show([Sample(*texts) for _, *texts in shown])
        scores: dict[str, float] = {}
        for name, scorer in self._scorers.items():
            try:
                scores[name] = scorer(hypotheses, [references]).value
            except Exception as error:
                self._failed(name, error)
        return scores

    def _translate(self, stop: Callable[[], bool]) -> list[str]:
        lines = [""] * self._count
        for indices in _unless_stopped(self._batches, stop):
            source, lengths = pad([self._split.source(i) for i in indices.tolist()])
            device = self._place.device
            where = f"in a batch of {source.size(0)} sentences of up to {source.size(1)} pieces"
            with explained_shortage(where, FEWER_HYPOTHESES), torch.no_grad(), self._place.autocast():
                results = self._search(self._model, source.to(device), lengths.to(device))
            for index, hypotheses in zip(indices.tolist(), results):
                lines[index] = self._pair.target.decode(hypotheses[0].tokens.tolist())
        return lines

    def _lines(self, side: str) -> list[str]:
        """The text as it was read; where a split does not keep it, what its ids stand for."""
        text = self._split.source_text() if side == "source" else self._split.target_text()
        if text is not None:
            return text[: self._count]
        tokenizer = self._pair.source if side == "source" else self._pair.target
        ids = self._split.source if side == "source" else self._split.target
        return [tokenizer.decode(ids(index).tolist()) for index in range(self._count)]

    def _failed(self, what: str, error: Exception) -> None:
        self.failures[what] = f"{type(error).__name__}: {error}"
        logger.error("validation: %s failed, training goes on (%s)", what, self.failures[what])


def _plan(source_lengths: Indices, target_lengths: Indices | None, batching: BatchingConfig) -> list[Indices]:
    """Batches by length; a sentence longer than ``max_tokens`` gets a batch of its own."""
    longest = int(max(lengths.max(initial=1) for lengths in (source_lengths, target_lengths) if lengths is not None))
    return plan_batches(
        source_lengths,
        target_lengths,
        max_tokens=None if batching.max_tokens is None else max(batching.max_tokens, longest),
        batch_size=batching.batch_size,
        shuffle=False,
    )


def _unless_stopped(batches: Sequence[Indices], stop: Callable[[], bool]) -> Iterator[Indices]:
    for indices in batches:
        if stop():
            raise ValidationStopped
        yield indices
