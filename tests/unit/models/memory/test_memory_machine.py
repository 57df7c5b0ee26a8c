"""The machine as a whole: one step against a slow oracle, the start, and rows that stop at their own length."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nmt.models.memory.neural_turing_machine import (
    Controller,
    FeedForwardController,
    Heads,
    LSTMController,
    MachineState,
    MemoryMachine,
    StartingMemory,
)
from nmt.trees import tensors

E, C, L, W = 5, 7, 6, 4


def machine(num_read: int = 1, num_write: int = 1, kind: type[Controller] = LSTMController) -> MemoryMachine:
    torch.manual_seed(1)
    controller = kind(E, num_read * W, C)  # type: ignore[call-arg]
    built = MemoryMachine(controller, Heads(C, num_read, num_write, W, 1), StartingMemory(torch.randn(L, W), True))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return built.double()


def inputs(rows: int = 3, steps: int = 5) -> Tensor:
    return torch.randn(rows, steps, E, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def sigma(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def oracle(built: MemoryMachine, x: Tensor) -> np.ndarray:
    """One sentence [T, E] through a machine of one reading and one writing head with a feed-forward controller."""
    parts = {name: value.detach().numpy() for name, value in built.named_parameters()}
    memory, reads = parts["memory.slots"].copy(), parts["first_reads"]
    weights = [softmax(logits) for logits in parts["first_weights"]]
    outputs = []
    for x_t in x.numpy():
        before = parts["controller.of_input.weight"] @ x_t + parts["controller.of_input.bias"]
        hidden = np.tanh(before + parts["controller.of_reads.weight"] @ reads)
        signals = parts["heads.signals.weight"] @ hidden + parts["heads.signals.bias"]
        size = W + 6
        weights = [look(signals[h * size : (h + 1) * size], weights[h], memory) for h in range(2)]
        erase, add = sigma(signals[2 * size : 2 * size + W]), signals[2 * size + W :]
        for i in range(L):
            memory[i] = memory[i] * (1 - weights[1][i] * erase) + weights[1][i] * add
        reads = sum(weights[0][i] * memory[i] for i in range(L))
        outputs.append(np.concatenate([hidden, reads]))
    return np.stack(outputs)


def look(signals: np.ndarray, previous: np.ndarray, memory: np.ndarray) -> np.ndarray:
    key, shift, strength, sharpness, gate = np.split(signals, [W, W + 3, W + 4, W + 5])
    cosines = np.array([key @ slot / (np.linalg.norm(key) * np.linalg.norm(slot)) for slot in memory])
    gated = sigma(gate) * softmax(np.log1p(np.exp(strength)) * cosines) + (1 - sigma(gate)) * previous
    s = softmax(shift)
    shifted = np.array([sum(gated[(i - d) % L] * s[d + 1] for d in (-1, 0, 1)) for i in range(L)])
    sharpened = shifted ** (1 + np.log1p(np.exp(sharpness)))
    return sharpened / sharpened.sum()


def test_a_machine_does_what_the_paper_says_step_by_step() -> None:
    built, x = machine(kind=FeedForwardController), inputs(rows=2)
    outputs, _ = built.answer(x, built.start(2))
    expected = np.stack([oracle(built, sentence) for sentence in x])
    torch.testing.assert_close(outputs, torch.from_numpy(expected), rtol=1e-5, atol=1e-6)


def test_the_lstm_controller_is_an_lstm_over_input_and_reads_with_one_bias() -> None:
    controller = LSTMController(E, W, C).double()
    x, reads = inputs(rows=3, steps=1), torch.randn(3, W, dtype=torch.float64)
    plain = nn.LSTMCell(E + W, C).double()
    with torch.no_grad():
        of_input, of_one, of_reads = controller.cell.weight_ih.split([E, 1, W], dim=1)
        plain.weight_ih.copy_(torch.cat([of_input, of_reads], dim=1))
        plain.weight_hh.copy_(controller.cell.weight_hh)
        plain.bias_ih.copy_(of_one.squeeze(1))
        plain.bias_hh.zero_()
    state = torch.randn(3, C, dtype=torch.float64), torch.randn(3, C, dtype=torch.float64)
    hidden, (_, cell) = controller(controller.prepare(x)[:, 0], reads, state)
    torch.testing.assert_close((hidden, cell), plain(torch.cat([x[:, 0], reads], dim=1), state))


@pytest.mark.parametrize("kind", [LSTMController, FeedForwardController])
@pytest.mark.parametrize(("num_read", "num_write"), [(1, 1), (2, 1), (1, 3)])
def test_a_row_stops_after_its_own_number_of_steps(kind: type[Controller], num_read: int, num_write: int) -> None:
    """Memory, weights, reads and controller of each row are those of its sentence alone."""
    built, x = machine(num_read, num_write, kind), inputs(rows=3, steps=5)
    lengths = [5, 2, 4]
    together = built.absorb(x, torch.tensor(lengths))
    for row, length in enumerate(lengths):
        cut = built.absorb(x[:, :length], torch.full((3,), length))
        for frozen, expected in zip(tensors(together), tensors(cut)):
            torch.testing.assert_close(frozen[row], expected[row])


def test_padding_that_is_not_a_number_is_never_seen() -> None:
    built, x = machine(), inputs(rows=2, steps=4)
    x[1, 2:] = math.nan
    state = built.absorb(x, torch.tensor([4, 2]))
    assert all(torch.isfinite(tensor).all() for tensor in tensors(state))


def test_every_weighting_is_a_distribution_over_the_slots() -> None:
    built = machine(2, 2)
    state = built.absorb(inputs(), torch.tensor([5, 5, 5]))
    for weights in (built.start(3).weights, state.weights):
        assert weights.shape == (3, 4, L)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, dtype=torch.float64))


def test_all_heads_start_at_one_slot() -> None:
    built = MemoryMachine(LSTMController(E, W, C), Heads(C, 1, 1, W, 1), StartingMemory(torch.zeros(L, W), False))
    weights = built.start(1).weights[0]
    torch.testing.assert_close(weights[:, 0], torch.full((2,), 0.9))


def test_a_learned_start_is_trained_and_a_fixed_one_is_stored_only() -> None:
    learned, fixed = StartingMemory(torch.ones(L, W), learned=True), StartingMemory(torch.ones(L, W), learned=False)
    assert [name for name, _ in learned.named_parameters()] == ["slots"]
    assert not list(fixed.parameters())
    assert "slots" in fixed.state_dict()


def test_the_state_before_the_first_step_is_trained() -> None:
    built = machine()
    outputs, _ = built.answer(inputs(), built.start(3))
    outputs.sum().backward()
    for name in ("first_weights", "first_reads", "controller.first_hidden", "controller.first_cell", "memory.slots"):
        gradient = built.get_parameter(name).grad
        assert gradient is not None and gradient.abs().sum() > 0, name


def test_a_state_is_taken_where_it_is_chosen() -> None:
    built = machine()
    old = built.start(2)
    _, new = built(built.controller.prepare(inputs(rows=2))[:, 0], old)
    mixed = new.where(torch.tensor([True, False]), old)
    assert isinstance(mixed, MachineState)
    for found, after, before in zip(tensors(mixed), tensors(new), tensors(old)):
        assert torch.equal(found[0], after[0]) and torch.equal(found[1], before[1])
