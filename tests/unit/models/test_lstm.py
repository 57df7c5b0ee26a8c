"""The recurrent model beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nmt.data.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.lstm import LSTM, AttentionKind, LSTMConfig, LSTMMemory, ReadoutKind
from nmt.testing.subjects import load_preset

SIZES = VocabularySizes(20, 30, shared=False)


def build(**options: Any) -> LSTM:
    torch.manual_seed(1)
    model = models.build(replace(LSTMConfig(dropout=0.0).shrink(), **options), SIZES)
    assert isinstance(model, LSTM)
    return model.eval()


def batch(*sources: list[int]) -> Batch:
    given = sources or ([5, 6, 7, 3], [8, 3])
    targets = [[9, 10, 3], [11, 12, 13, 14, 3]][: len(given)]
    return collate([torch.tensor(ids).numpy() for ids in given], [torch.tensor(ids).numpy() for ids in targets])


def test_the_textbook_preset_is_the_textbook_model() -> None:
    config = load_preset("lstm_attention")
    assert config == LSTMConfig(
        embedding_size=16,
        hidden_size=256,
        num_layers=1,
        attention=AttentionKind.dot,
        readout=ReadoutKind.concat,
        reverse_source=True,
        dropout=0.0,
    )


def test_the_output_layer_sees_context_and_state_side_by_side() -> None:
    model = build()
    hidden = model(batch()).hidden
    assert hidden.shape == (8, 32)
    assert model.output.linear()[0].shape == (30, 32)  # type: ignore[index]


def test_the_tanh_readout_keeps_the_hidden_size() -> None:
    hidden = build(readout=ReadoutKind.tanh)(batch()).hidden
    assert hidden.shape == (8, 16)
    assert hidden.abs().max() < 1


def test_without_attention_only_the_state_is_read_out() -> None:
    assert build(attention=AttentionKind.none)(batch()).hidden.shape == (8, 16)


def test_the_decoder_starts_from_the_last_state_of_the_encoder() -> None:
    model = build(attention=AttentionKind.none)
    memory = model.encode(batch().source, batch().source_lengths)
    assert isinstance(memory, LSTMMemory)
    torch.testing.assert_close(memory.last.hidden[:, -1], memory.states[torch.arange(2), batch().source_lengths - 1])
    embedded = model.target_embedding(batch().target_in[:, :1])
    _, (hidden, _) = model.decoder.lstm(embedded, memory.last.by_layer())
    torch.testing.assert_close(model(batch()).hidden[[0, 3]], hidden[-1])


def test_a_reversed_source_is_read_backwards_from_its_own_end() -> None:
    plain, reversing = build(), build(reverse_source=True)
    backwards = batch([3, 7, 6, 5], [3, 8])
    torch.testing.assert_close(
        plain.encode(backwards.source, backwards.source_lengths).last.hidden,  # type: ignore[attr-defined]
        reversing.encode(batch().source, batch().source_lengths).last.hidden,  # type: ignore[attr-defined]
    )


def test_states_of_a_reversed_source_stand_in_its_order() -> None:
    memory = build(reverse_source=True).encode(batch().source, batch().source_lengths)
    assert isinstance(memory, LSTMMemory)
    torch.testing.assert_close(memory.states[:, 0], memory.last.hidden[:, -1])  # the first word is read last


def test_a_bidirectional_state_is_the_two_directions_side_by_side() -> None:
    model = build(bidirectional=True)
    memory = model.encode(batch().source, batch().source_lengths)
    assert isinstance(memory, LSTMMemory)
    forward = memory.states[torch.arange(2), batch().source_lengths - 1, :8]
    torch.testing.assert_close(memory.last.hidden[:, -1], torch.cat([forward, memory.states[:, 0, 8:]], dim=1))


@pytest.mark.parametrize("kind", [AttentionKind.dot, AttentionKind.additive])
def test_attention_maps_are_distributions_over_the_real_source(kind: AttentionKind) -> None:
    decoded = build(attention=kind)(batch(), AttentionRequest())
    (weights,) = decoded.attention.maps["cross"]
    assert weights.shape == (2, 1, 5, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 5))
    assert not weights[1, :, :, 2:].any()


def test_without_attention_there_are_no_maps() -> None:
    assert build(attention=AttentionKind.none)(batch(), AttentionRequest()).attention.maps == {}


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5)
    assert not torch.equal(model.train()(batch()).hidden, model(batch()).hidden)
    assert torch.equal(model.eval()(batch()).hidden, model(batch()).hidden)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hidden_size": 15, "bidirectional": True}, "hidden_size=15 is odd"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"dropout": 1.5}, "dropout=1.5"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(LSTMConfig(), **options)


def test_shrinking_changes_sizes_only() -> None:
    config = LSTMConfig(num_layers=4, bidirectional=True, reverse_source=True, attention=AttentionKind.additive)
    sizes = ("embedding_size", "hidden_size", "num_layers")
    assert replace(config.shrink(), **{name: getattr(config, name) for name in sizes}) == config
