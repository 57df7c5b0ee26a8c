"""The training step: the gradients of all batches of an update, divided once by their common denominator, and clipped.

The optimizer must never apply a gradient that is not finite: its averages would not recover from one NaN. To read the loss
and the gradient norm, the CPU waits for the device, and the device then waits for the CPU. If a flag on the device can make
the optimizer skip an update, the numbers are read later, while the device computes the next update.
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
from torch.autograd import Variable

from nmt.config.choices import Precision
from nmt.config.sections import TrainingConfig
from nmt.data.batching.batch import Batch
from nmt.data.batching.variation import PlannedBatch
from nmt.data.language_pair import LanguagePair
from nmt.devices import is_shortage
from nmt.devices.copies import Arriving
from nmt.devices.faults import FastPath, avoids
from nmt.devices.kinds import device_of
from nmt.distributed.world import Share, World
from nmt.errors import DeviceError, NMTError
from nmt.interface import LossReport
from nmt.optim import APPLIED_RATE, Progress, Schedule
from nmt.reporting.figures import UpdateReport
from nmt.reporting.stopwatch import COMPUTING, READING, WAITING
from nmt.storage.files import write_json
from nmt.training.loop.batches import BatchReader, UpdateBatches
from nmt.training.loop.learner import (
    SMALLER_BATCHES,
    Arithmetic,
    Learner,
    all_finite,
    described,
    explained_shortage,
    seed_torch,
)

logger = logging.getLogger("nmt.training")

COLLECTIVE_PASS = "all ranks compute it together, so no rank can split its micro-batch"
MOST = 20  # files of bad updates; further ones would tell nothing new


class UpdateSums:
    """Sums over the batches of an update. They stay on the device until ``send`` copies them to the CPU."""

    def __init__(self) -> None:
        self.sums = torch.zeros(())  # loss, nll, denominator, tokens, sentences, weight, auxiliary losses
        self.names: list[str] = []  # of the auxiliary losses
        self._rate = 0.0
        self._arriving: Arriving | None = None

    def add(self, report: LossReport, *, counts: bool = True) -> None:
        """``counts`` False: a batch without effect, of which only the names of auxiliary losses are kept."""
        self.names = list(report.auxiliary)
        parts = [report.loss_sum.detach(), report.nll_sum, report.denominator, report.num_tokens]
        parts += [torch.full_like(report.num_tokens, report.num_sentences), report.total_weight]
        parts += report.auxiliary.values()
        exact = device_of(report.num_tokens).exact
        sums = torch.stack([part.to(exact) for part in parts])
        self.sums = self.sums + (sums if counts else torch.zeros_like(sums))

    @property
    def denominator(self) -> Tensor:
        """1 instead of 0: an update without tokens or weight has zero gradients and leaves them so."""
        return self.sums[2] + (self.sums[2] == 0)

    def send(self, grad_norm: Tensor, learning_rate: float) -> Tensor:
        """Begin to copy the sums and the gradient norm. Return, on the device, whether loss and gradient are finite and any
        weight is above 0."""
        self._rate = learning_rate
        numbers = torch.cat([self.sums, grad_norm.to(self.sums)[None]])
        self._arriving = device_of(numbers).fetch_later(numbers)
        return numbers[0].isfinite() & numbers[-1].isfinite() & (numbers[2] > 0)

    def receive(self) -> UpdateReport:
        """Wait for the copy that ``send`` began."""
        assert self._arriving is not None
        loss, nll, denominator, tokens, sentences, weight, *auxiliary, norm = self._arriving.wait().tolist()
        named = dict(zip(self.names, auxiliary))
        counts = int(tokens), int(sentences)
        return UpdateReport(loss, nll, denominator, *counts, norm, self._rate, 0.0, named, weight)


@dataclass(frozen=True)
class SettledUpdate:
    """An update whose outcome is known."""

    batches: UpdateBatches
    report: UpdateReport
    overflow: bool  # skipped because its fp16 gradient was too large for the loss scale, which was lowered

    @property
    def is_made(self) -> bool:
        """Whether it was made: otherwise it was skipped, since it was not finite, or all weights are 0."""
        return self.report.finite and not self.report.is_weightless


@dataclass
class Updater:
    """Make updates, each in three calls: ``accumulate`` its gradients, ``launch`` it, and ``settle`` its outcome."""

    learner: Learner
    schedule: Schedule
    reader: BatchReader
    limits: TrainingConfig
    seed: int
    clock: Callable[[], float] = time.monotonic
    too_large: int | None = None  # places of the smallest batch that did not fit into memory

    def __post_init__(self) -> None:
        learner, meets = self.learner, self.learner.world.meets
        self.launches_ahead = runs_ahead(learner.optimizer, learner.arithmetic, learner.world)
        self._base_rates = [float(group["lr"]) for group in learner.optimizer.param_groups]
        self._wrapped = learner.world.wrap(learner.step)
        self._launched: tuple[UpdateBatches, UpdateSums, float] | None = None  # and when it began
        self._settled = 0.0  # when the report of the last update was known
        if "backward" in meets(last=True):
            passes = "any pass" if "backward" in meets(last=False) else "the last backward pass of an update"
            logger.info("if memory runs out in %s, training ends: %s", passes, COLLECTIVE_PASS)

    @property
    def memory(self) -> str:
        """What the size of a batch that does not fit depends on."""
        arithmetic, again = self.learner.arithmetic, self.limits.checkpoint_activations
        if self.learner.world.divides:  # all ranks make the same passes
            return ""
        return f"{device_of(arithmetic.device).hardware}, {arithmetic.precision.name}, {again}"

    def announce(self, updates: Sequence[UpdateBatches]) -> None:
        """Announce the next update, and perhaps some after it, to the reader of batches."""
        batches, *later = ([share.item for share in self.learner.world.shares(update.batches)] for update in updates)
        self.reader.announce(batches, itertools.chain.from_iterable(later))

    def accumulate(self, update: int, batches: UpdateBatches) -> UpdateSums:
        """Leave gradients of the summed loss on the parameters (over n processes, an n-th of it). A batch that does not fit
        into memory is computed in halves, and so are all as large ones from then on."""
        while True:
            self.learner.step.zero_grad(set_to_none=True)
            sums, waiting = UpdateSums(), self.learner.world.shares(batches.batches)[::-1]
            while waiting:
                share = waiting.pop()
                instead = self._add(update, share, sums)
                if instead is None:
                    break  # gradients may be incomplete: the update starts again
                waiting += instead[::-1]
            else:
                sums.sums = self.learner.world.total(sums.sums)
                return sums
            device_of(self.learner.arithmetic.device).release_memory()
            self._remember(update, share)

    def launch(self, batches: UpdateBatches, sums: UpdateSums, progress: Progress, began: float) -> None:
        """Let the optimizer make the update whose gradients were accumulated, if its loss and gradient are finite. If they
        are not, the gradients are clipped only when updates are launched ahead: clipping spreads what is not finite."""
        optimizer = self.learner.optimizer
        with explained_shortage(f"at update {progress.update}, after its gradients were computed", SMALLER_BATCHES):
            parameters, gradients = self._divided(sums)
            norm = self.learner.world.norm(gradients)
            factor = self.schedule(progress)
            for group, base_rate in zip(optimizer.param_groups, self._base_rates):
                group["lr"] = base_rate * factor
            is_made = sums.send(norm, self._base_rates[0] * factor)
            self._launched = batches, sums, began
            if self.launches_ahead:
                optimizer.found_inf = (~is_made).float()  # type: ignore[attr-defined]
            elif not (report := sums.receive()).finite or report.is_weightless:
                return
            if self.limits.clip_norm > 0:
                nn.utils.clip_grads_with_norm_(parameters, self.limits.clip_norm, norm)
            if self.limits.clip_value > 0:
                nn.utils.clip_grad_value_(parameters, self.limits.clip_value)
            optimizer.step()

    def settle(self) -> SettledUpdate | None:
        """Wait for the update that was launched last; None if none was launched since the last call."""
        if self._launched is None:
            return None
        (batches, sums, began), self._launched = self._launched, None
        report = sums.receive()
        overflow = self.learner.arithmetic.observe(loss=report.loss, gradient=report.grad_norm)
        before, self._settled = max(began, self._settled), self.clock()
        if report.finite:
            rate = self.learner.optimizer.param_groups[0].get(APPLIED_RATE, report.learning_rate)
            report = replace(report, learning_rate=rate, seconds=self._settled - before)
        return SettledUpdate(batches, report, overflow)

    def without_finite_gradient(self, update: int, batches: UpdateBatches) -> list[str]:
        """Return the names of parameters without a finite gradient, for an update that was skipped."""
        if self.launches_ahead:  # the gradients of the next update have replaced those of this one
            self._divided(self.accumulate(update, batches))
        return without_finite_gradient(self.learner.step.named_parameters(), self.learner.world)

    def _divided(self, sums: UpdateSums) -> tuple[list[nn.Parameter], list[Tensor]]:
        """Return parameters, and their gradients of the mean loss."""
        parameters = [parameter for parameter in self.learner.step.parameters() if parameter.grad is not None]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        divide(gradients, self.learner.arithmetic.scaled(sums.denominator) / self.learner.world.size)
        return parameters, gradients

    def _add(self, update: int, share: Share[PlannedBatch], sums: UpdateSums) -> list[Share[PlannedBatch]] | None:
        """Compute a batch, or return its halves if it is known to be too large. None: memory was short. Everything that
        holds memory is released when this returns."""
        try:
            with self._explained(update, share, "forward"), self.learner.world.stopwatch.during(READING):
                batch = self.reader(share.item)
            if self._is_too_large(batch):
                return _halves(share)
            seed_torch(self.seed, update, *share.key)
            sums.add(self._forward_backward(update, share, batch), counts=share.counts)
        except Exception as error:
            if not is_shortage(error):
                raise
            is_known = self.too_large is not None and self._is_too_large(self.reader.read(share.item))
            return _halves(share) if is_known else None  # the copy of a batch that is too large may not fit either
        return []

    def _is_too_large(self, batch: Batch) -> bool:
        """Whether a batch that can be halved is as large as one that did not fit."""
        return self.too_large is not None and batch.num_sentences > 1 and places(batch) >= self.too_large

    def _forward_backward(self, update: int, share: Share[PlannedBatch], batch: Batch) -> LossReport:
        world, arithmetic = self.learner.world, self.learner.arithmetic
        with world.backward_of(self._wrapped, last=share.last):
            if self._is_collective(share, "forward"):  # in the backward pass ranks wait at its end
                world.arrive()
            with self._explained(update, share, "forward"), arithmetic.forward_pass():
                report: LossReport = self._wrapped(batch)
            loss = arithmetic.scaled(report.loss_sum)
            with self._explained(update, share, "backward"):
                meets = self._is_collective(share, "backward")
                backward(loss if share.counts else 0.0 * loss, world if meets else None)
            return report

    @contextlib.contextmanager
    def _explained(self, update: int, share: Share[PlannedBatch], which: str) -> Iterator[None]:
        """Let a shortage of memory end training if all ranks make this pass together: none can repeat it in halves."""
        try:
            yield
        except Exception as error:
            if is_shortage(error) and self._is_collective(share, which):
                raise self._shortage(update, share, f"in the {which} pass of a micro-batch", COLLECTIVE_PASS) from error
            raise

    def _is_collective(self, share: Share[PlannedBatch], which: str) -> bool:
        return which in self.learner.world.meets(last=share.last)

    def _remember(self, update: int, share: Share[PlannedBatch]) -> None:
        if len(share.item) == 1:
            raise self._shortage(update, share, "in a micro-batch")
        batch = self.reader.read(share.item)
        self.too_large = places(batch) if self.too_large is None else min(places(batch), self.too_large)
        logger.warning(
            "out of memory at update %d in a micro-batch of %s; from now on micro-batches of this size or larger are "
            "split in halves",
            update,
            described(batch),
        )

    def _shortage(self, update: int, share: Share[PlannedBatch], where: str, *advice: str) -> DeviceError:
        cause = f"out of memory at update {update}, {where} of {described(self.reader.read(share.item))}"
        return DeviceError("; ".join([cause, *advice, SMALLER_BATCHES]))


def places(batch: Batch) -> int:
    """Return the size of a batch: its positions of source and target, padding included."""
    return batch.source.numel() + batch.target_in.numel()


def _halves(share: Share[PlannedBatch]) -> list[Share[PlannedBatch]]:
    middle = len(share.item) // 2
    first = replace(share, item=share.item[:middle], key=(*share.key, 0), last=False)
    return [first, replace(share, item=share.item[middle:], key=(*share.key, 1))]


def backward(loss: Tensor, world: World | None) -> None:
    """Compute gradients. ``world`` is given if its ranks exchange gradients at the end of the pass.

    Torch waits for the exchange in a callback at the end of the pass. Callbacks run in the order of their registration, so
    one that is registered when the pass begins notes when waiting begins.
    """
    if world is None:
        loss.backward()  # type: ignore[no-untyped-call]
        return

    stopwatch = world.stopwatch

    def wait() -> None:
        world.arrive()  # a rank that hangs in its pass has not arrived
        stopwatch.switch(WAITING)

    loss.register_hook(lambda _: Variable._execution_engine.queue_callback(wait))  # type: ignore[no-untyped-call]
    try:
        loss.backward()  # type: ignore[no-untyped-call]
    finally:
        stopwatch.switch(COMPUTING)


def divide(gradients: list[Tensor], denominator: Tensor) -> None:
    """Divide gradients in place, all at once."""
    torch._foreach_div_(gradients, denominator.to(torch.float32))


def runs_ahead(optimizer: torch.optim.Optimizer, arithmetic: Arithmetic, world: World) -> bool:
    """Whether an update is launched before the report of the one before is known: on a device that queues work, with torch's
    fused kernels, which skip an update by ``found_inf``. In fp16 the loss scale of the next update needs the report.

    Not with sharded parameters, where this is untested, nor with subclasses of Adam, which may do more in their step.
    """
    skips_itself = type(optimizer) in (torch.optim.Adam, torch.optim.AdamW) and all(
        group["fused"] for group in optimizer.param_groups
    )
    if arithmetic.precision is Precision.fp16 or world.divides or avoids(arithmetic.device, FastPath.queued_updates):
        return False
    return device_of(arithmetic.device).skips_updates and skips_itself


def without_finite_gradient(parameters: Iterable[tuple[str, nn.Parameter]], world: World) -> list[str]:
    """Return the names of parameters without a finite gradient on any rank. Each rank checks the part that it holds."""
    gradients = {name: parameter.grad for name, parameter in parameters if parameter.grad is not None}
    finite = all_finite([world.local_part(gradient) for gradient in gradients.values()])
    own = [name for name, is_finite in zip(gradients, finite) if not is_finite]
    everywhere = {name for names in world.gather(own) for name in names}
    return [name for name in gradients if name in everywhere]


@dataclass(frozen=True)
class BadUpdates:
    """Write the sentences of skipped updates to JSON files below the ``run`` folder, one file an update. A failure to write
    is only logged."""

    run: Path
    pair: LanguagePair

    def record(
        self, update: int, epoch: int, batches: Sequence[Batch], report: UpdateReport, parameters: Sequence[str]
    ) -> Path | None:
        """Return the file, or None if it was not written. ``parameters``: those whose gradient is not finite."""
        folder = self.run / "bad-updates"
        path = folder / f"update-{update:08d}-{batches[0].sentence_ids[0]}.json"
        try:
            folder.mkdir(exist_ok=True)
            if len(list(folder.glob("*.json"))) >= MOST:
                return None
            contents = {"update": update, "epoch": epoch, "lr": report.learning_rate, "parameters": list(parameters)}
            # JSON knows no infinity, no NaN
            contents |= {"loss": str(report.loss), "grad_norm": str(report.grad_norm)}
            write_json(path, contents | {"batches": [self._described(batch) for batch in batches]})
        except (OSError, NMTError) as error:
            logger.warning("cannot write %s, training continues: %s", path, error)
            return None
        return path

    def _described(self, batch: Batch) -> list[dict[str, Any]]:
        """Sentence pairs, numbered as in the corpus."""
        rows = zip(
            batch.sentence_ids.tolist(),
            [row[:length] for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist())],
            [part.tolist() for part in torch.split(batch.targets, (batch.target_lengths - batch.started).tolist())],
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
