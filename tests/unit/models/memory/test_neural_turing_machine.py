"""The Neural Turing Machine beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nmt.data.batching.batch import Batch, collate
from nmt.data.vocabulary import EOS
from nmt.errors import UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.memory.config import (
    ControllerKind,
    MemoryStart,
    NeuralTuringMachineConfig,
    SymbolKind,
)
from nmt.models.memory.neural_turing_machine import NeuralTuringMachine, NTMMemory
from nmt.testing.subjects import load_preset

BYTES = VocabularySizes(4 + 256, 4 + 256, shared=True)  # all 8-bit vectors, as in the copy task
SIZES = VocabularySizes(20, 30, shared=False)


def build(sizes: VocabularySizes = SIZES, **options: Any) -> NeuralTuringMachine:
    torch.manual_seed(1)
    model = models.build(replace(NeuralTuringMachineConfig().shrink(), **options), sizes)
    assert isinstance(model, NeuralTuringMachine)
    return model.eval()


def batch(targets: tuple[list[int], ...] = ([9, 10, 3], [11, 12, 13, 14, 3])) -> Batch:
    return collate([np.array([5, 6, 7, 3]), np.array([8, 3])], [np.array(ids) for ids in targets])


def count(preset: str) -> int:
    return sum(parameter.numel() for parameter in models.build(load_preset(preset), BYTES).parameters())


def paper_size(of_controller: int) -> int:
    """Inputs 10 (8 bits, bos, eos), outputs 9 (8 bits, eos), memory 128 x 20, controller 100, a reading and a writing head.

    A head has key 20, beta, g, gamma and 3 shifts; the writing one also erase and add, 20 each. What the paper resets
    to learned values is counted: memory, both weightings, the read vector. A bias comes with every map.
    """
    heads = (100 + 1) * (2 * (20 + 3 + 3) + 2 * 20)
    outputs = 9 * (100 + 20 + 1)
    start = 128 * 20 + 2 * 128 + 20
    return of_controller + heads + outputs + start


def test_the_feed_forward_preset_has_the_size_of_its_connections() -> None:
    """16,317; the paper, which does not spell its connections out, says 17,162."""
    assert count("ntm_copy_feedforward") == paper_size(100 * (10 + 20 + 1)) == 16_317


def test_the_lstm_preset_has_the_size_of_its_connections() -> None:
    """65,817, with the two vectors that its state starts from; the paper says 67,561."""
    assert count("ntm_copy_lstm") == paper_size(4 * 100 * (10 + 20 + 100 + 1) + 2 * 100) == 65_817


@pytest.mark.parametrize("controller", ControllerKind)
def test_the_copy_presets_are_the_papers_machine(controller: ControllerKind) -> None:
    preset = "ntm_copy_lstm" if controller is ControllerKind.lstm else "ntm_copy_feedforward"
    assert load_preset(preset) == NeuralTuringMachineConfig(
        controller=controller,
        controller_size=100,
        memory_slots=128,
        memory_width=20,
        read_heads=1,
        write_heads=1,
        symbols=SymbolKind.binary,
        symbol_bits=8,
        feed_output=False,
    )


def test_padding_leaves_the_machine_untouched() -> None:
    model = build()
    both = model.encode(batch().source, batch().source_lengths)
    alone = model.encode(batch().source[1:, :2], batch().source_lengths[1:])
    assert isinstance(both, NTMMemory) and isinstance(alone, NTMMemory)
    torch.testing.assert_close(both.machine.memory[1], alone.machine.memory[0])
    torch.testing.assert_close(both.machine.weights[1], alone.machine.weights[0])


def test_without_fed_output_the_answer_does_not_see_the_target() -> None:
    model = build(feed_output=False)
    others = batch(([4, 5, 3], [19, 18, 17, 16, 3]))
    assert torch.equal(model(batch()).hidden, model(others).hidden)


def test_without_fed_output_bos_is_the_only_input() -> None:
    model = build(feed_output=False)
    tokens = batch().target_in
    inputs = model._inputs(tokens)
    assert inputs[:, 0].any() and not inputs[:, 1:].any()


def test_fed_output_changes_the_answer_after_it() -> None:
    others = batch(([9, 5, 3], [11, 12, 13, 14, 3]))
    before, after = build()(batch()).hidden, build()(others).hidden
    assert torch.equal(before[:2], after[:2])
    assert not torch.equal(before[2], after[2])


def test_attention_over_slots_is_not_reported_as_attention_over_the_source() -> None:
    model = build()
    assert model(batch(), AttentionRequest()).attention.maps == {}
    memory, state = model.start(model.encode(batch().source, batch().source_lengths), 1)
    assert model.step(torch.tensor([2, 2]), memory, state, attention=True).attention is None


def test_the_two_vocabularies_may_have_different_delimiters() -> None:
    model = build(VocabularySizes(4 + 8 + 2, 4 + 8, shared=False), symbols=SymbolKind.binary, symbol_bits=3)
    assert model.source_embedding(torch.tensor([12])).shape == model.target_embedding(torch.tensor([5])).shape == (1, 7)
    assert model.output.logits(torch.zeros(1, 16 + 6)).shape == (1, 12)


@pytest.mark.parametrize("start", MemoryStart)
def test_rows_of_the_starting_memory_differ_unless_it_is_constant(start: MemoryStart) -> None:
    slots = build(memory_start=start).machine.memory()
    assert (len(slots.unique(dim=0)) == 1) == (start is MemoryStart.constant)
    assert slots.requires_grad == (start is MemoryStart.learned)


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5)
    assert not torch.equal(model.train()(batch()).hidden, model(batch()).hidden)
    assert torch.equal(model.eval()(batch()).hidden, model(batch()).hidden)


def test_the_end_of_the_source_is_an_input_of_its_own() -> None:
    embedding = build(BYTES, symbols=SymbolKind.binary, symbol_bits=8).source_embedding
    assert embedding(torch.tensor([EOS])).nonzero().tolist() == [[0, 9]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_slots": 4, "shift_range": 2}, "memory_slots=4 is too few"),
        ({"read_heads": 0}, "read_heads=0"),
        ({"symbol_bits": 0}, "symbol_bits=0"),
        ({"symbol_bits": 64}, "symbol_bits=64 must be from 1 to 32"),
        ({"dropout": 1.0}, "dropout=1.0"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        NeuralTuringMachineConfig(**options)
