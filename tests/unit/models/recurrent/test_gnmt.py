"""GNMT beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nmt.data.batching.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.recurrent.config import GNMTConfig
from nmt.models.recurrent.gnmt import GNMT
from nmt.models.recurrent.layers import BidirectionalLayer
from nmt.testing.subjects import Subject
from tests.unit.models.every_parameter import assert_every_parameter_learns

SIZES = VocabularySizes(20, 30, shared=False)


def build(**options: int) -> GNMT:
    torch.manual_seed(1)
    model = models.build(replace(GNMTConfig(dropout=0.0, init_range=0.5).shrink(), **options), SIZES)
    assert isinstance(model, GNMT)
    return model.eval()


def batch() -> Batch:
    source, target = torch.tensor([5, 6, 7, 3]).numpy(), torch.tensor([9, 10, 11, 3]).numpy()
    return collate([source], [target])


def test_the_paper_size_has_the_parameters_that_the_literature_gives() -> None:
    """278 million: Shazeer et al. 2017, arXiv:1701.06538, tables 2 and 3. The exact number of pieces is not stated."""
    with torch.device("meta"):
        model = models.build(GNMTConfig(), VocabularySizes(32_000, 32_000, shared=False))
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == 276_735_232
    assert abs(count - 278e6) < 0.005 * 278e6


def test_only_the_first_encoder_layer_reads_in_both_directions() -> None:
    assert [isinstance(layer, BidirectionalLayer) for layer in build(encoder_layers=4).encoder.layers] == [True] + [
        False
    ] * 3


def test_the_decoder_equals_its_steps_by_hand() -> None:
    """Attention asked by the bottom layer's last output; the context beside every upper layer's input; sums from 3 on."""
    model, given = build(decoder_layers=4), batch()
    memory = model.encode(given.source, given.source_lengths)
    attention, decoder = model.decoder.attention, model.decoder
    states = [torch.zeros(1, 2, 12) for _ in range(4)]
    rows = []
    for token in given.target_in[0]:
        query = states[0][:, 0]
        mixed = torch.tanh(attention.query(query) + attention.key(memory.states[0]))
        context = attention.score(mixed).squeeze(-1).softmax(0) @ memory.states[0]
        x, states[0] = decoder.bottom(model.target_embedding(token)[None, None], states[0])
        for number, layer in enumerate(decoder.upper, 2):
            output, states[number - 1] = layer(torch.cat([x, context[None, None]], -1), states[number - 1])
            x = output + x if number >= 3 else output
        rows.append(x[0, 0])
    torch.testing.assert_close(model(given).hidden, torch.stack(rows))


def test_dropout_never_acts_on_the_path_around_an_upper_layer() -> None:
    """Upper layers that answer nothing leave the path alone: the top says what the second layer said."""
    model, given = build(decoder_layers=4), batch()
    decoder = model.decoder.train()
    with torch.no_grad():
        for parameter in [*decoder.upper[1:].parameters(), *decoder.upper[0].parameters()]:
            parameter.zero_()
        decoder.upper[0].rnn.bias_ih_l0.fill_(1.0)  # type: ignore[union-attr, operator]
    decoder.dropout.p = 0.5
    x = torch.zeros(1, 4, model.target_embedding.weight.size(1))
    memory = model.encode(given.source, given.source_lengths)
    rows = []
    hook = decoder.upper[0].register_forward_hook(lambda *call: rows.append(call[2][0]))
    top = decoder(x, memory, model.begin(memory, 1))[0]
    hook.remove()
    # The last dropout, before the output layer, drops or doubles.
    assert ((top == 0) | torch.isclose(top, 2 * rows[0])).all()


@pytest.mark.parametrize("layers", [1, 2])
def test_few_layers_work_too(layers: int) -> None:
    assert_every_parameter_learns(
        Subject("few", replace(GNMTConfig().shrink(), encoder_layers=layers, decoder_layers=2))
    )


def test_a_decoder_whose_only_layer_asks_is_refused() -> None:
    with pytest.raises(UsageError, match="decoder_layers=1 leaves no layer that reads the context.*use 2 or more"):
        GNMTConfig(decoder_layers=1)


def test_initial_values_lie_in_the_range_of_the_paper() -> None:
    model = models.build(GNMTConfig().shrink(), SIZES)
    largest = max(float(parameter.detach().abs().max()) for parameter in model.parameters())
    assert 0.03 < largest <= 0.04


def test_a_residual_over_inputs_of_another_width_is_refused() -> None:
    with pytest.raises(UsageError, match="residual_from=2 would add inputs of a different width"):
        GNMTConfig(residual_from=2)
