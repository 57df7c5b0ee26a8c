"""The first half of an update: the gradients of all its batches, summed over them and over the processes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace

import torch

from nmt.devices import is_shortage
from nmt.distributed.world import Share, World
from nmt.errors import DeviceError
from nmt.interface import LossReport
from nmt.training.loop.batches import Indices
from nmt.training.loop.precision import Arithmetic
from nmt.training.loop.reading import Reader
from nmt.training.loop.step import Step, Totals, described, seed_torch

logger = logging.getLogger("nmt.training")

SMALLER_BATCHES = "lower --max-tokens and raise --update-freq by the same factor"
TOGETHER = "the processes make this pass together, so none can do its batch in halves"


class Accumulation:
    """Runs the step on batch after batch. One that finds no memory is done in halves."""

    def __init__(self, step: Step, read: Reader, arithmetic: Arithmetic, world: World, seed: int) -> None:
        self._step = step
        self._wrapped = world.wrap(step)
        self._read = read
        self._arithmetic = arithmetic
        self._world = world
        self._seed = seed
        if world.meets(last=True).backward:
            passes = "any pass" if world.meets(last=False).backward else "the last backward pass of an update"
            logger.info("should memory run short in %s, training ends: %s", passes, TOGETHER)

    def announce(self, batches: tuple[Indices, ...]) -> None:
        """Those of the next update."""
        self._read.announce(share.item for share in self._world.shares(batches))

    def __call__(self, update: int, batches: tuple[Indices, ...]) -> Totals:
        """Leaves gradients of the summed loss on the parameters (over n processes, an n-th of it)."""
        shares = self._world.shares(batches)
        while True:
            self._step.zero_grad(set_to_none=True)
            totals = Totals()
            failed = next((share for share in shares if not self._add(update, share, totals)), None)
            if failed is None:
                totals.over(self._world.total)
                return totals
            if self._arithmetic.device.type == "cuda":
                torch.cuda.empty_cache()
            at = shares.index(failed)
            shares[at : at + 1] = self._halves(update, failed)  # from the start: gradients may be incomplete

    def _add(self, update: int, share: Share[Indices], totals: Totals) -> bool:
        """Whether there was memory for a batch. What held it is gone when this returns."""
        seed_torch(self._seed, update, *share.key)
        try:
            totals.add(self._forward_backward(update, share), counts=share.counts)
        except Exception as error:
            if not is_shortage(error):
                raise
            return False
        return True

    def _forward_backward(self, update: int, share: Share[Indices]) -> LossReport:
        meeting = self._world.meets(last=share.last)
        with self._world.backward_of(self._wrapped, last=share.last):
            with self._all_present(meeting.forward, update, share, "forward"), self._arithmetic.forward_pass():
                report: LossReport = self._wrapped(self._read(share.item).to(self._arithmetic.device))
            loss = self._arithmetic.scaled(report.loss_sum)
            with self._all_present(meeting.backward, update, share, "backward"):
                (loss if share.counts else 0.0 * loss).backward()  # type: ignore[no-untyped-call]
            return report

    @contextlib.contextmanager
    def _all_present(self, meet: bool, update: int, share: Share[Indices], which: str) -> Iterator[None]:
        """A pass in which processes ``meet``: none can leave it to do halves, for the others wait in the middle of it."""
        try:
            yield
        except Exception as error:
            if meet and is_shortage(error):
                raise self._shortage(update, share, f"in the {which} pass of a batch", TOGETHER) from error
            raise

    def _halves(self, update: int, share: Share[Indices]) -> list[Share[Indices]]:
        if len(share.item) == 1:
            raise self._shortage(update, share, "in a batch")
        logger.warning("out of memory at update %d in a batch of %s; doing it in halves", update, self._size(share))
        middle = len(share.item) // 2
        first = replace(share, item=share.item[:middle], key=(*share.key, 0), last=False)
        return [first, replace(share, item=share.item[middle:], key=(*share.key, 1))]

    def _shortage(self, update: int, share: Share[Indices], where: str, *advice: str) -> DeviceError:
        found = f"out of memory at update {update}, {where} of {self._size(share)}"
        return DeviceError("; ".join([found, *advice, SMALLER_BATCHES]))

    def _size(self, share: Share[Indices]) -> str:
        return described(self._read.plain(share.item))
