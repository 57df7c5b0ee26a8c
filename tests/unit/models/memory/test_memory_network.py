"""The memory network beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nmt.data.batching.batch import Batch, collate
from nmt.errors import DataError, UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.memory.config import MemoryNetworkConfig, SlotPositions
from nmt.models.memory.memory_network import MemoryNetwork, SourceSlots
from nmt.testing.subjects import load_preset

SIZES = VocabularySizes(20, 30, shared=False)


def build(**options: Any) -> MemoryNetwork:
    torch.manual_seed(1)
    model = models.build(replace(MemoryNetworkConfig(dropout=0.0).shrink(), **options), SIZES)
    assert isinstance(model, MemoryNetwork)
    return model.eval()


def batch() -> Batch:
    sources, targets = [[5, 6, 7, 3], [8, 3]], [[9, 10, 3], [11, 12, 13, 14, 3]]
    return collate([torch.tensor(ids).numpy() for ids in sources], [torch.tensor(ids).numpy() for ids in targets])


def encoded(model: MemoryNetwork) -> SourceSlots:
    memory = model.encode(batch().source, batch().source_lengths)
    assert isinstance(memory, SourceSlots)
    return memory


@pytest.mark.parametrize("hops", [1, 3])
def test_the_memory_has_one_set_of_slots_more_than_hops(hops: int) -> None:
    """Adjacent tying: the slots that a hop returns are those that the next compares."""
    assert [tuple(slots.shape) for slots in encoded(build(num_hops=hops)).slots] == [(2, 4, 12)] * (hops + 1)


def test_an_output_is_the_question_and_what_every_hop_returns() -> None:
    model = build()
    memory = encoded(model)
    decoded = model(batch(), AttentionRequest())
    states, _ = model.decoder(model.target_embedding(batch().target_in), model.begin(memory, 1).layers)
    expected = model.question(states)
    for weights, values in zip(decoded.attention.maps["cross"], memory.slots[1:]):
        expected = expected + weights[:, 0] @ values
    torch.testing.assert_close(decoded.hidden, torch.cat([expected[0, :3], expected[1]]))


def test_the_decoder_knows_the_source_through_the_memory_alone() -> None:
    """Without anything in the slots the outputs of two sentences with the same target are the same."""
    model = build()
    pairs = collate([torch.tensor(ids).numpy() for ids in ([5, 6, 3], [8, 3])], [torch.tensor([9, 3]).numpy()] * 2)
    hidden = model(pairs).hidden
    assert not torch.allclose(hidden[:2], hidden[2:])
    for parameter in model.slots.parameters():
        torch.nn.init.zeros_(parameter)
    hidden = model(pairs).hidden
    torch.testing.assert_close(hidden[:2], hidden[2:])


def test_attention_maps_are_distributions_by_hop() -> None:
    maps = build(num_hops=3)(batch(), AttentionRequest()).attention.maps["cross"]
    assert [tuple(weights.shape) for weights in maps] == [(2, 1, 5, 4)] * 3
    for weights in maps:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 5))
        assert not weights[1, :, :, 2:].any()


def test_a_step_reports_the_last_hop() -> None:
    model = build(num_hops=2)
    maps = model(batch(), AttentionRequest()).attention.maps["cross"]
    memory, state = model.start(encoded(model), beam_size=1)
    found = model.step(batch().target_in[:, 0], memory, state, attention=True).attention
    assert found is not None
    torch.testing.assert_close(found, maps[-1][:, 0, 0])


@pytest.mark.parametrize(
    ("places", "sets"), [(SlotPositions.end, 1), (SlotPositions.start, 1), (SlotPositions.both, 2)]
)
def test_the_number_of_parameters_is_that_of_the_parts(places: SlotPositions, sets: int) -> None:
    model = build(places=places, max_positions=9)
    tables = 4 * (20 + 9 * sets) * 12  # four sets of slots for three hops
    lstm = 4 * 16 * (10 + 16 + 2)
    expected = tables + 30 * 10 + lstm + 16 * 12 + 30 * 12
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_initial_values_have_the_spread_asked_for() -> None:
    model = build(init_std=0.3, slot_size=64)
    for weights in (*model.slots.parameters(), model.output.weight):
        assert 0.27 < weights.std().item() < 0.33 and weights.mean().abs().item() < 0.03


def test_the_tiny_preset_has_three_hops_and_places_from_both_ends() -> None:
    config = load_preset("memory_network_tiny")
    assert (config.num_hops, config.places) == (3, SlotPositions.both)


def test_a_source_longer_than_the_places_is_refused() -> None:
    model = build(max_positions=3)
    assert model.max_source_length() == 3
    with pytest.raises(DataError, match="4 tokens, but the memory has 3 slot positions"):
        model(batch())


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5)
    assert not torch.equal(model.train()(batch()).hidden, model(batch()).hidden)
    assert torch.equal(model.eval()(batch()).hidden, model(batch()).hidden)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_hops": 0}, "num_hops=0"),
        ({"slot_size": 0}, "slot_size=0"),
        ({"init_std": 0.0}, "init_std=0.0"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        MemoryNetworkConfig(**options)


def test_shrinking_changes_sizes_only() -> None:
    config = MemoryNetworkConfig(num_hops=5, places=SlotPositions.both, num_layers=3, dropout=0.4)
    sizes = ("slot_size", "max_positions", "embedding_size", "hidden_size", "num_layers")
    assert replace(config.shrink(), **{name: getattr(config, name) for name in sizes}) == config
