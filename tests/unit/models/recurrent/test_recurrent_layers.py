"""Recurrent pieces against a step of the LSTM and of the GRU by hand."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.models.recurrent import layers as recurrent
from nmt.models.recurrent.layers import (
    BidirectionalLayer,
    DirectedLayer,
    GRULayer,
    LSTMLayer,
    ProjectedLSTMLayer,
    RecurrentEncoder,
    RecurrentLayer,
    RecurrentStack,
    averaged,
    concatenated,
    reverse_within_lengths,
)
from nmt.models.recurrent.lstm import DenseBridge, ZeroBridge

LENGTHS = torch.tensor([3, 5, 1])
KINDS = pytest.mark.parametrize("kind", [LSTMLayer, GRULayer])


def lstm_by_hand(layer: RecurrentLayer, x: Tensor, state: Tensor) -> Tensor:
    """One step of [P, H]: the gates i, f, g, o of Hochreiter and Schmidhuber 1997 with a forget gate."""
    of_input, of_state, bias, other_bias = layer.rnn.parameters()
    enter, forget, candidate, leave = (of_input @ x + bias + of_state @ state[0] + other_bias).chunk(4)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * candidate.tanh()
    return torch.stack([leave.sigmoid() * cell.tanh(), cell])


def gru_by_hand(layer: RecurrentLayer, x: Tensor, state: Tensor) -> Tensor:
    of_input, of_state, bias, other_bias = layer.rnn.parameters()
    from_input, from_state = of_input @ x + bias, of_state @ state[0] + other_bias
    reset, update = ((from_input + from_state)[:8].sigmoid()).chunk(2)
    candidate = (from_input[8:] + reset * from_state[8:]).tanh()
    return ((1 - update) * candidate + update * state[0])[None]


def run_by_hand(layer: RecurrentLayer, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs [T, H] and the last state [P, H], from zeros."""
    by_hand = lstm_by_hand if isinstance(layer, LSTMLayer) else gru_by_hand
    state, outputs = torch.zeros(layer.parts, 4), []
    for x in inputs:
        state = by_hand(layer, x, state)
        outputs.append(state[0])
    return torch.stack(outputs), state


@KINDS
def test_a_layer_over_sentences_equals_its_steps_by_hand(kind: type[LSTMLayer]) -> None:
    layer, x = kind(3, 4), torch.randn(3, 5, 3)
    states, last = layer.over_sentences(x, LENGTHS)
    for sentence, length in enumerate(LENGTHS.tolist()):
        outputs, state = run_by_hand(layer, x[sentence, :length])
        torch.testing.assert_close(states[sentence, :length], outputs)
        torch.testing.assert_close(last[sentence], state)


@KINDS
def test_a_layer_goes_on_from_any_state(kind: type[LSTMLayer]) -> None:
    layer, x = kind(3, 4), torch.randn(2, 5, 3)
    expected, last = layer.over_sentences(x, torch.tensor([5, 5]))
    _, between = layer.over_sentences(x[:, :2], torch.tensor([2, 2]))
    found, after = layer(x[:, 2:], between)
    torch.testing.assert_close(found, expected[:, 2:])
    torch.testing.assert_close(after, last)


def over_packed(layer: LSTMLayer, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """What torch makes of packed sentences."""
    output, after = layer.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    states, _ = pad_packed_sequence(output, batch_first=True, total_length=x.size(1))
    return states, layer.join([part[0] for part in (after if isinstance(after, tuple) else (after,))])


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_and_gradients_are_those_of_packed_sentences(kind: type[LSTMLayer], dtype: torch.dtype) -> None:
    layer = kind(3, 4).to(dtype)
    real = (torch.arange(6) < LENGTHS[:, None])[:, :, None]
    x = torch.randn(3, 6, 3, dtype=dtype, requires_grad=True)

    states, last = layer.over_sentences(x, LENGTHS)
    packed, packed_last = over_packed(layer, x, LENGTHS)
    torch.testing.assert_close(states * real, packed)
    torch.testing.assert_close(last, packed_last)

    leaves = [x, *layer.parameters()]
    found = torch.autograd.grad((states * real).sin().sum() + last.exp().sum(), leaves)
    wanted = torch.autograd.grad(packed.sin().sum() + packed_last.exp().sum(), leaves)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other)


def test_a_projected_layer_is_that_of_packed_sentences_and_goes_on_from_its_state() -> None:
    layer, x = ProjectedLSTMLayer(3, 6, 4), torch.randn(3, 5, 3)
    states, last = layer.over_sentences(x, LENGTHS)
    packed, packed_last = over_packed(layer, x, LENGTHS)
    torch.testing.assert_close(states * (torch.arange(5) < LENGTHS[:, None])[:, :, None], packed)
    torch.testing.assert_close(last, packed_last)
    torch.testing.assert_close(layer.split(last)[0], packed[torch.arange(3), LENGTHS - 1])
    begun, between = layer(x[:, :2], layer.zeros(3, x))
    found, _ = layer(x[:, 2:], between)
    torch.testing.assert_close(torch.cat([begun, found], 1)[1], states[1])


@pytest.mark.slow
def test_a_projected_layer_raises_no_warning() -> None:
    """In a process of its own: torch warns once a process."""
    code = """
import torch
from nmt.models.recurrent.layers import ProjectedLSTMLayer
layer = ProjectedLSTMLayer(3, 6, 4)
layer.over_sentences(torch.randn(2, 5, 3), torch.tensor([5, 2]))
layer(torch.randn(2, 5, 3), layer.zeros(2, torch.zeros(1)))
"""
    subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", code], check=True)


@KINDS
def test_what_stands_at_padding_never_matters(kind: type[LSTMLayer]) -> None:
    encoder = RecurrentEncoder(
        [BidirectionalLayer(kind(3, 4), kind(3, 4), concatenated), DirectedLayer(kind(8, 4), backwards=True)], 0.0
    )
    x = torch.randn(3, 5, 3)
    other = x.clone()
    other[0, 3:] = 100 * torch.randn(2, 3)
    (states, last), (other_states, other_last) = encoder(x, LENGTHS), encoder(other, LENGTHS)
    assert torch.equal(states[0, :3], other_states[0, :3])
    assert all(torch.equal(one, two) for one, two in zip(last, other_last))


def test_reading_backwards_starts_at_each_sentence_own_end() -> None:
    layer, x = LSTMLayer(3, 4), torch.randn(3, 5, 3)
    states, last = DirectedLayer(layer, backwards=True)(x, LENGTHS)
    outputs, state = run_by_hand(layer, x[0, :3].flip(0))
    torch.testing.assert_close(states[0, :3], outputs.flip(0))
    torch.testing.assert_close(last[0], state)


@pytest.mark.parametrize(
    ("merge", "merged"),
    [
        (concatenated, lambda one, other: torch.cat([one, other], -1)),
        (averaged, lambda one, other: (one + other) / 2),
    ],
)
def test_directions_are_merged_in_states_and_last_state(merge: Any, merged: Any) -> None:
    onward, backward, x = LSTMLayer(3, 4), LSTMLayer(3, 4), torch.randn(3, 5, 3)
    both = BidirectionalLayer(onward, backward, merge)
    states, last = both(x, LENGTHS)
    one, other = DirectedLayer(onward)(x, LENGTHS), DirectedLayer(backward, backwards=True)(x, LENGTHS)
    torch.testing.assert_close(states, merged(one[0], other[0]))
    torch.testing.assert_close(last, merged(one[1], other[1]))


@pytest.mark.parametrize("residual_from", [1, 2, 3, None])
def test_inputs_are_added_to_outputs_from_a_layer_on(residual_from: int | None) -> None:
    layers, x = [LSTMLayer(4, 4) for _ in range(3)], torch.randn(2, 5, 4)
    lengths = torch.tensor([5, 5])
    expected = x
    for number, layer in enumerate(layers, 1):
        outputs, _ = layer.over_sentences(expected, lengths)
        expected = outputs + expected if residual_from is not None and number >= residual_from else outputs
    encoder = RecurrentEncoder([DirectedLayer(layer) for layer in layers], 0.0, residual_from)
    torch.testing.assert_close(encoder(x, lengths)[0], expected)
    decoder = RecurrentStack(layers, 0.0, residual_from)
    zeros = tuple(torch.zeros(2, 2, 4) for _ in layers)
    torch.testing.assert_close(decoder(x, zeros)[0], expected)


def test_dropout_acts_between_layers_and_not_on_a_single_one() -> None:
    x = torch.randn(3, 5, 3)
    one = RecurrentEncoder([DirectedLayer(LSTMLayer(3, 4))], 0.5)
    two = RecurrentEncoder([DirectedLayer(LSTMLayer(3, 4)), DirectedLayer(LSTMLayer(4, 4))], 0.5)
    assert torch.equal(one(x, LENGTHS)[0], one(x, LENGTHS)[0])
    assert not torch.equal(two(x, LENGTHS)[0], two(x, LENGTHS)[0])


def test_dropout_never_acts_on_the_path_around_a_layer() -> None:
    """Layers that answer nothing leave the path alone: what comes out is what went in."""
    layers, x = [LSTMLayer(4, 4) for _ in range(4)], torch.randn(3, 5, 4)
    with torch.no_grad():
        for layer in layers:
            for parameter in layer.parameters():
                parameter.zero_()
    encoder = RecurrentEncoder([DirectedLayer(layer) for layer in layers], 0.5, residual_from=1)
    assert torch.equal(encoder(x, torch.tensor([5, 5, 5]))[0], x)
    decoder = RecurrentStack(layers, 0.5, residual_from=1)
    assert torch.equal(decoder(x, tuple(torch.zeros(3, 2, 4) for _ in layers))[0], x)


@KINDS
def test_a_decoder_in_one_go_equals_its_steps(kind: type[LSTMLayer]) -> None:
    decoder = RecurrentStack([kind(3, 4), kind(4, 4)], 0.0, residual_from=2)
    x, states = torch.randn(2, 5, 3), tuple(torch.randn(2, kind.parts, 4) for _ in range(2))
    expected, _ = decoder(x, states)
    for position in range(5):
        found, states = decoder(x[:, position : position + 1], states)
        torch.testing.assert_close(found[:, 0], expected[:, position])


def test_reversing_is_by_each_sentence_own_length_and_undoes_itself() -> None:
    x, lengths = torch.tensor([[1, 2, 3, 0], [5, 6, 7, 8]]), torch.tensor([3, 4])
    assert reverse_within_lengths(x, lengths).tolist() == [[3, 2, 1, 0], [8, 7, 6, 5]]
    wide = torch.randn(2, 4, 3)
    assert torch.equal(reverse_within_lengths(reverse_within_lengths(wide, lengths), lengths), wide)


def test_bridges_give_each_layer_its_first_state() -> None:
    last = (torch.randn(3, 2, 6), torch.randn(3, 2, 6))
    assert [state.shape for state in ZeroBridge(3, 1, 5)(last)] == [(3, 1, 5)] * 3
    assert not any(state.any() for state in ZeroBridge(3, 1, 5)(last))
    backward = DenseBridge(6, 2, 2, 5, first=3)
    first, second = backward(last)
    assert first.shape == (3, 2, 5)
    matrix = backward.linear.weight.view(2, 2, 5, 3)  # layer, part, output, input
    torch.testing.assert_close(first[1, 1], torch.tanh(matrix[0, 1] @ last[-1][1, 0, 3:]))
    torch.testing.assert_close(second[2, 0], torch.tanh(matrix[1, 0] @ last[-1][2, 0, 3:]))


@pytest.mark.parametrize("autocast", [True, False])
def test_a_cpu_without_an_lstm_in_bf16_computes_it_in_float32(monkeypatch: pytest.MonkeyPatch, autocast: bool) -> None:
    monkeypatch.setattr(recurrent, "has_bf16_kernels", lambda: False)
    torch.manual_seed(1)
    layer, x, lengths = LSTMLayer(6, 8), torch.randn(3, 5, 6), torch.tensor([5, 2, 4])
    expected, after = layer.over_sentences(x, lengths)
    stepped, _ = layer(x, layer.zeros(3, x))
    if not autocast:
        layer, x = layer.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        states, last = layer.over_sentences(x, lengths)
        outputs, _ = layer(x, layer.zeros(3, x))
    assert states.dtype == last.dtype == outputs.dtype == torch.bfloat16
    for found, wanted in ((states[0], expected[0]), (last, after), (outputs, stepped)):
        torch.testing.assert_close(found.float(), wanted, rtol=0.03, atol=0.03)
    outputs.float().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in layer.parameters())
