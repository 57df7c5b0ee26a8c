"""The Transformer with mixtures of experts, beyond the laws of the conformance suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batching.batch import Batch, collate
from nmt.errors import UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.layers.experts import squared_variation
from nmt.models import models
from nmt.models.transformer.config import FeedForwardKind, LayerKind, TransformerMoEConfig
from nmt.models.transformer.layers import GatedFeedForward
from nmt.models.transformer.transformer import Transformer, TransformerConfig
from nmt.models.transformer.transformer_moe import ExpertFeedForward, TransformerMoE

SIZES = VocabularySizes(20, 30, shared=False)


def build(**options: Any) -> TransformerMoE:
    torch.manual_seed(1)
    model = models.build(replace(TransformerMoEConfig(dropout=0.0).shrink(), **options), SIZES)
    assert isinstance(model, TransformerMoE)
    with torch.no_grad():
        for mixture in mixtures(model).values():
            mixture.gating.gate.normal_()
            mixture.gating.noise.normal_()
    return model.eval()


def mixtures(model: TransformerMoE) -> dict[str, ExpertFeedForward]:
    return {name: module for name, module in model.named_modules() if isinstance(module, ExpertFeedForward)}


def batch(*lengths: int) -> Batch:
    sources = [torch.randint(4, 20, (length,)).numpy() for length in lengths]
    targets = [torch.randint(4, 30, (length + 1,)).numpy() for length in lengths]
    return collate(sources, targets)


@pytest.mark.parametrize(
    ("every", "encoder", "decoder"),
    [(1, [0, 1, 2, 3], [0, 1, 2]), (2, [1, 3], [0, 2]), (3, [0, 3], [2]), (9, [3], [2])],
)
def test_layers_with_experts_are_counted_from_the_top(every: int, encoder: list[int], decoder: list[int]) -> None:
    model = build(encoder_layers=4, decoder_layers=3, experts_every=every)
    expected = [f"encoder.layers.{n}.feed_forward" for n in encoder] + [
        f"decoder.layers.{n}.feed_forward" for n in decoder
    ]
    assert list(mixtures(model)) == expected


def test_defaults_are_the_base_model_with_seven_more_networks_in_half_of_the_layers() -> None:
    with torch.device("meta"):
        dense, sparse = (models.build(config(), SIZES) for config in (TransformerConfig, TransformerMoEConfig))
    network = 2 * 512 * 2048 + 2048 + 512
    gate = 2 * 8 * 512
    added = sum(p.numel() for p in sparse.parameters()) - sum(p.numel() for p in dense.parameters())
    assert added == 6 * (7 * network + gate)


def test_one_expert_is_the_feed_forward_network_of_the_paper() -> None:
    sparse = build(num_experts=1, experts_per_token=1, experts_every=1)
    config = TransformerConfig(dropout=0.0).shrink()
    dense = models.build(config, SIZES).eval()
    assert isinstance(dense, Transformer)
    weights: dict[str, Tensor] = {}
    for name, value in sparse.state_dict().items():
        if ".gating." in name:
            continue
        for end, ours, turned in (
            ("inner", "inner.weight", True),
            ("outer", "outer.weight", True),
            ("inner_bias", "inner.bias", False),
            ("outer_bias", "outer.bias", False),
        ):
            if name.endswith(f".experts.{end}"):
                name = name.replace(f"experts.{end}", ours)
                value = value[0].T if turned else value[0, 0]
                break
        weights[name] = value
    dense.load_state_dict(weights)
    given = batch(7, 2, 4)
    torch.testing.assert_close(sparse(given).hidden, dense(given).hidden)


def test_balancing_losses_count_real_tokens_of_both_sides_alone() -> None:
    model, given = build(importance_weight=1.0, load_weight=2.0, experts_every=1), batch(7, 2, 4)
    routings = []
    for mixture in mixtures(model).values():
        mixture.gating.register_forward_hook(lambda *call: routings.append(call[2]))
    auxiliary = model(given).auxiliary
    assert [len(routing.gates) for routing in routings] == [13, 13, 16, 16]
    importance = sum(squared_variation(routing.gates.sum(0)) for routing in routings)
    load = sum(squared_variation(routing.load.sum(0)) for routing in routings)
    torch.testing.assert_close(auxiliary["importance"], importance)
    torch.testing.assert_close(auxiliary["load"], 2.0 * load)


def test_experts_keep_padding_at_zero() -> None:
    model = build(experts_every=1)
    outputs: list[Tensor] = []
    for name, mixture in mixtures(model).items():
        if name.startswith("encoder"):
            mixture.register_forward_hook(lambda *call: outputs.append(call[2]))
    model.encode(batch(5, 2).source, torch.tensor([5, 2]))
    assert len(outputs) == 2
    for output in outputs:
        assert output[0].all(dim=-1).any() and output[1, :2].any() and not output[1, 2:].any()


def test_attention_maps_leave_the_losses_as_they_are() -> None:
    model, given = build(), batch(5, 3)
    asked = model(given, AttentionRequest(("encoder", "decoder", "cross")))
    plain = model(given)
    assert asked.attention is not None and set(asked.attention.maps) == {"encoder", "decoder", "cross"}
    assert {name: loss.item() for name, loss in asked.auxiliary.items()} == {
        name: loss.item() for name, loss in plain.auxiliary.items()
    }


def test_every_parameter_gets_a_gradient() -> None:
    model = build(experts_every=1).train()
    output = model(batch(5, 3))
    (output.hidden.sum() + sum(output.auxiliary.values()) + model.output.logits(output.hidden).sum()).backward()
    assert [name for name, parameter in model.named_parameters() if parameter.grad is None] == []
    for mixture in mixtures(model).values():
        assert mixture.gating.gate.grad is not None and mixture.gating.gate.grad.abs().sum() > 0


def test_dense_layers_have_the_network_that_is_chosen() -> None:
    model = build(feed_forward=FeedForwardKind.swiglu)
    dense = [name for name, module in model.named_modules() if isinstance(module, GatedFeedForward)]
    assert dense == ["encoder.layers.0.feed_forward", "decoder.layers.0.feed_forward"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"experts_per_token": 9}, "experts_per_token=9 is more than num_experts=8"),
        ({"layers": LayerKind.universal}, "model.layers=universal has one layer, but experts need several"),
        ({"experts_every": 0}, "experts_every=0"),
        ({"expert_size": 0}, "expert_size=0"),
        ({"importance_weight": -1.0}, "importance_weight=-1.0"),
    ],
)
def test_a_bad_value_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(TransformerMoEConfig(), **options)
