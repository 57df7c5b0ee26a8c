"""Gradients of an update whose batches do not fit, with an injected shortage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.sections import Precision, TrainingConfig
from nmt.data.batching.batch import Batch
from nmt.data.corpus.folder import Split
from nmt.distributed.world import World
from nmt.errors import DeviceError
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.loop.batches import BatchReader, UpdateBatches, read_batch
from nmt.training.loop.learner import Arithmetic, Learner, Step
from nmt.training.loop.updater import Updater, UpdateSums, places

CPU = torch.device("cpu")


def from_the_allocator() -> RuntimeError:
    """What torch says when a tensor of the CPU finds no memory, in the words of this version and system."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**61, dtype=torch.uint8)
    return caught.value


class Small(Step):
    """Has memory for so many sentences; the rest fails in the forward pass, or in the middle of the backward pass."""

    fits = 100
    fails_in = "forward"
    error: Exception = torch.OutOfMemoryError("CUDA out of memory")
    sizes: list[int]  # of the batches that were tried

    def forward(self, batch: Batch) -> Any:
        self.sizes.append(batch.num_sentences)
        short = batch.num_sentences > self.fits
        if short and self.fails_in == "forward":
            raise self.error
        if short:
            next(iter(self.model.parameters())).register_hook(self._exhausted)
        return super().forward(batch)

    def _exhausted(self, gradient: Tensor) -> None:
        hooks = next(iter(self.model.parameters()))._backward_hooks
        assert hooks is not None
        hooks.clear()
        raise self.error


def small(make_step: Callable[..., Step], **options: Any) -> Small:
    step = make_step()
    step.__class__ = Small
    assert isinstance(step, Small)
    step.sizes = []
    for name, value in options.items():
        setattr(step, name, value)
    return step


def accumulate(step: Step, read: BatchReader, world: World, *batches: Any) -> UpdateSums:
    """The first half of the first update."""
    arithmetic = Arithmetic(torch.device("cpu"), Precision.fp32)
    learner = Learner(step, torch.optim.SGD(step.parameters()), arithmetic, world)
    updater = Updater(learner, lambda progress: 1.0, read, TrainingConfig(), seed=1)
    return updater.accumulate(1, UpdateBatches(batches, 1, DataPosition()))


def gradients(step: Step, split: Split, updates: tuple[Any, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """All gradients as one vector, the denominator and the loss."""
    totals = accumulate(
        step, BatchReader(lambda indices: read_batch(split, indices), torch.device("cpu")), World(), *updates
    )
    found = [parameter.grad.flatten() for parameter in step.parameters() if parameter.grad is not None]
    return torch.cat(found), totals.denominator, totals.sums[0]


@pytest.mark.parametrize("fails_in", ["forward", "backward"])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), from_the_allocator()])
def test_a_batch_without_memory_is_done_in_halves(
    make_step: Callable[..., Step],
    make_split: Callable[..., Split],
    caplog: pytest.LogCaptureFixture,
    fails_in: str,
    error: Exception,
) -> None:
    """Gradients and sums are those of the whole batches, and nothing of a failed try is left in them."""
    split = make_split(12)
    batches = (torch.arange(2).numpy(), torch.arange(2, 9).numpy(), torch.arange(9, 12).numpy())
    whole = small(make_step)
    parts = small(make_step, fits=3, fails_in=fails_in, error=error)
    parts.load_state_dict(whole.state_dict())
    for found, expected in zip(gradients(parts, split, batches), gradients(whole, split, batches)):
        torch.testing.assert_close(found, expected)
    assert whole.sizes == [2, 7, 3]
    assert parts.sizes == [2, 7, 2, 3, 4, 2, 3, 2, 2, 3]  # 7 = 3 + 4, then 4 = 2 + 2; each time from the first batch
    assert caplog.text.count("out of memory at update 1 in a micro-batch of") == 2
    assert "are split in halves" in caplog.text


def test_batches_as_large_as_one_that_failed_are_not_tried_again(
    make_step: Callable[..., Step], make_split: Callable[..., Split], caplog: pytest.LogCaptureFixture
) -> None:
    split, step = make_split(12), small(make_step, fits=3)
    learner = Learner(step, torch.optim.SGD(step.parameters()), Arithmetic(CPU, Precision.fp32), World())
    reader = BatchReader(lambda indices: read_batch(split, indices), CPU)

    def tried(too_large: int | None) -> tuple[list[int], int | None]:
        updater = Updater(learner, lambda progress: 1.0, reader, TrainingConfig(), seed=1, too_large=too_large)
        step.sizes.clear()
        for update in (1, 2):
            updater.accumulate(update, UpdateBatches((np.arange(6), np.arange(2)), 1, DataPosition()))
        return [*step.sizes], updater.too_large

    sizes, too_large = tried(None)
    assert sizes == [6, 3, 3, 2, 3, 3, 2] and caplog.text.count("out of memory") == 1
    assert too_large == places(read_batch(split, np.arange(6)))
    assert tried(too_large) == ([3, 3, 2, 3, 3, 2], too_large), "as a run that goes on from a checkpoint"


def test_halves_have_random_numbers_of_their_own(
    make_step: Callable[..., Step], make_split: Callable[..., Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys: list[tuple[int, ...]] = []
    monkeypatch.setattr("nmt.training.loop.updater.seed_torch", lambda *key: keys.append(key))
    gradients(small(make_step, fits=2), make_split(4), (torch.arange(4).numpy(),))
    assert keys == [(1, 1, 0), (1, 1, 0, 0), (1, 1, 0, 1)]


def test_a_sentence_that_alone_has_no_memory_is_described(
    make_step: Callable[..., Step], make_split: Callable[..., Split]
) -> None:
    with pytest.raises(
        DeviceError, match="out of memory at update 1, in a micro-batch of 1 sentence.*lower --max-tokens"
    ):
        gradients(small(make_step, fits=0), make_split(2), (torch.arange(2).numpy(),))


def test_another_error_is_not_taken_for_a_shortage(
    make_step: Callable[..., Step], make_split: Callable[..., Split]
) -> None:
    step = small(make_step, fits=1, error=RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        gradients(step, make_split(2), (torch.arange(2).numpy(),))


class Full(BatchReader):
    """Copies to a card that has no room for more than two sentences."""

    def __call__(self, indices: Any) -> Batch:
        if len(indices) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return super().__call__(indices)


@pytest.mark.parametrize("meets", [False, True])
def test_a_batch_that_cannot_even_be_copied_is_one_without_memory(
    make_step: Callable[..., Step], make_split: Callable[..., Split], meets: bool
) -> None:
    """What is said about it copies nothing."""

    class Met(World):
        def meets(self, *, last: bool) -> Sequence[str]:
            return ("forward",) if meets else ()

    step, split = small(make_step), make_split(4)
    read = Full(lambda indices: read_batch(split, indices), torch.device("cpu"))
    if meets:
        with pytest.raises(DeviceError, match="in the forward pass of a micro-batch of 4 sentences"):
            accumulate(step, read, Met(), torch.arange(4).numpy())
    else:
        accumulate(step, read, Met(), torch.arange(4).numpy())
    assert step.sizes == ([] if meets else [2, 2])


@pytest.mark.parametrize("fails_in", ["forward", "backward"])
def test_processes_do_not_leave_each_other_waiting(
    make_step: Callable[..., Step], make_split: Callable[..., Split], fails_in: str
) -> None:
    """What fails where processes meet cannot be done again by one of them alone."""

    class Two(World):
        size = 2

        def meets(self, *, last: bool) -> Sequence[str]:
            return (fails_in,) if last else ()

    step = small(make_step, fits=1, fails_in=fails_in)
    split = make_split(4)
    read = BatchReader(lambda indices: read_batch(split, indices), torch.device("cpu"))
    with pytest.raises(DeviceError, match=f"in the {fails_in} pass of a micro-batch of 2 sentences"):
        accumulate(step, read, Two(), torch.arange(2).numpy(), torch.arange(2, 4).numpy())
    assert step.sizes == [2]
