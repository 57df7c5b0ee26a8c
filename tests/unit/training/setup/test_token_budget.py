"""How large batches become with --max-tokens auto."""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.choices import Strategy
from nmt.config.sections import BatchingConfig, DistributedConfig, TrainConfig, TrainingConfig
from nmt.data.batching.plan import plan_batches
from nmt.data.batching.readers import Readers
from nmt.data.corpus.folder import Split
from nmt.distributed.world import World
from nmt.errors import DeviceError, UsageError
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoint_name, checkpoints_in, read_config
from nmt.training import assemble
from nmt.training.assemble import train
from nmt.training.checkpoints import writer
from nmt.training.checkpoints.run_state import DataPosition
from nmt.training.checkpoints.store import Snapshot, fallback_folder
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup import forecast as forecast_module
from nmt.training.setup import token_budget
from nmt.training.setup.datasets import open_datasets
from nmt.training.setup.token_budget import (
    MARGIN,
    SHARE_OF_GPU,
    candidates,
    divisors,
    largest_batches,
    largest_by_forecast,
    largest_by_trial,
)

pytestmark = pytest.mark.slow  # whole runs

MakeSplit = Callable[..., Split]
CPU = torch.device("cpu")
SIZES = (512, 1024, 2048, 4096, 8192)


class Card:
    """A GPU with room for batches of so many tokens."""

    def __init__(self, room: int, *, per_token: float = 1e-4) -> None:
        self.room = room
        self.per_token = per_token
        self.tried: list[int] = []

    def attempt(self, size: int) -> None:
        self.tried.append(size)
        if size > self.room:
            raise torch.OutOfMemoryError("no room")

    def reserved(self) -> float:
        return self.tried[-1] * self.per_token


@pytest.mark.parametrize(("room", "expected"), [(9000, 8192), (8191, 4096), (600, 512)])
def test_on_a_gpu_the_largest_size_that_finds_memory_is_taken(room: int, expected: int) -> None:
    card = Card(room)
    assert largest_by_trial(SIZES, card.attempt, card.reserved, CPU) == expected
    assert card.tried == [size for size in reversed(SIZES) if size >= expected]


def test_on_a_gpu_some_memory_stays_free() -> None:
    card = Card(10_000, per_token=SHARE_OF_GPU / 3000)
    assert largest_by_trial(SIZES, card.attempt, card.reserved, CPU) == 2048


def test_a_failed_trial_holds_nothing_while_the_next_one_runs() -> None:
    held: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def attempt(size: int) -> None:
        alive.append(sum(reference() is not None for reference in held))
        activations = torch.ones(size)
        held.append(weakref.ref(activations))
        if size > SIZES[0]:
            raise torch.OutOfMemoryError("no room")

    assert largest_by_trial(SIZES, attempt, lambda: 0.0, CPU) == SIZES[0]
    assert alive == [0] * len(SIZES)


@pytest.mark.slow
def test_if_nothing_fits_that_is_said() -> None:
    card = Card(100)
    with pytest.raises(DeviceError, match="even micro-batches of 512 tokens do not fit"):
        largest_by_trial(SIZES, card.attempt, card.reserved, CPU)
    assert card.tried == list(reversed(SIZES))


def test_other_errors_are_not_taken_for_a_shortage() -> None:
    def broken(size: int) -> None:
        raise RuntimeError("shapes differ")

    with pytest.raises(RuntimeError, match="shapes differ"):
        largest_by_trial(SIZES, broken, lambda: 0.0, CPU)


class Process:
    """One that takes 1,000 bytes, and so many more a token of the largest batch so far."""

    def __init__(self, per_token: int) -> None:
        self.per_token = per_token
        self.tried: list[int] = []

    def attempt(self, size: int) -> None:
        self.tried.append(size)

    def peak(self) -> int:
        return 1000 + self.per_token * max(self.tried)


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (10**9, 8192),
        (math.ceil(MARGIN * (1000 + 10 * 8192)), 8192),
        (math.ceil(MARGIN * (1000 + 10 * 8192)) - 1, 4096),
        (math.ceil(MARGIN * (1000 + 10 * 2048)), 2048),
        (0, 512),
    ],
)
def test_on_a_cpu_small_batches_tell_what_large_ones_would_take(left: int, expected: int) -> None:
    process = Process(per_token=10)
    assert largest_by_forecast(SIZES, process.attempt, process.peak, lambda: left) == expected
    assert process.tried == [512, 1024, 2048]


@pytest.mark.parametrize(("left", "expected"), [(5000, 8192), (4999, 4096)])
def test_what_training_holds_beside_a_trial_stays_free(left: int, expected: int) -> None:
    process, room = Process(per_token=10), math.ceil(MARGIN * (1000 + 10 * 8192))
    assert largest_by_forecast(SIZES, process.attempt, process.peak, lambda: room + left, 5000) == expected


@pytest.mark.parametrize("sizes", [(512, 768), (768, 1024), (512, 1024), (512, 768, 1024), (512, 1024, 1536)])
@pytest.mark.parametrize("fits", [0, -1])
def test_few_sizes_are_told_apart_as_well(sizes: tuple[int, ...], fits: int) -> None:
    process, room = Process(per_token=10), MARGIN * (1000 + 10 * sizes[fits])
    found = largest_by_forecast(sizes, process.attempt, process.peak, lambda: math.ceil(room))
    assert found == sizes[fits] and max(process.tried) == min(4 * sizes[0], sizes[-1])


@pytest.mark.parametrize(("per_token", "left"), [(10, None), (0, 10**9)])
def test_where_memory_cannot_be_told_batches_stay_small(
    per_token: int, left: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The room is unknown, or the peak is of something earlier and says nothing about these token_budget."""
    process = Process(per_token)
    assert largest_by_forecast(SIZES, process.attempt, process.peak, lambda: left) == 512
    assert "cannot measure the memory of micro-batches; --max-tokens auto uses the smallest, 512 tokens" in caplog.text


def test_no_sentence_is_too_long_and_an_epoch_has_enough_updates(make_split: MakeSplit) -> None:
    split = make_split(30_000, longest=40)
    pieces = int(torch.maximum(*map(torch.tensor, (split.source_lengths, split.target_lengths))).sum())
    sizes = candidates(split, longest=41, batches_in_update=1)
    assert sizes[0] == 512 and sizes[-1] <= pieces / 50 < 2 * sizes[-1]
    assert candidates(split, longest=41, batches_in_update=4)[-1] <= pieces / 200
    assert candidates(split, longest=3000, batches_in_update=1)[0] == 3072
    assert candidates(split, longest=40_000, batches_in_update=1) == [40_000]
    assert candidates(make_split(10), longest=7, batches_in_update=1) == [512]


def test_an_update_of_a_given_size_is_tried_in_equal_parts(
    make_split: MakeSplit, tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few updates an epoch has then: their size was asked for."""
    assert divisors(25_000, longest=1000, processes=8) == [1041, 1562, 3125]
    assert divisors(25_000, longest=6000, processes=4) == [6250]
    assert divisors(25_000, longest=7000, processes=4) == [7000]
    small = divisors(400_000, longest=100, processes=1)
    assert 512 <= small[0] < 700 and small[-1] == 400_000 and len(small) < 30
    assert all(larger / size <= 2 for size, larger in zip(small, small[1:]))
    tried: list[list[int]] = []
    monkeypatch.setattr(token_budget, "largest_by_forecast", lambda sizes, *_: tried.append(sizes) or sizes[-2])
    config = tiny_run(batching=BatchingConfig("auto", tokens_per_update=900))
    decided = token_budget.decide_token_budget(config, open_datasets(config), torch.device("cpu"), World()).batching
    assert tried[0][-4:] == [225, 300, 450, 900]
    assert (decided.max_tokens, decided.accumulation(1)) == (450, 2)


def test_the_batches_tried_are_the_ones_that_take_most(make_split: MakeSplit) -> None:
    split = make_split(2000, longest=50)
    batches = largest_batches(split, BatchingConfig(512), 1)
    assert 1 <= len(batches) <= 4
    lengths: list[Any] = [torch.maximum(*(torch.tensor(side[batch]) for side in sides(split))) for batch in batches]
    assert max(len(one) * int(one.max()) for one in lengths) > 0.9 * 512
    assert max(int(one.max()) for one in lengths) == int(max(side.max() for side in sides(split)))
    plan = plan_batches(*sides(split), BatchingConfig(512), shuffle=False)
    assert max(map(len, batches)) == max(map(len, plan)) > 16
    pieces = [sum(int(side[batch].sum()) for side in sides(split)) for batch in plan]
    assert max(sum(int(side[batch].sum()) for side in sides(split)) for batch in batches) == max(pieces)
    assert max(map(len, largest_batches(split, BatchingConfig(512, batch_size=16), 1))) == 16


@pytest.mark.parametrize("window", [None, 100])
def test_batches_that_do_not_count_padding_are_tried_with_the_most_of_it(
    make_split: MakeSplit, window: int | None
) -> None:
    """As training makes them: a window leaves far more padding than a whole corpus in order."""
    split, options = make_split(2000, longest=50), BatchingConfig(512, count_padding=False, sort_window=window)
    epoch = TrainingBatches(split, options, seed=3)

    def area(batch: Any) -> int:
        return len(batch) * sum(int(side[batch].max()) for side in sides(split))

    trained = [
        area(epoch.at(DataPosition(1, number)).batches[0].numbers) for number in range(epoch.updates_in_epoch(1))
    ]
    assert max(map(area, largest_batches(split, options, seed=3))) == max(trained) > (1200 if window else 1024)


def test_the_size_of_a_run_that_counted_otherwise_is_not_taken_over(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    train(tiny_run(batching=BatchingConfig(240), training=TrainingConfig(max_update=6)))
    monkeypatch.setattr(token_budget, "_largest", lambda *_: 120)
    for counted, expected in ((True, 240), (False, 120)):
        config = tiny_run(batching=BatchingConfig("auto", count_padding=counted))
        decided = token_budget.decide_token_budget(config, open_datasets(config), torch.device("cpu"), World())
        assert decided.batching.max_tokens == expected


def test_without_a_choice_nothing_is_tried() -> None:
    process = Process(per_token=10)
    assert largest_by_forecast([512], process.attempt, process.peak, lambda: 0) == 512 and not process.tried


@pytest.mark.slow
def test_a_run_keeps_the_size_that_it_began_with(
    tiny_run: Callable[..., TrainConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(token_budget, "SIZES", (30, 60, 120, 240, 480))
    monkeypatch.setattr(token_budget, "LEAST_UPDATES", 2)
    config = tiny_run(batching=BatchingConfig(max_tokens="auto"), training=TrainingConfig(max_update=4))
    train(config)
    (first,) = {read_config(path)["batching"]["max_tokens"] for path in checkpoints_in(tmp_path / "run")}
    assert first in token_budget.SIZES and f"micro-batches of up to {first} tokens (found" in caplog.text
    monkeypatch.setattr(token_budget, "SIZES", (33,))
    train(replace(config, training=TrainingConfig(max_update=8)))
    assert f"micro-batches of up to {first} tokens (as before)" in caplog.text
    whole = replace(
        tiny_run(batching=BatchingConfig(max_tokens=first), training=TrainingConfig(max_update=8)),
        checkpoint=replace(config.checkpoint, save_dir=str(tmp_path / "whole")),
    )
    train(whole)
    found, expected = (read_checkpoint(checkpoints_in(tmp_path / name)[-1]).model for name in ("run", "whole"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    ("in_run", "in_fallback", "expected"), [(None, None, 500), (None, 2, 60), (1, 2, 60), (3, 2, 30)]
)
def test_the_newest_checkpoint_decides_also_if_it_lies_in_the_fallback_folder(
    tiny_run: Callable[..., TrainConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_run: int | None,
    in_fallback: int | None,
    expected: int,
) -> None:
    monkeypatch.setattr(token_budget, "_largest", lambda *_: 500)
    config = tiny_run(batching=BatchingConfig(max_tokens="auto"))
    config.checkpoint.fallback_dir = str(tmp_path / "spare")
    fallback = fallback_folder(config.checkpoint)
    assert fallback is not None
    for folder, update, size in ((Path(config.checkpoint.save_dir), in_run, 30), (fallback, in_fallback, 60)):
        if update is not None:
            checkpoint = folder / checkpoint_name(1, update)
            checkpoint.mkdir(parents=True)
            (checkpoint / "manifest.json").touch()
            (checkpoint / "config.yaml").write_text(f"batching: {{max_tokens: {size}, count_padding: true}}")
    decided = token_budget.decide_token_budget(config, open_datasets(config), torch.device("cpu"), World())
    assert decided.batching.max_tokens == expected


class OneOfTwo(World):
    """A process whose neighbour found room for batches of 60 tokens."""

    size = 2

    def gather(self, value: Any) -> list[Any]:
        return [value, 60]


@pytest.mark.parametrize(("own", "expected"), [(30, 30), (60, 60), (240, 60)])
def test_processes_agree_on_what_fits_into_the_smallest(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch, own: int, expected: int
) -> None:
    monkeypatch.setattr(token_budget, "_largest", lambda *_: own)
    config = tiny_run(batching=BatchingConfig(max_tokens="auto"))
    decided = token_budget.decide_token_budget(config, open_datasets(config), torch.device("cpu"), OneOfTwo())
    assert decided.batching.max_tokens == expected


@pytest.mark.parametrize("decay", [None, 0.9])
def test_the_optimizers_state_is_there_before_anything_is_measured(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch, decay: float | None
) -> None:
    monkeypatch.setattr(token_budget, "SIZES", (60, 120, 240))
    monkeypatch.setattr(token_budget, "LEAST_UPDATES", 2)
    optimizers: list[torch.optim.Optimizer] = []
    states: list[bool] = []
    build, largest = forecast_module.build_optimizer, token_budget.largest_batches

    def built(*arguments: Any) -> torch.optim.Optimizer:
        optimizers.append(build(*arguments))
        return optimizers[-1]

    def noting(*arguments: Any) -> Any:
        (optimizer,) = optimizers
        states.append(all(p in optimizer.state for group in optimizer.param_groups for p in group["params"]))
        return largest(*arguments)

    monkeypatch.setattr(forecast_module, "build_optimizer", built)
    monkeypatch.setattr(token_budget, "largest_batches", noting)
    train(tiny_run(batching=BatchingConfig("auto"), training=TrainingConfig(max_update=4, ema_decay=decay)))
    assert states == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("asynchronous", "decay"), [(True, None), (True, 0.9), (False, None)])
def test_room_is_kept_for_the_copy_of_a_checkpoint(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch, asynchronous: bool, decay: float | None
) -> None:
    kept: list[int] = []
    taken: list[int] = []
    copied = writer._copied

    def forecast(sizes: Sequence[int], *others: Any) -> int:
        kept.append(others[-1])
        return sizes[0]

    def copying(snapshot: Snapshot) -> Snapshot:
        held = (snapshot.model, snapshot.training.tensors)
        taken.append(sum(tensor.nbytes for tensors in held for tensor in tensors.values()))
        return copied(snapshot)

    monkeypatch.setattr(token_budget, "largest_by_forecast", forecast)
    monkeypatch.setattr(writer, "_copied", copying)
    config = tiny_run(batching=BatchingConfig("auto"), training=TrainingConfig(max_update=4, ema_decay=decay))
    options = replace(config.checkpoint, save_interval_updates=2, asynchronous=asynchronous)
    train(replace(config, checkpoint=options))
    assert kept == (taken[:1] if asynchronous else [0]) and (kept[0] > 0) == asynchronous


class SecondOfTwo(World):
    """A process that writes no checkpoints."""

    rank = 1


def test_only_the_process_that_writes_checkpoints_keeps_room_for_a_copy(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    def forecast(sizes: Sequence[int], *others: Any) -> int:
        kept.append(others[-1])
        return sizes[0]

    monkeypatch.setattr(token_budget, "largest_by_forecast", forecast)
    config = tiny_run(batching=BatchingConfig("auto"), training=TrainingConfig(max_update=4))
    token_budget.decide_token_budget(config, open_datasets(config), torch.device("cpu"), SecondOfTwo())
    assert kept == [0]


def test_a_model_that_does_not_fit_by_itself_is_said(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> torch.optim.Optimizer:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(forecast_module, "build_optimizer", full)
    with pytest.raises(DeviceError, match="out of memory with micro-batches of one sentence; the model is too large"):
        train(tiny_run(batching=BatchingConfig("auto")))


def test_what_is_refused_is_refused_before_anything_is_tried(tiny_run: Callable[..., TrainConfig]) -> None:
    with pytest.raises(UsageError, match="seed=-1 must not be negative"):
        train(tiny_run(batching=BatchingConfig(max_tokens="auto"), seed=-1))
    with pytest.raises(UsageError, match="tries the whole model in one process"):
        train(tiny_run(batching=BatchingConfig("auto"), distributed=DistributedConfig(strategy=Strategy.fsdp)))
    with pytest.raises(UsageError, match="batching.max_tokens=most is neither a number nor auto"):
        BatchingConfig(max_tokens="most")
    with pytest.raises(UsageError, match="batching.max_tokens=0 must be"):
        BatchingConfig(max_tokens=0)


def sides(split: Split) -> tuple[Any, Any]:
    return split.source_lengths, split.target_lengths


def test_readers_are_copied_before_anything_is_tried_on_a_device(
    tiny_run: Callable[..., TrainConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    order, enter, decide = list[str](), Readers.__enter__, assemble.decide_token_budget
    monkeypatch.setattr(Readers, "__enter__", lambda readers: order.append("readers") or enter(readers))
    monkeypatch.setattr(assemble, "decide_token_budget", lambda *parts: order.append("sizes") or decide(*parts))
    train(tiny_run(training=TrainingConfig(max_update=5)))
    assert order == ["readers", "sizes"]
