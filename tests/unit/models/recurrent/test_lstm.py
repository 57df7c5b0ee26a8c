"""The recurrent model beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batching.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.recurrent.config import (
    AttentionKind,
    BridgeKind,
    CellKind,
    ContextPath,
    LSTMConfig,
    Merge,
    ReadoutKind,
)
from nmt.models.recurrent.lstm import LSTM, LSTMMemory
from nmt.testing.subjects import load_preset

SIZES = VocabularySizes(20, 30, shared=False)


def build(sizes: VocabularySizes = SIZES, **options: Any) -> LSTM:
    torch.manual_seed(1)
    model = models.build(replace(LSTMConfig(embedding_size=256, dropout=0.0).shrink(), **options), sizes)
    assert isinstance(model, LSTM)
    return model.eval()


def batch(*sources: list[int]) -> Batch:
    given = sources or ([5, 6, 7, 3], [8, 3])
    targets = [[9, 10, 3], [11, 12, 13, 14, 3]][: len(given)]
    return collate([torch.tensor(ids).numpy() for ids in given], [torch.tensor(ids).numpy() for ids in targets])


def encoded(model: LSTM, given: Batch) -> LSTMMemory:
    return model.encode(given.source, given.source_lengths)


def test_the_textbook_preset_is_the_textbook_model() -> None:
    config = load_preset("lstm_attention")
    assert config == LSTMConfig(
        embedding_size=16,
        hidden_size=256,
        num_layers=1,
        attention=AttentionKind.dot,
        readout=ReadoutKind.plain,
        reverse_source=True,
        dropout=0.0,
    )


@pytest.mark.parametrize(
    ("options", "width"),
    [
        ({}, 32),  # context and state
        ({"attention": AttentionKind.none}, 16),
        ({"context": ContextPath.input}, 16),
        ({"context": ContextPath.both}, 32),
        ({"peeky": True}, 48),
        ({"readout_embedding": True}, 42),
        ({"readout": ReadoutKind.tanh}, 16),
        ({"readout": ReadoutKind.maxout, "readout_size": 7, "peeky": True, "readout_embedding": True}, 7),
    ],
)
def test_the_output_layer_sees_what_the_options_say(options: dict[str, Any], width: int) -> None:
    model = build(**options)
    assert model(batch()).hidden.shape == (8, width)
    assert model.output.linear()[0].shape == (30, width)  # type: ignore[index]


def test_the_decoder_starts_from_the_last_state_of_the_encoder() -> None:
    model = build(attention=AttentionKind.none)
    memory = encoded(model, batch())
    ends = memory.states[torch.arange(2), batch().source_lengths - 1]
    torch.testing.assert_close(memory.first[0][:, 0], ends)
    embedded = model.target_embedding(batch().target_in[:, :1])
    states, _ = model.decoder.stack(embedded, memory.first)
    torch.testing.assert_close(model(batch()).hidden[[0, 3]], states[:, 0])


def test_a_reversed_source_is_read_backwards_from_its_own_end() -> None:
    plain, reversing = build(), build(reverse_source=True)
    backwards = batch([3, 7, 6, 5], [3, 8])
    torch.testing.assert_close(encoded(plain, backwards).first, encoded(reversing, batch()).first)


def test_states_of_a_reversed_source_stand_in_its_order() -> None:
    memory = encoded(build(reverse_source=True), batch())
    torch.testing.assert_close(memory.states[:, 0], memory.first[0][:, 0])  # the first word is read last


def by_hand(model: LSTM, given: Batch) -> Tensor:
    """What the output layer sees of the first sentence, one position after the other, from the configuration's words."""
    memory, length = encoded(model, given), int(given.source_lengths[0])
    states, fed = memory.states[0, :length], torch.zeros(model.decoder.readout.size)
    layer, state = model.decoder.stack.layers[0], memory.first[0][:1]
    path, rows = model.path, []  # type: ignore[attr-defined]
    for token in given.target_in[0, : int(given.target_lengths[0])]:
        embedded = model.target_embedding(token)
        context = (states @ state[0, 0]).softmax(0) @ states
        inputs = {
            ContextPath.readout: [embedded],
            ContextPath.input: [embedded, context],
            ContextPath.both: [embedded, context],
            ContextPath.feeding: [embedded, fed],
        }[path]
        outputs, state = layer(torch.cat(inputs)[None, None], state)  # type: ignore[operator]
        if path in (ContextPath.readout, ContextPath.feeding):
            context = (states @ outputs[0, 0]).softmax(0) @ states
        seen = [outputs[0, 0]] if path is ContextPath.input else [context, outputs[0, 0]]
        fed = model.decoder.readout(torch.cat(seen))
        rows.append(fed)
    return torch.stack(rows)


@pytest.mark.parametrize("cell", CellKind)
@pytest.mark.parametrize("path", ContextPath)
def test_each_way_of_the_context_equals_its_steps_by_hand(path: ContextPath, cell: CellKind) -> None:
    model = build(context=path, cell=cell, readout=ReadoutKind.tanh)
    model.path = path  # type: ignore[assignment]
    torch.testing.assert_close(model(batch()).hidden[:3], by_hand(model, batch()))


def test_a_peeky_decoder_sees_the_end_of_the_source_at_every_step() -> None:
    model = build(attention=AttentionKind.none, peeky=True, bridge=BridgeKind.zero)
    assert not any(state.any() for state in encoded(model, batch()).first)  # the decoder itself starts from nothing
    before = model(batch([5, 6, 7, 3])).hidden
    after = model(batch([5, 6, 8, 3])).hidden
    assert ((after - before).abs().amax(1) > 1e-4).all()


@pytest.mark.parametrize("kind", [AttentionKind.dot, AttentionKind.general, AttentionKind.additive])
@pytest.mark.parametrize("path", ContextPath)
def test_attention_maps_are_distributions_over_the_real_source(kind: AttentionKind, path: ContextPath) -> None:
    decoded = build(attention=kind, context=path)(batch(), AttentionRequest())
    assert decoded.attention is not None
    (weights,) = decoded.attention.maps["cross"]
    assert weights.shape == (2, 1, 5, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 1, 5))
    assert not weights[1, :, :, 2:].any()


def test_without_attention_there_are_no_maps() -> None:
    assert build(attention=AttentionKind.none)(batch(), AttentionRequest()).attention.maps == {}  # type: ignore[union-attr]


def test_shared_matrices_are_counted_once() -> None:
    joint = VocabularySizes(30, 30, shared=True)
    options: dict[str, Any] = {"readout": ReadoutKind.tanh, "embedding_size": 16}
    count = {
        name: sum(parameter.numel() for parameter in build(joint, **options, **shared).parameters())
        for name, shared in {
            "none": {},
            "target": {"share_decoder_embeddings": True},
            "all": {"share_all_embeddings": True},
        }.items()
    }
    assert count["none"] - count["target"] == 30 * 16 + 30  # a tied output has no bias
    assert count["target"] - count["all"] == 30 * 16


def test_initial_values_lie_in_the_range_asked_for() -> None:
    largest = max(float(parameter.detach().abs().max()) for parameter in build(init_range=0.08).parameters())
    assert 0.07 < largest <= 0.08


def test_dropout_acts_in_training_only() -> None:
    model = build(dropout=0.5)
    assert not torch.equal(model.train()(batch()).hidden, model(batch()).hidden)
    assert torch.equal(model.eval()(batch()).hidden, model(batch()).hidden)


# Without embeddings and output layer, whose size is the vocabulary's: Luong's paper and Sutskever's give no other count.
RECURRENT = {
    # 8 layers of 4 (2 x 1000 x 1000 + two biases)
    "lstm_sutskever": 8 * 4 * (2 * 1000 * 1000 + 2 * 1000),
    # the same, 1,000 more inputs at the bottom of the decoder, W_a, the window's W_p and v_p, and W_c
    "lstm_luong": 8 * 4 * (2 * 1000 * 1000 + 2 * 1000) + 4 * 1000 * 1000 + 1000**2 + 1000**2 + 1000 + 2000 * 1000,
    # encoder, decoder; W_s; W_a, U_a, b, v_a; maxout
    "lstm_bahdanau": 2 * 3 * (1620 * 1000 + 2000)
    + 3 * ((620 + 2000 + 1000) * 1000 + 2000)
    + 1000 * 1000
    + (1000 * 1000 + 2000 * 1000 + 1000 + 1000)
    + (2000 + 1000 + 620) * 1000,
}


@pytest.mark.parametrize("preset", RECURRENT)
def test_the_presets_of_the_papers_have_the_sizes_of_the_papers(preset: str) -> None:
    config = load_preset(preset)
    with torch.device("meta"):
        model = models.build(config, VocabularySizes(5, 5, shared=False))
    embeddings = 10 * config.embedding_size
    output = 5 * model.output.linear()[0].size(1) + 5  # type: ignore[index]
    assert sum(parameter.numel() for parameter in model.parameters()) - embeddings - output == RECURRENT[preset]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"hidden_size": 15, "bidirectional": True}, "hidden_size=15 is odd"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"dropout": 1.5}, "dropout=1.5"),
        ({"encoder_size": 100, "bridge": BridgeKind.dense}, "attention=dot compares states of width 100 and 512"),
        ({"encoder_size": 100, "attention": AttentionKind.general}, "bridge=copy cannot start a decoder of width 512"),
        ({"bridge": BridgeKind.backward}, "bridge=backward needs the backward direction"),
        ({"bridge": BridgeKind.backward, "bidirectional": True, "merge": Merge.sum}, "bridge=backward needs"),
        ({"attention": AttentionKind.none, "context": ContextPath.both}, "context=both needs attention"),
        ({"attention": AttentionKind.none, "attention_window": 3}, "attention_window=3 needs attention"),
        (
            {"attention": AttentionKind.none, "bridge": BridgeKind.zero},
            "bridge=zero without attention hides the source",
        ),
        ({"encoder_size": 15, "bidirectional": True}, "encoder_size=15 is odd.*model.encoder_size"),
        (
            {"residual_from": 1, "embedding_size": 256},
            "residual_from=1 adds embeddings of width 256 to states of width 512 in",
        ),
        ({"residual_from": 1, "embedding_size": 512, "peeky": True}, "residual_from=1 cannot add"),
        ({"attention_window": 0}, "attention_window=0"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(LSTMConfig(), **options)


def test_shared_matrices_need_a_joint_vocabulary_and_a_readout_of_their_width() -> None:
    with pytest.raises(UsageError, match="share_all_embeddings needs one vocabulary"):
        build(share_all_embeddings=True, readout=ReadoutKind.tanh, embedding_size=16)
    with pytest.raises(UsageError, match="shared embeddings of width 10 cannot read a readout of width 32"):
        build(share_decoder_embeddings=True)


def test_shrinking_changes_sizes_only() -> None:
    config = LSTMConfig(num_layers=4, bidirectional=True, reverse_source=True, attention=AttentionKind.additive)
    sizes = ("embedding_size", "hidden_size", "num_layers")
    assert replace(config.shrink(), **{name: getattr(config, name) for name in sizes}) == config
