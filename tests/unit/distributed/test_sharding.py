"""How parameters are divided and how often they travel, with a process group that only counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.criterions import criterions
from nmt.criterions.config import CrossEntropyConfig
from nmt.data.corpus.folder import Split
from nmt.distributed.peers import Peers
from nmt.distributed.sharding import Sharded, units
from nmt.distributed.world import World
from nmt.errors import UsageError
from nmt.layers.stack import Stack, recompute_layers
from nmt.models import models
from nmt.search import searches
from nmt.search.config import BeamConfig
from nmt.testing.model_laws import UNEVEN_SOURCE, UNEVEN_TARGET
from nmt.testing.subjects import search_with, subject, toy_batch
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import Step


class Messages(TorchDispatchMode):
    """Counts what processes tell each other inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace == "c10d":
            self.counts[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


@pytest.fixture
def first_of_two() -> Iterator[Sharded]:
    """The first of two processes whose messages go nowhere: what it receives means nothing."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield Sharded(torch.device("cpu"))
    finally:
        dist.destroy_process_group()


@pytest.fixture
def only_one() -> Iterator[Sharded]:
    """One process that holds all parts, through the same code."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        yield Sharded(torch.device("cpu"))
    finally:
        dist.destroy_process_group()


class Tower(nn.Module):
    """Two layers, and what stands beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.below = nn.Linear(3, 3)
        self.stack = Stack([nn.Linear(3, 3), nn.Linear(3, 3)])


def test_the_norm_of_parts_and_of_whole_gradients_is_that_of_float64(only_one: Sharded) -> None:
    """In float32 the squares of a large matrix lose 1e-5 of their sum, and those of its parts lose less."""
    torch.manual_seed(1)
    gradient = torch.randn(8000, 512)
    expected = float(gradient.double().norm())
    assert abs(float(torch.nn.utils.get_total_norm([gradient])) / expected - 1) > 1e-6
    parts = distribute_tensor(gradient, only_one._mesh, [Shard(0)])
    for norm in (World().norm([gradient]), only_one.norm([parts])):
        assert norm.dtype == torch.float32 and float(norm) == pytest.approx(expected, rel=1e-7)
    assert float(World().norm([])) == 0.0


def test_each_layer_of_a_stack_is_a_unit() -> None:
    tower = Tower()
    assert units(nn.Sequential(tower)) == list(tower.stack)
    assert units(nn.Sequential(tower, tower.stack[1])) == [tower.stack[0]]


def test_a_layer_that_shares_a_parameter_is_not_a_unit() -> None:
    tower = Tower()
    tower.below.weight = tower.stack[1].weight
    assert units(tower) == [tower.stack[0]]
    tower.stack[0].bias = tower.stack[1].bias
    assert units(tower) == []


def test_a_process_holds_its_rows_and_nothing_else(first_of_two: Sharded, make_step: Callable[..., Step]) -> None:
    step = make_step()
    whole = {name: parameter.detach().clone() for name, parameter in step.named_parameters()}
    first_of_two.divide(step)
    held = {name: first_of_two.local_part(parameter) for name, parameter in step.named_parameters()}
    assert held.keys() == whole.keys()
    for name, tensor in whole.items():
        assert torch.equal(held[name], tensor.chunk(2)[0])
        assert torch.equal(
            first_of_two.local_part(first_of_two.scattered(tensor, step.get_parameter(name))), held[name]
        )
    assert list(first_of_two.replicas(step.parameters())) == []


@pytest.mark.parametrize(("batches", "recompute"), [(1, False), (2, False), (4, False), (2, True)])
def test_an_update_exchanges_as_much_however_many_batches_it_has(
    first_of_two: Sharded,
    make_step: Callable[..., Step],
    make_split: Callable[..., Split],
    batches: int,
    recompute: bool,
) -> None:
    """Each unit is gathered for the forward pass, a layer once more for the backward pass, and reduced once."""
    step, split = make_step(), make_split(2 * batches)
    if recompute:
        recompute_layers(step)
    first_of_two.divide(step)
    wrapped = first_of_two.wrap(step)
    with Messages() as messages:
        for number in range(batches):
            last = number == batches - 1
            with first_of_two.backward_of(wrapped, last=last):
                wrapped(read_batch(split, torch.arange(2 * number, 2 * number + 2).numpy())).loss_sum.backward()
            assert ("_reduce_scatter_base_" in messages.counts) == last
    layers = len(units(step))
    assert layers == 2
    assert messages.counts == {"_allgather_base_": 2 * layers + 1, "_reduce_scatter_base_": layers + 1}


def test_nobody_waits_where_parameters_are_whole(first_of_two: Sharded, make_step: Callable[..., Step]) -> None:
    step = make_step().eval()
    first_of_two.divide(step)
    source, lengths = torch.full((2, 3), 4), torch.tensor([3, 2])
    with first_of_two.whole(), Messages() as messages:
        for _ in range(2):
            memory, state = step.model.start(step.model.encode(source, lengths), beam_size=1)
            step.model.step(torch.tensor([4, 4]), memory, state)
    assert not messages.counts
    assert all(first_of_two.local_part(parameter) is not parameter for parameter in step.parameters())  # divided again


def test_ranks_count_the_layers_of_a_pass_except_where_parameters_are_whole(
    first_of_two: Sharded, make_step: Callable[..., Step], make_split: Callable[..., Split]
) -> None:
    peers = Peers(dist.HashStore(), 0, 2)
    ranks, step = Sharded(torch.device("cpu"), peers), make_step()
    ranks.divide(step)
    ranks.arrive()
    meetings, reached = peers.position[0], len(units(step)) + 1
    loss = ranks.wrap(step)(read_batch(make_split(2), torch.arange(2).numpy())).loss_sum
    assert peers.position == (meetings, reached)
    loss.backward()
    assert peers.position == (meetings, 2 * reached)
    with ranks.whole():
        step.eval().model.encode(torch.full((2, 3), 4), torch.tensor([3, 2]))
    assert peers.position == (meetings, 2 * reached)
    ranks.arrive()
    assert peers.position == (meetings + 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "recompute"), [*((name, False) for name in models.names()), ("transformer_moe", True), ("conv_s2s", True)]
)
def test_every_model_computes_the_same_divided(only_one: Sharded, name: str, recompute: bool) -> None:
    """Loss and gradients of a batch in training, and what search finds."""
    steps = [Step(subject(name).model(), criterions.build(CrossEntropyConfig())) for _ in range(2)]
    if recompute:
        recompute_layers(steps[1])
    only_one.divide(steps[1])
    wrapped = only_one.wrap(steps[1])
    batch = toy_batch(steps[0].model, UNEVEN_SOURCE, UNEVEN_TARGET)
    losses = []
    for step, called in ((steps[0], steps[0]), (steps[1], wrapped)):
        step.train()
        torch.manual_seed(1)
        with only_one.backward_of(called, last=True):
            loss = called(batch).loss_sum
            loss.backward()
        losses.append(loss)
    torch.testing.assert_close(losses[1], losses[0])
    gradients = [{name: parameter.grad for name, parameter in step.named_parameters()} for step in steps]
    for parameter, gradient in gradients[0].items():
        assert gradient is not None and gradients[1][parameter] is not None
        torch.testing.assert_close(only_one.local_part(gradients[1][parameter]), gradient)
    search = searches.build(BeamConfig(beam_size=2))
    for step in steps:
        step.eval()
    with only_one.whole(), torch.no_grad():
        expected, found = (search_with(search, step.model, batch.source, batch.source_lengths) for step in steps)
    for wanted, hypotheses in zip(expected, found, strict=True):
        assert [one.tokens.tolist() for one in hypotheses] == [one.tokens.tolist() for one in wanted]


def test_a_parameter_that_cannot_be_divided_is_named(first_of_two: Sharded, make_step: Callable[..., Step]) -> None:
    step: Any = make_step()
    step.model.temperature = nn.Parameter(torch.tensor(1.0))
    with pytest.raises(UsageError, match="cannot divide temperature.*--distributed-strategy ddp"):
        first_of_two.divide(step)
