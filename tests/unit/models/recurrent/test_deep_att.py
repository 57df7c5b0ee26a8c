"""Deep-Att beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from nmt.data.batching.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.recurrent.config import DeepAttConfig
from nmt.models.recurrent.deep_att import DeepAtt, FastForward, FastForwardColumn
from nmt.models.recurrent.layers import LSTMLayer

SIZES = VocabularySizes(20, 30, shared=False)


def build(**options: int) -> DeepAtt:
    torch.manual_seed(1)
    model = models.build(replace(DeepAttConfig(dropout=0.0).shrink(), **options), SIZES)
    assert isinstance(model, DeepAtt)
    return model.eval()


def batch() -> Batch:
    return collate([torch.tensor([5, 6, 7, 3]).numpy()], [torch.tensor([9, 10, 11, 3]).numpy()])


def test_the_paper_sizes_meet_in_the_attention() -> None:
    assert DeepAttConfig().memory_size == 1280  # and 5,120 before the projection
    with torch.device("meta"):
        model = models.build(DeepAttConfig(), SIZES)
    assert model.encoder.projection.in_features == 5120  # type: ignore[union-attr]


def by_blocks(layer: LSTMLayer, x: Tensor) -> tuple[Tensor, Tensor]:
    """f = W x first, then the recurrent block alone: f [T, 4H] and states [T, H] of x [T, I]."""
    of_input, of_state, bias, other_bias = layer.rnn.parameters()
    f = x @ of_input.t()
    hidden, cell, states = torch.zeros(4), torch.zeros(4), []
    for row in f:
        enter, forget, candidate, leave = (row + of_state @ hidden + bias + other_bias).chunk(4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        states.append(hidden)
    return f, torch.stack(states)


def test_a_column_hands_on_half_of_f_and_turns_with_every_layer() -> None:
    column, x = FastForwardColumn(3, 4, 3, 0.0, backwards=False), torch.randn(5, 3)
    expected = x
    for number, layer in enumerate(column.layers):
        assert isinstance(layer, FastForward)
        given = expected.flip(0) if number == 1 else expected
        f, states = by_blocks(layer.layer, given)
        f, states = (f.flip(0), states.flip(0)) if number == 1 else (f, states)
        expected = torch.cat([f[:, :8], states], dim=1)
    found = column(x[None], torch.tensor([5]))[0]
    torch.testing.assert_close(found, torch.cat([states, f], dim=1))


def test_both_columns_read_in_opposite_directions() -> None:
    columns = nn.ModuleList(FastForwardColumn(3, 4, 2, 0.0, backwards=backwards) for backwards in (False, True))
    columns[1].load_state_dict(columns[0].state_dict())
    x, lengths = torch.randn(1, 5, 3), torch.tensor([5])
    torch.testing.assert_close(columns[0](x, lengths), columns[1](x.flip(1), lengths).flip(1))


def test_the_decoder_equals_its_steps_by_hand() -> None:
    model, given = build(decoder_layers=2), batch()
    memory, attention = model.encode(given.source, given.source_lengths), model.decoder.attention
    bottom, top = (layer for layer in model.decoder.layers)
    states = [torch.zeros(1, 2, 10), torch.zeros(1, 2, 10)]
    rows = []
    for token in given.target_in[0]:
        mixed = torch.tanh(attention.query(states[0][:, 0]) + attention.key(memory.states[0]))
        context = attention.score(mixed).squeeze(-1).softmax(0) @ memory.states[0]
        x = torch.cat([context, model.target_embedding(token)])[None, None]
        for number, layer in enumerate((bottom, top)):
            hidden, states[number] = layer.layer(x, states[number])  # type: ignore[operator, union-attr]
            x = torch.cat([layer.layer.of_input(x)[..., :20], hidden], -1)  # type: ignore[operator, union-attr]
        rows.append(x[0, 0])
    torch.testing.assert_close(model(given).hidden, torch.stack(rows))


def test_gradients_pass_through_the_fast_path_alone() -> None:
    """With the recurrence cut off, the top still depends on the bottom's input, linearly."""
    column = FastForwardColumn(3, 4, 4, 0.0, backwards=False)
    with torch.no_grad():
        for layer in column.layers[1:]:
            layer.layer.rnn.weight_ih_l0[:, 8:] = 0.0  # type: ignore[union-attr, operator]
    x, lengths = torch.randn(1, 5, 3), torch.tensor([5])
    torch.testing.assert_close(column(2 * x, lengths)[..., 4:], 2 * column(x, lengths)[..., 4:])


def test_an_odd_size_is_refused() -> None:
    with pytest.raises(UsageError, match="hidden_size=11 is odd"):
        DeepAttConfig(hidden_size=11)
