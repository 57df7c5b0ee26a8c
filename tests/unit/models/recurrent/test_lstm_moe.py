"""The mixture of experts between LSTMs, beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nmt.data.batching.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import VocabularySizes
from nmt.layers.experts import squared_variation
from nmt.models import models
from nmt.models.recurrent.config import LSTMMoEConfig
from nmt.models.recurrent.lstm_moe import LSTMMoE

SIZES = VocabularySizes(20, 30, shared=False)


def build(**options: Any) -> LSTMMoE:
    torch.manual_seed(1)
    model = models.build(replace(LSTMMoEConfig(dropout=0.0).shrink(), **options), SIZES)
    assert isinstance(model, LSTMMoE)
    with torch.no_grad():
        for mixture in (model.encoder.mixture, model.decoder.mixture):
            mixture.gating.gate.normal_()
            mixture.gating.noise.normal_()
    return model.eval()


def batch(*lengths: int) -> Batch:
    sources = [torch.randint(4, 20, (length,)).numpy() for length in lengths]
    targets = [torch.randint(4, 30, (length + 1,)).numpy() for length in lengths]
    return collate(sources, targets)


def test_the_flat_mixture_of_the_paper_has_as_many_experts_as_it_says() -> None:
    with torch.device("meta"):
        model = models.build(LSTMMoEConfig(), SIZES)
    per_mixture = sum(parameter.numel() for parameter in model.encoder.mixture.experts.parameters())  # type: ignore[union-attr]
    assert per_mixture == 32 * (2 * 512 * 2048 + 2048 + 512)  # about 2 million an expert


def test_the_decoder_equals_its_steps_by_hand() -> None:
    """Appendices E and G: the bottom layer's last output asks, its next input holds the answer; sums around all three."""
    model, given = build(), batch(4)
    memory, decoder = model.encode(given.source, given.source_lengths), model.decoder
    states, attention = memory.states[0], decoder.attention
    bottom, top, rows = torch.zeros(1, 1, 24), torch.zeros(1, 1, 24), []
    for token in given.target_in[0]:
        asked = attention.scale * (attention.query.weight @ bottom[0, 0, :10]).tanh()
        scores = torch.stack([asked @ (attention.key.weight @ state).tanh() for state in states])
        context, embedded = scores.softmax(0) @ states, model.target_embedding(token)
        output, bottom = decoder.bottom(torch.cat([context, embedded])[None, None], bottom)
        x = embedded + output[0]
        x = x + torch.sigmoid(decoder.mixture.experts(x, decoder.mixture.gating(x)))
        output, top = decoder.top(x[None], top)
        rows.append((x + output[0])[0])
    torch.testing.assert_close(model(given).hidden, torch.stack(rows))


def test_balancing_losses_count_real_tokens_of_both_sides_alone() -> None:
    model, given = build(importance_weight=1.0, load_weight=2.0), batch(7, 2, 4)
    seen: dict[str, list[Any]] = {"source": [], "target": []}
    model.encoder.mixture.gating.register_forward_hook(lambda *call: seen["source"].append(call[2]))
    model.decoder.mixture.gating.register_forward_hook(lambda *call: seen["target"].append(call[2]))
    auxiliary = model(given).auxiliary
    (source,), (target,) = seen["source"], seen["target"]
    assert len(source.gates) == 13 and len(target.gates) == 16
    importance = squared_variation(source.gates.sum(0)) + squared_variation(target.gates.sum(0))
    load = squared_variation(source.load.sum(0)) + squared_variation(target.load.sum(0))
    torch.testing.assert_close(auxiliary["importance"], importance)
    torch.testing.assert_close(auxiliary["load"], 2.0 * load)


def test_balancing_losses_reach_the_gates() -> None:
    model = build().train()
    sum(model(batch(5, 3)).auxiliary.values()).backward()  # type: ignore[union-attr]
    for mixture in (model.encoder.mixture, model.decoder.mixture):
        assert mixture.gating.gate.grad is not None and mixture.gating.gate.grad.abs().sum() > 0


def test_every_parameter_gets_a_gradient() -> None:
    model = build().train()
    output = model(batch(5, 3))
    (output.hidden.sum() + sum(output.auxiliary.values()) + model.output.logits(output.hidden).sum()).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experts_per_token": 33}, "experts_per_token=33 is more than num_experts=32"),
        ({"width": 2048}, "cell_size=2048 must be more than width=2048"),
        ({"load_weight": -1.0}, "load_weight=-1.0"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(LSTMMoEConfig(), **options)
