"""Validate a model: its loss on the validation set, scores of its translations, and which update was best."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
import torch

from nmt.config.sections import BatchingConfig, TrainConfig, ValidationConfig
from nmt.data.batching.plan import plan_batches
from nmt.data.corpus.folder import Split
from nmt.data.corpus.lengths import Lengths, longest
from nmt.data.corpus.rows import Rows
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import Direction
from nmt.data.text.piece_marks import joined_lines
from nmt.data.tokenizers import Tokenizer
from nmt.data.vocabulary import Ids, Ints
from nmt.devices.kinds import device_of
from nmt.distributed.world import World
from nmt.engines.model_engine import ModelEngine
from nmt.errors import quantity
from nmt.interface import EncoderDecoder, LossReport
from nmt.optim.schedules import is_better
from nmt.progress import Watch, in_lines
from nmt.reporting.figures import perplexity
from nmt.reporting.reporter import Sample, log_samples
from nmt.scoring import Scorer
from nmt.search import Search, searches
from nmt.search.requests import Request, Sentences
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import Arithmetic, Learner, Step, described, explained_shortage, seed_torch

logger = logging.getLogger("nmt.training")

VALIDATION_SEED = 2**32 - 1  # instead of the index of a micro-batch
SMALLER_BATCHES = "lower --max-tokens (a longer sentence still forms a batch by itself)"
FEWER_HYPOTHESES = "lower --max-tokens or the beam width"

Stop = Callable[[], bool]  # called between batches: True raises ``ValidationStopped``
Validator = Callable[[Stop], dict[str, float]]  # scores of the present model, by name


@dataclass
class BestScore:
    """The best value of one metric; ``patience`` validations without a better value end the run."""

    metric: str
    _: KW_ONLY
    higher_is_better: bool
    patience: int | None = None
    value: float | None = None
    update: int | None = None
    without_improvement: int = 0
    history: list[float] = field(default_factory=list)

    def observe(self, value: float, update: int) -> bool:
        """Record a validation. Return whether it is the best so far; NaN never is."""
        self.history.append(value)
        improved = is_better(value, self.value, higher_is_better=self.higher_is_better)
        if improved:
            self.value, self.update = value, update
        self.without_improvement = 0 if improved else self.without_improvement + 1
        return improved

    def state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("metric", "value", "update", "without_improvement", "history")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a stored state; that of another metric is ignored."""
        if state["metric"] == self.metric:
            self.value, self.update = state["value"], state["update"]
            self.without_improvement, self.history = state["without_improvement"], list(state["history"])


@dataclass(frozen=True)
class Validation:
    """The validators of a run, and their best score so far."""

    validators: Sequence[Validator]
    best: BestScore
    options: ValidationConfig
    learner: Learner
    seed: int

    def __call__(self, update: int, stop: Stop) -> tuple[dict[str, float], bool]:
        """Validate. Return the scores, and whether they are the best so far."""
        with self.learner.evaluating(), self.learner.world.whole():
            scores = validate(self.validators, self.seed, update, stop)
        return scores, self.best.metric in scores and self.best.observe(scores[self.best.metric], update)

    @property
    def failures(self) -> Mapping[str, str]:
        """Metrics that could not be computed, with the error."""
        kinds = TranslationValidator, DirectionsValidator
        return next((validator.failures for validator in self.validators if isinstance(validator, kinds)), {})


@dataclass(frozen=True)
class ValidatedDirection:
    """The validation text of one direction."""

    name: str
    split: Split
    tokens: Direction
    is_zero_shot: bool

    @property
    def figure(self) -> str:
        """The beginning of the names of its figures."""
        return f"zero-shot.{self.name}" if self.is_zero_shot else self.name


class ValidationStopped(Exception):
    """A validation ended early because of a request to stop; the resumed run repeats it."""


@dataclass
class LossValidator:
    """Compute loss per denominator, nll per token (nats) and perplexity with teacher forcing over the whole split."""

    step: torch.nn.Module
    split: Split
    batching: BatchingConfig
    arithmetic: Arithmetic
    world: World
    watch: Watch = in_lines

    def __post_init__(self) -> None:
        self._batches = _plan(self.split.source_lengths, self.split.target_lengths, self.batching)

    def __call__(self, stop: Stop) -> dict[str, float]:
        exact = device_of(self.arithmetic.device).exact
        sums, stopped = torch.zeros(4, dtype=exact, device=self.arithmetic.device), False
        drawn = int(torch.randint(2**62, ()))  # a batch's random numbers do not depend on who computes it
        part = self.world.part(list(enumerate(self._batches)))
        count = self.watch("validation: loss of", "sentences", sum(len(indices) for _, indices in part))
        for number, indices in part:
            if stopped := stop():
                break
            seed_torch(drawn, number)
            batch = read_batch(self.split, indices)
            where = f"in validation, in a batch of {described(batch)}"
            with explained_shortage(where, SMALLER_BATCHES), torch.no_grad(), self.arithmetic.forward_pass():
                report: LossReport = self.step(batch.to(self.arithmetic.device))
            totals = (report.loss_sum, report.nll_sum, report.denominator, report.total_weight)
            sums += torch.stack([total.detach().to(exact) for total in totals])
            count(len(indices))
        loss, nll, denominator, weight, stops = self.world.sums(
            [*device_of(sums).fetched(sums)[0].tolist(), float(stopped)]
        )
        if stops:
            raise ValidationStopped
        per_token = nll / (weight or 1.0)
        return {"loss": loss / (denominator or 1.0), "nll": per_token, "ppl": perplexity(per_token)}


@dataclass
class TranslationValidator:
    """Translate the first sentences of a split, show some, and score all of them. A score that cannot be computed is logged,
    and never ends training; ``failures`` keeps the reasons."""

    model: EncoderDecoder
    search: Search
    pair: LanguagePair
    split: Split
    scorers: Mapping[str, Scorer]
    batching: BatchingConfig
    arithmetic: Arithmetic
    world: World
    sentences: int
    samples: int
    start: tuple[int, ...] = ()  # the tokens that each translation starts after
    show: Callable[[Sequence[Sample]], None] = log_samples
    watch: Watch = in_lines
    failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._count = min(self.sentences, len(self.split))
        lengths = self.split.source_lengths[: self._count]
        worded = np.flatnonzero(lengths > 1)  # a blank line is an empty translation, as nmt-generate has it
        self._batches = [worded[batch] for batch in _plan(lengths[worded], None, self.batching)]

    def __call__(self, stop: Stop) -> dict[str, float]:
        parts = self.world.gather(self._translated(stop))
        if any(part is None for part in parts):
            raise ValidationStopped
        if failed := [part for part in parts if isinstance(part, str)]:
            self._failed("translation", failed[0])
            return {}
        lines = {index: line for part in parts if isinstance(part, dict) for index, line in part.items()}
        hypotheses = [lines.get(index, "") for index in range(self._count)]
        assert self.split.targets is not None, "its loss was computed first"
        references = self._lines(self.split.targets, self.split.target, self.pair.target)
        sources = self._lines(self.split.sources, self.split.source, self.pair.source)
        shown = zip(range(self.samples), sources, references, hypotheses)
        self.show([Sample(*texts) for _, *texts in shown])
        scores, failures = self.world.on_main(lambda: self._scored(hypotheses, references))
        for name, error in failures.items():
            self._failed(name, error)
        return scores

    def _scored(self, hypotheses: list[str], references: list[str]) -> tuple[dict[str, float], dict[str, str]]:
        """Return scores, and why others are missing. Rank 0 computes them, so all ranks make the same decisions."""
        scores, failures = dict[str, float](), dict[str, str]()
        for name, scorer in self.scorers.items():
            try:
                scores[name] = float(scorer(hypotheses, [references]).value)
            except Exception as error:
                failures[name] = f"{type(error).__name__}: {error}"
        return scores, failures

    def _translated(self, stop: Stop) -> dict[int, str] | str | None:
        """Translate this rank's part. Return lines by index, an error as text, or None after a request to stop."""
        lines: dict[int, str] = {}
        part = self.world.part(self._batches)
        count = self.watch("validation: translated", "sentences", sum(map(len, part)))
        try:
            for indices in part:
                if stop():
                    return None
                lines |= zip(indices.tolist(), self._translate(indices), strict=True)
                count(len(indices))
        except Exception as error:  # whatever a search or a plugin does wrong, the training run is worth more
            return f"{type(error).__name__}: {error}"
        return lines

    def _translate(self, indices: Ints) -> list[str]:
        requests = [Request(start=self.start)] * len(indices) if self.start else None
        batch = Sentences([self.split.source(i) for i in indices.tolist()], requests=requests)
        engine = ModelEngine(self.model, self.arithmetic.device)
        where = f"in a batch of {quantity(len(batch.sources), 'sentence')} of up to {batch.lengths.max()} tokens"
        explained = explained_shortage(where, FEWER_HYPOTHESES)
        with explained, torch.no_grad(), self.arithmetic.forward_pass():
            results = self.search.find(engine, batch)
        return [self.pair.target.decode(hypotheses[0].tokens.tolist()) for hypotheses in results]

    def _lines(self, rows: Rows, ids: Callable[[int], Ids], tokenizer: Tokenizer) -> list[str]:
        """Return the original text, joined if it was cut; if the split does not store it, decode the ids."""
        if (text := rows.text()) is not None:
            return joined_lines(text[: self._count], tokenizer.marks)
        return [tokenizer.decode(ids(index).tolist()) for index in range(self._count)]

    def _failed(self, what: str, error: str) -> None:
        self.failures[what] = error
        logger.error("validation: %s failed, training continues (%s)", what, error)


@dataclass(frozen=True)
class DirectionsValidator:
    """Validate several directions. Figures of a direction are named ``en-de.bleu``, those of a zero-shot one
    ``zero-shot.de-fr.bleu``; figures without a direction are means over the trained ones."""

    directions: Sequence[ValidatedDirection]
    validators: Sequence[Sequence[Validator]]  # of each direction

    def __call__(self, stop: Stop) -> dict[str, float]:
        drawn = int(torch.randint(2**62, ()))  # equal on all ranks, whose generators differ after a direction
        figures: list[dict[str, float]] = []
        for number, validators in enumerate(self.validators):
            seed_torch(drawn, number)
            figures.append(dict(each for validator in validators for each in validator(stop).items()))
        trained = [own for direction, own in zip(self.directions, figures) if not direction.is_zero_shot] or figures
        common = [name for name in trained[0] if all(name in own for own in trained)]
        means = {name: sum(own[name] for own in trained) / len(trained) for name in common}
        means["ppl"] = perplexity(means["nll"])
        named = {
            f"{direction.figure}.{name}": value
            for direction, own in zip(self.directions, figures)
            for name, value in own.items()
        }
        return means | named

    @property
    def failures(self) -> Mapping[str, str]:
        return {
            f"{direction.figure}.{name}": error
            for direction, validators in zip(self.directions, self.validators)
            for validator in validators
            if isinstance(validator, TranslationValidator)
            for name, error in validator.failures.items()
        }


def build_validators(
    config: TrainConfig,
    step: Step,
    arithmetic: Arithmetic,
    world: World,
    pair: LanguagePair,
    directions: Sequence[ValidatedDirection],
    scorers: Mapping[str, Scorer],
    show: Callable[[Sequence[Sample]], None] | None = None,
    watch: Watch = in_lines,
) -> list[Validator]:
    """Return the validators of a run: of the loss, and of translations if any are scored or shown. None without directions;
    with several, only the first one shows translations."""
    options, batching, translation = config.validation, config.batching, config.translation
    each: list[list[Validator]] = []
    for direction in directions:
        split, samples = direction.split, 0 if show is None else options.samples
        validators: list[Validator] = [LossValidator(step, split, batching, arithmetic, world, watch)]
        sentences = options.max_sentences if options.max_sentences is not None else len(split)
        if not scorers:
            sentences = min(sentences, samples)
        if sentences:
            search = searches.build(translation.search, translation.candidates())
            parts = (step.model, search, pair, split, scorers, batching, arithmetic, world)
            start = direction.tokens.target
            validators.append(TranslationValidator(*parts, sentences, samples, start, show or log_samples, watch))
        each.append(validators)
        show = None
    return each[0] if len(each) == 1 else [DirectionsValidator(directions, each)] if each else []


def validate(validators: Sequence[Validator], seed: int, update: int, stop: Stop) -> dict[str, float]:
    """Return all scores of a model in eval mode after ``update`` updates."""
    seed_torch(seed, update, VALIDATION_SEED)
    scores: dict[str, float] = {}
    for validator in validators:
        scores |= validator(stop)
    return scores


def _plan(source_lengths: Lengths, target_lengths: Lengths | None, batching: BatchingConfig) -> Sequence[Ints]:
    """Return batches by length; a sentence longer than a batch becomes a batch by itself."""
    most = max(1, *(longest(lengths) for lengths in (source_lengths, target_lengths) if lengths is not None))
    limit = max([most, *filter(None, batching.limits)]) if any(batching.limits) else None
    options = BatchingConfig(limit, batch_size=batching.batch_size)
    return plan_batches(source_lengths, target_lengths, options, shuffle=False)
