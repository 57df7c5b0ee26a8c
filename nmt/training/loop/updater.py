"""The training step: the gradients of all batches of an update, divided once by their common denominator, and clipped.

The optimizer must never see a loss or a gradient that is not finite: its averages would not recover from one NaN. Who asks
the device for such a figure waits for it, and the device for Python afterwards. So where the optimizer can pass over an
update by itself, it is told on the device, and the figures are read while that computes the next update.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config.choices import Precision
from nmt.config.sections import TrainingConfig
from nmt.data.batch import Batch
from nmt.data.language_pair import LanguagePair
from nmt.data.variation import Sentences
from nmt.devices import is_shortage
from nmt.distributed.world import Share, World
from nmt.errors import DeviceError, NMTError
from nmt.interface import LossReport
from nmt.optim import APPLIED_RATE, Progress, Schedule
from nmt.reporting.figures import UpdateReport
from nmt.storage.files import write_json
from nmt.training.loop.batches import BatchReader, UpdateBatches
from nmt.training.loop.learner import SMALLER_BATCHES, Arithmetic, Learner, described, explained_shortage, seed_torch

logger = logging.getLogger("nmt.training")

TOGETHER = "the processes make this pass together, so none can do its batch in halves"
MOST = 20  # files of bad updates; further ones would tell nothing new


class Totals:
    """Sums over the batches of an update, which stay on the device until somebody asks for them."""

    def __init__(self) -> None:
        self.sums = torch.zeros((), dtype=torch.float64)  # loss, nll, denominator, tokens, sentences, auxiliary losses
        self.names: list[str] = []  # of the auxiliary losses

    def add(self, report: LossReport, *, counts: bool = True) -> None:
        """``counts`` False: only the names are taken note of."""
        self.names = list(report.auxiliary)
        parts = [report.loss_sum.detach(), report.nll_sum, report.denominator, report.num_tokens]
        parts += [torch.full_like(report.num_tokens, report.num_sentences), *report.auxiliary.values()]
        found = torch.stack([part.double() for part in parts])
        self.sums = self.sums + (found if counts else torch.zeros_like(found))

    @property
    def denominator(self) -> Tensor:
        """Never zero: an update without a single token has zero gradients and leaves them so."""
        return self.sums[2].clamp(min=1e-8)


class Figures:
    """The sums and the gradient norm of an update, on their way from the device."""

    def __init__(self, sums: Tensor, grad_norm: Tensor, names: Sequence[str], learning_rate: float) -> None:
        """``sums``: as in ``Totals``, with the auxiliary losses called ``names``."""
        numbers = torch.cat([sums, grad_norm.double()[None]])
        self.finite = numbers[0].isfinite() & numbers[-1].isfinite()  # on the device
        self._names = names
        self._learning_rate = learning_rate
        self._numbers, self._arrived = numbers, None
        if numbers.is_cuda:
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._arrived = torch.cuda.current_stream(numbers.device).record_event()

    def fetch(self) -> UpdateReport:
        """Wait for them."""
        if self._arrived is not None:
            self._arrived.synchronize()
        loss, nll, denominator, tokens, sentences, *auxiliary, grad_norm = self._numbers.tolist()
        named, rate = dict(zip(self._names, auxiliary)), self._learning_rate
        return UpdateReport(loss, nll, denominator, int(tokens), int(sentences), grad_norm, rate, 0.0, named)


@dataclass(frozen=True)
class Settled:
    """An update that was made if its figures are finite; otherwise nothing is left of it but its place in the data."""

    batches: UpdateBatches
    figures: UpdateReport
    overflow: bool  # in fp16 its gradient was too large for the loss scale, which is smaller now


@dataclass
class Updater:
    """Makes one update after the other: ``accumulate`` its gradients, ``launch`` it, ``settle`` what became of it."""

    learner: Learner
    schedule: Schedule
    reader: BatchReader
    limits: TrainingConfig
    seed: int
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        learner, meets = self.learner, self.learner.world.meets
        self.ahead = runs_ahead(learner.optimizer, learner.arithmetic, learner.world)
        self._base_rates = [float(group["lr"]) for group in learner.optimizer.param_groups]
        self._wrapped = learner.world.wrap(learner.step)
        self._launched: tuple[UpdateBatches, Figures, float] | None = None  # and when it began
        self._settled = 0.0  # when the figures of the last update were known
        if "backward" in meets(last=True):
            passes = "any pass" if "backward" in meets(last=False) else "the last backward pass of an update"
            logger.info("should memory run short in %s, training ends: %s", passes, TOGETHER)

    def announce(self, updates: Sequence[UpdateBatches]) -> None:
        """The next update, and perhaps some after it."""
        batches, *later = ([share.item for share in self.learner.world.shares(one.batches)] for one in updates)
        self.reader.announce(batches, itertools.chain.from_iterable(later))

    def accumulate(self, update: int, batches: UpdateBatches) -> Totals:
        """Leave gradients of the summed loss on the parameters (over n processes, an n-th of it). A batch that finds no
        memory is done in halves."""
        shares = self.learner.world.shares(batches.batches)
        while True:
            self.learner.step.zero_grad(set_to_none=True)
            totals = Totals()
            failed = next((share for share in shares if not self._add(update, share, totals)), None)
            if failed is None:
                totals.sums = self.learner.world.total(totals.sums)
                return totals
            if self.learner.arithmetic.device.type == "cuda":
                torch.cuda.empty_cache()
            at = shares.index(failed)
            shares[at : at + 1] = self._halves(update, failed)  # from the start: gradients may be incomplete

    def launch(self, batches: UpdateBatches, totals: Totals, progress: Progress, began: float) -> None:
        """Let the optimizer make the update whose gradients were accumulated, if its figures are finite. Gradients that
        are not are clipped only if nobody will look at them: it spreads what is not finite."""
        optimizer = self.learner.optimizer
        with explained_shortage(f"at update {progress.update}, after its gradients were computed", SMALLER_BATCHES):
            parameters, gradients = self._divided(totals)
            norm = self.learner.world.norm(gradients)
            factor = self.schedule(progress)
            for group, base_rate in zip(optimizer.param_groups, self._base_rates):
                group["lr"] = base_rate * factor
            figures = Figures(totals.sums, norm, totals.names, self._base_rates[0] * factor)
            self._launched = batches, figures, began
            if self.ahead:
                optimizer.found_inf = (~figures.finite).float()  # type: ignore[attr-defined]
            elif not figures.fetch().finite:
                return
            if self.limits.clip_norm > 0:
                nn.utils.clip_grads_with_norm_(parameters, self.limits.clip_norm, norm)
            if self.limits.clip_value > 0:
                nn.utils.clip_grad_value_(parameters, self.limits.clip_value)
            optimizer.step()

    def settle(self) -> Settled | None:
        """Wait for the update that was launched last; None if none was since."""
        if self._launched is None:
            return None
        (batches, arriving, began), self._launched = self._launched, None
        figures = arriving.fetch()
        overflow = self.learner.arithmetic.observe(loss=figures.loss, gradient=figures.grad_norm)
        before, self._settled = max(began, self._settled), self.clock()
        if figures.finite:
            rate = self.learner.optimizer.param_groups[0].get(APPLIED_RATE, figures.learning_rate)
            figures = replace(figures, learning_rate=rate, seconds=self._settled - before)
        return Settled(batches, figures, overflow)

    def without_finite_gradient(self, update: int, batches: UpdateBatches) -> list[str]:
        """Names of parameters, for an update that was not made."""
        if self.ahead:  # the gradients of the next one have taken the place of its own
            self._divided(self.accumulate(update, batches))
        return without_finite_gradient(self.learner.step.named_parameters(), self.learner.world)

    def _divided(self, totals: Totals) -> tuple[list[nn.Parameter], list[Tensor]]:
        """Parameters, and their gradients of the mean loss."""
        parameters = [parameter for parameter in self.learner.step.parameters() if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        divide(gradients, self.learner.arithmetic.scaled(totals.denominator) / self.learner.world.size)
        return parameters, gradients

    def _add(self, update: int, share: Share[Sentences], totals: Totals) -> bool:
        """Whether there was memory for a batch. What held it is gone when this returns."""
        seed_torch(self.seed, update, *share.key)
        try:
            totals.add(self._forward_backward(update, share), counts=share.counts)
        except Exception as error:
            if not is_shortage(error):
                raise
            return False
        return True

    def _forward_backward(self, update: int, share: Share[Sentences]) -> LossReport:
        world, arithmetic = self.learner.world, self.learner.arithmetic
        with world.backward_of(self._wrapped, last=share.last):
            with self._all_present(update, share, "forward"), arithmetic.forward_pass():
                report: LossReport = self._wrapped(self.reader(share.item).to(arithmetic.device))
            loss = arithmetic.scaled(report.loss_sum)
            with self._all_present(update, share, "backward"):
                (loss if share.counts else 0.0 * loss).backward()  # type: ignore[no-untyped-call]
            return report

    @contextlib.contextmanager
    def _all_present(self, update: int, share: Share[Sentences], which: str) -> Iterator[None]:
        """Around a pass. If all processes make it together, a shortage of memory ends training: none can repeat it in
        halves."""
        try:
            yield
        except Exception as error:
            if is_shortage(error) and which in self.learner.world.meets(last=share.last):
                raise self._shortage(update, share, f"in the {which} pass of a batch", TOGETHER) from error
            raise

    def _halves(self, update: int, share: Share[Sentences]) -> list[Share[Sentences]]:
        if len(share.item) == 1:
            raise self._shortage(update, share, "in a batch")
        logger.warning("out of memory at update %d in a batch of %s; doing it in halves", update, self._size(share))
        middle = len(share.item) // 2
        first = replace(share, item=share.item[:middle], key=(*share.key, 0), last=False)
        return [first, replace(share, item=share.item[middle:], key=(*share.key, 1))]

    def _shortage(self, update: int, share: Share[Sentences], where: str, *advice: str) -> DeviceError:
        found = f"out of memory at update {update}, {where} of {self._size(share)}"
        return DeviceError("; ".join([found, *advice, SMALLER_BATCHES]))

    def _size(self, share: Share[Sentences]) -> str:
        return described(self.reader.read(share.item))


def divide(gradients: list[Tensor], denominator: Tensor) -> None:
    """In place, all at once."""
    torch._foreach_div_(gradients, denominator.to(torch.float32))


def runs_ahead(optimizer: torch.optim.Optimizer, arithmetic: Arithmetic, world: World) -> bool:
    """Whether an update is launched before the figures of the one before are known: on a GPU, with torch's fused kernels,
    which know ``found_inf``. In fp16 the loss scale of the next update needs them.

    Parameters that are shared out wait: it has not been tried with these. What is built upon Adam may do more.
    """
    passes_over = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and all(
        group["fused"] for group in optimizer.param_groups
    )
    scales = arithmetic.precision is Precision.fp16
    return arithmetic.device.type == "cuda" and passes_over and not scales and not world.divides


def without_finite_gradient(parameters: Iterable[tuple[str, nn.Parameter]], world: World) -> list[str]:
    """Names of parameters. Each process looks at what it holds of them, and all are told what any has found."""
    gradients = [(name, parameter.grad) for name, parameter in parameters if parameter.grad is not None]
    own = [name for name, gradient in gradients if not world.held(gradient).isfinite().all()]
    found = {name for part in world.gather(own) for name in part}
    return [name for name, _ in gradients if name in found]


@dataclass(frozen=True)
class BadUpdates:
    """What updates with a gradient that is not finite were made of, kept so that somebody can look at it: a JSON file for
    each, below the ``run`` folder. One that cannot be written costs no more than itself."""

    run: Path
    pair: LanguagePair

    def record(
        self, update: int, epoch: int, batches: Sequence[Batch], figures: UpdateReport, parameters: Sequence[str]
    ) -> Path | None:
        """``parameters``: those whose gradient is not finite. The file, or None if there is none."""
        folder = self.run / "bad-updates"
        path = folder / f"update-{update:08d}-{batches[0].sentence_ids[0]}.json"
        try:
            folder.mkdir(exist_ok=True)
            if len(list(folder.glob("*.json"))) >= MOST:
                return None
            contents = {"update": update, "epoch": epoch, "lr": figures.learning_rate, "parameters": list(parameters)}
            # JSON knows no infinity, no NaN
            contents |= {"loss": str(figures.loss), "grad_norm": str(figures.grad_norm)}
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
