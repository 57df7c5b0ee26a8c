"""Recurrent pieces against a step of the LSTM by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nmt.modules.recurrent import (
    RecurrentDecoder,
    RecurrentEncoder,
    RecurrentState,
    SentenceLSTM,
    reverse_within_lengths,
)
from nmt.modules.recurrent_attention import AdditiveAttention, DotAttention, NoAttention


def lstm_by_hand(lstm: nn.LSTM, x: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """One step: the gates i, f, g, o of Hochreiter and Schmidhuber 1997 with a forget gate."""
    parameters = dict(lstm.named_parameters())
    gates = parameters["weight_ih_l0"] @ x + parameters["bias_ih_l0"]
    gates = gates + parameters["weight_hh_l0"] @ hidden + parameters["bias_hh_l0"]
    enter, forget, candidate, leave = gates.chunk(4)
    cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * cell.tanh(), cell


def run_by_hand(lstm: nn.LSTM, inputs: Tensor, hidden: Tensor, cell: Tensor) -> list[Tensor]:
    outputs = []
    for x in inputs:
        hidden, cell = lstm_by_hand(lstm, x, hidden, cell)
        outputs.append(hidden)
    return [*outputs, cell]


def layer(encoder: RecurrentEncoder, direction: int) -> SentenceLSTM:
    chosen = encoder.layers[0][direction]  # type: ignore[index]
    assert isinstance(chosen, SentenceLSTM)
    return chosen


def test_an_encoder_equals_its_steps_by_hand() -> None:
    encoder = RecurrentEncoder(3, 4, 1, False, 0.0)
    x = torch.randn(2, 5, 3)
    states, last = encoder(x, torch.tensor([3, 5]))
    *outputs, cell = run_by_hand(layer(encoder, 0), x[0, :3], torch.zeros(4), torch.zeros(4))
    torch.testing.assert_close(states[0, :3], torch.stack(outputs))
    torch.testing.assert_close(last.hidden[0, 0], outputs[-1])
    torch.testing.assert_close(last.cell[0, 0], cell)


def test_the_second_direction_starts_at_each_sentence_own_end() -> None:
    encoder = RecurrentEncoder(3, 8, 1, True, 0.0)
    x = torch.randn(2, 5, 3)
    states, last = encoder(x, torch.tensor([3, 5]))
    *outputs, cell = run_by_hand(layer(encoder, 1), x[0, :3].flip(0), torch.zeros(4), torch.zeros(4))
    torch.testing.assert_close(states[0, :3, 4:], torch.stack(outputs).flip(0))
    torch.testing.assert_close(last.hidden[0, 0, 4:], outputs[-1])
    torch.testing.assert_close(last.cell[0, 0, 4:], cell)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_and_gradients_are_those_of_packed_sentences(dtype: torch.dtype) -> None:
    lstm = SentenceLSTM(3, 4).to(dtype)
    lengths = torch.tensor([3, 5, 1])
    real = (torch.arange(5) < lengths[:, None])[:, :, None]
    x = torch.randn(3, 5, 3, dtype=dtype, requires_grad=True)

    states, hidden, cell = lstm(x, lengths)
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    output, (last, last_cell) = nn.LSTM.forward(lstm, packed)
    unpacked, _ = pad_packed_sequence(output, batch_first=True)
    torch.testing.assert_close(states * real, unpacked)
    torch.testing.assert_close(hidden, last[0])
    torch.testing.assert_close(cell, last_cell[0])

    leaves = [x, *lstm.parameters()]
    found = torch.autograd.grad(((states * real).sin().sum() + hidden.sum() * cell.exp().sum()), leaves)
    wanted = torch.autograd.grad((unpacked.sin().sum() + last.sum() * last_cell.exp().sum()), leaves)
    for one, other in zip(found, wanted):
        torch.testing.assert_close(one, other)


def test_what_stands_at_padding_never_matters() -> None:
    encoder, lengths = RecurrentEncoder(3, 4, 2, True, 0.0), torch.tensor([3, 5])
    x = torch.randn(2, 5, 3)
    other = x.clone()
    other[0, 3:] = 100 * torch.randn(2, 3)
    states, last = encoder(x, lengths)
    other_states, other_last = encoder(other, lengths)
    assert torch.equal(states[0, :3], other_states[0, :3])
    assert torch.equal(last.hidden, other_last.hidden)
    assert torch.equal(last.cell, other_last.cell)


def test_dropout_acts_between_layers_and_not_on_a_single_one() -> None:
    x, lengths = torch.randn(2, 5, 3), torch.tensor([3, 5])
    one, two = RecurrentEncoder(3, 4, 1, False, 0.5), RecurrentEncoder(3, 4, 2, False, 0.5)
    assert torch.equal(one(x, lengths)[0], one(x, lengths)[0])
    assert not torch.equal(two(x, lengths)[0], two(x, lengths)[0])


def test_a_decoder_in_one_go_equals_its_steps() -> None:
    decoder = RecurrentDecoder(3, 4, 2, 0.0)
    x, state = torch.randn(2, 5, 3), RecurrentState(torch.randn(2, 2, 4), torch.randn(2, 2, 4))
    expected, _ = decoder(x, state)
    for position in range(5):
        found, state = decoder(x[:, position : position + 1], state)
        torch.testing.assert_close(found[:, 0], expected[:, position])


def test_reversing_is_by_each_sentence_own_length_and_undoes_itself() -> None:
    x, lengths = torch.tensor([[1, 2, 3, 0], [5, 6, 7, 8]]), torch.tensor([3, 4])
    assert reverse_within_lengths(x, lengths).tolist() == [[3, 2, 1, 0], [8, 7, 6, 5]]
    wide = torch.randn(2, 4, 3)
    assert torch.equal(reverse_within_lengths(reverse_within_lengths(wide, lengths), lengths), wide)


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_attention_equals_its_formula(kind: str) -> None:
    attention = DotAttention(4) if kind == "dot" else AdditiveAttention(4)
    queries, states = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    bias = torch.zeros(2, 1, 5)
    bias[0, :, 3:] = -torch.inf
    contexts, weights = attention(queries, attention.project(states), states, bias)
    scores = torch.zeros(3, 3)
    for t in range(3):
        for s in range(3):
            if isinstance(attention, AdditiveAttention):
                mixed = attention.query.weight @ queries[0, t] + attention.key(states[0, s])
                scores[t, s] = attention.score.weight[0] @ mixed.tanh()
            else:
                scores[t, s] = queries[0, t] @ states[0, s]
    expected = scores.softmax(-1)
    assert weights is not None
    torch.testing.assert_close(weights[0, :, :3], expected)
    assert not weights[0, :, 3:].any()
    torch.testing.assert_close(contexts[0], expected @ states[0, :3])


def test_no_attention_gives_an_empty_context() -> None:
    contexts, weights = NoAttention()(torch.randn(2, 3, 4), torch.zeros(0), torch.randn(2, 5, 4), torch.zeros(0))
    assert contexts.shape == (2, 3, 0)
    assert weights is None
