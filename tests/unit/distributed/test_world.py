"""What several processes share out and agree on, without starting any."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt.config.choices import Strategy
from nmt.config.sections import DistributedConfig, TrainingConfig
from nmt.devices import own_device
from nmt.distributed.joining import join
from nmt.distributed.peers import Peers
from nmt.distributed.replicated import Replicated
from nmt.distributed.world import World
from nmt.errors import Interrupted, NMTError, UsageError
from nmt.reporting.stopwatch import READING
from nmt.training.loop.trainer import Trainer


class One(World):
    """The process ``rank`` of ``size``, without the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 4, 6, 7])
def test_every_batch_is_done_once_and_all_processes_do_as_many(size: int, count: int) -> None:
    items = [f"batch {index}" for index in range(count)]
    shares = [One(rank, size).shares(items) for rank in range(size)]
    counted = sorted(share.key[0] for own in shares for share in own if share.counts)
    assert counted == list(range(count))
    assert {len(own) for own in shares} == {math.ceil(count / size)}
    for own in shares:
        assert all(share.item == items[share.key[0]] for share in own)
        assert [share.last for share in own] == [False] * (len(own) - 1) + [True]


def test_a_list_is_shared_out_without_remainder() -> None:
    parts = [One(rank, 3).part(list(range(8))) for rank in range(3)]
    assert parts == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_without_torchrun_a_process_is_alone() -> None:
    with join(DistributedConfig(), torch.device("cpu"), {}) as world:
        assert (world.rank, world.size, world.main) == (0, 1, True)
        assert world.sums([1.5]) == [1.5] and world.gather("x") == ["x"] and world.on_main(lambda: 3) == 3


def test_each_process_of_a_machine_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    second = {"LOCAL_RANK": "1", "WORLD_SIZE": "4"}
    assert own_device("cuda", second) == "cuda:1"
    assert own_device("cpu", second) == "cpu"
    assert own_device("cuda", {}) == "cuda"
    for there, device in ((torch.device("cuda"), "cuda:1"), (None, "auto")):
        monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available, there=there: there)
        assert own_device("auto", second) == device
    with pytest.raises(UsageError, match="cuda:0 would give all processes the same GPU; use --device cuda"):
        own_device("cuda:0", second)


def test_a_waiting_time_must_be_positive() -> None:
    with pytest.raises(UsageError, match="timeout_minutes=0"):
        DistributedConfig(timeout_minutes=0.0)


def test_processes_whose_parameters_differ_stop_before_a_checkpoint(make_trainer: Callable[..., Trainer]) -> None:
    class Differing(One):
        def gather(self, value: Any) -> list[Any]:
            return [value, value + 1e-9] if isinstance(value, float) else [value]

    trainer = make_trainer(world=Differing(0, 2), limits=TrainingConfig(max_update=1))
    with pytest.raises(NMTError, match="after update 1 the ranks have different parameters"):
        trainer.run()
    assert trainer.checkpoints.store.last() is None


def test_gradients_are_exchanged_with_the_last_batch_of_an_update_alone(tmp_path: Path) -> None:
    """What the processes of a group send each other, counted where torch hands it over; here the group is one process."""
    exchanged: list[int] = []

    def counted(bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        exchanged.append(bucket.buffer().numel())
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    try:
        world, layer = Replicated(), nn.Linear(3, 2)
        wrapped = world.wrap(layer)
        assert isinstance(wrapped, nn.parallel.DistributedDataParallel)
        wrapped.register_comm_hook(
            None, lambda state, bucket: counted(bucket)
        )  # torch reads no annotation that is text
        for last in (False, False, True):
            with world.backward_of(wrapped, last=last):
                wrapped(torch.ones(1, 3)).sum().backward()
            assert len(exchanged) == last
        assert sum(exchanged) == 8
        assert torch.equal(layer.weight.grad, torch.full((2, 3), 3.0))  # type: ignore[arg-type]
    finally:
        dist.destroy_process_group()


def test_what_a_rank_is_doing_is_read_from_its_only_stopwatch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread reads it, and must not make a second stopwatch."""
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 1)
    peers = Peers(dist.HashStore(), 0, 1)
    world = Replicated(peers)
    assert "stopwatch" in vars(world)
    with world.stopwatch.during(READING):
        assert peers.activity() == READING


@pytest.mark.parametrize("environment", [{}, {"RANK": "0", "WORLD_SIZE": "1"}], ids=["alone", "torchrun"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_strategy_that_divides_needs_more_than_one_process(
    strategy: Strategy, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with join(DistributedConfig(strategy=strategy), torch.device("cpu"), environment) as world:
        assert world.size == 1
    assert [message.endswith("start several with torchrun") for message in caplog.messages] == (
        [True] if strategy is Strategy.fsdp else []
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "meetings"), [(None, 1), (Interrupted("stopped"), 1), (ValueError("wrong"), 0)], ids=str
)
def test_processes_meet_before_they_end_unless_one_of_them_fails(
    error: Exception | None, meetings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others would wait for one that fails."""
    met: list[bool] = []
    for name, stand_in in {
        "barrier": lambda: met.append(True),
        "init_process_group": lambda *_, **__: None,
        "destroy_process_group": lambda: met.append(False),
    }.items():
        monkeypatch.setattr(dist, name, stand_in)
    monkeypatch.setattr("nmt.distributed.replicated.Replicated", lambda peers: World())
    rendezvous = sys.modules["torch.distributed.rendezvous"]  # the name is a function's, too
    monkeypatch.setattr(rendezvous, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 0, 2)]))
    expectation = contextlib.nullcontext() if error is None else pytest.raises(type(error))
    with expectation, join(DistributedConfig(), torch.device("cpu"), {"RANK": "0", "WORLD_SIZE": "2"}):
        if error is not None:
            raise error
    assert met == [True] * meetings + [False]
