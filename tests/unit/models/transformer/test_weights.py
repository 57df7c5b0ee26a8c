"""The plain description of a Transformer's weights: what it holds, and that it leads back to the same model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nmt.errors import DataError, UsageError
from nmt.interface import VocabularySizes
from nmt.layers.sinusoids import SinusoidLayout, Wavelengths
from nmt.models import models
from nmt.models.transformer.config import (
    DecoderKind,
    FeedForwardKind,
    LayerKind,
    NormKind,
    NormOrder,
    PositionKind,
    ScoreKind,
    StartSymbol,
    TransformerConfig,
)
from nmt.models.transformer.lightconv_config import LightConvConfig
from nmt.models.transformer.own_weights import configuration, describe, parameters, undescribed
from nmt.models.transformer.weights import Activation, arrays_of, map_arrays

JOINT, APART = VocabularySizes(20, 20, True), VocabularySizes(20, 17, False)

MISSING = {
    "model.decoder=average_attention": TransformerConfig(decoder=DecoderKind.average_attention),
    "model.layers=universal": TransformerConfig(layers=LayerKind.universal),
    "model.attention_score=additive": TransformerConfig(attention_score=ScoreKind.additive),
    "model.encoder_neighborhood=3": TransformerConfig(encoder_neighborhood=3),
    "its architecture": LightConvConfig(),
}
DESCRIBED: dict[str, tuple[dict[str, Any], VocabularySizes]] = {
    "paper": ({}, JOINT),
    "vocabularies apart": ({"share_decoder_embeddings": False}, APART),
    "embeddings apart": ({"share_all_embeddings": False}, JOINT),
    "norms first": ({"norm": NormOrder.pre, "attention_bias": True}, JOINT),
    "norms first in the decoder": ({"decoder_norm": NormOrder.pre, "norm_epsilon": 1e-6}, JOINT),
    "learned positions": ({"positions": PositionKind.learned}, JOINT),
    "distances": ({"positions": PositionKind.relative, "d_k": 5, "d_v": 7}, JOINT),
    "rotation": ({"positions": PositionKind.rotary, "norm_kind": NormKind.rms_norm}, JOINT),
    "recurrence": ({"decoder": DecoderKind.ssru, "norm": NormOrder.pre}, APART),
    "slopes": ({"positions": PositionKind.alibi, "feed_forward": FeedForwardKind.geglu}, JOINT),
    "as fairseq": (
        {
            "sinusoid_layout": SinusoidLayout.halves,
            "sinusoid_wavelengths": Wavelengths.tensor2tensor,
            "position_offset": 2,
            "start_symbol": StartSymbol.eos,
            "attention_bias": True,
        },
        JOINT,
    ),
    "as mBART": (
        {"positions": PositionKind.learned, "embedding_norm": True, "norm": NormOrder.pre, "attention_bias": True},
        JOINT,
    ),
    "as T5": (
        {
            "positions": PositionKind.buckets,
            "norm": NormOrder.pre,
            "norm_kind": NormKind.rms_norm,
            "feed_forward": FeedForwardKind.geglu_tanh,
            "attention_score": ScoreKind.dot,
            "embedding_scale": False,
            "start_symbol": StartSymbol.pad,
            "share_decoder_embeddings": False,
            "share_all_embeddings": False,
            "d_k": 5,
            "d_v": 5,
        },
        JOINT,
    ),
    "as Marian": (
        {
            "feed_forward": FeedForwardKind.swish,
            "output_bias": True,
            "embedding_scale": False,
            "start_symbol": StartSymbol.pad,
        },
        JOINT,
    ),
}


@pytest.mark.parametrize("missing", MISSING)
def test_a_variant_is_named_as_missing(missing: str) -> None:
    assert undescribed(MISSING[missing]) == missing
    with pytest.raises(UsageError, match=f"does not support {missing}"):
        describe(MISSING[missing], JOINT, {}, "here")


def test_nothing_of_the_papers_model_is_missing() -> None:
    assert undescribed(TransformerConfig()) is None


def stored(config: TransformerConfig, sizes: VocabularySizes) -> dict[str, Any]:
    return {name: value.numpy() for name, value in models.build(config, sizes).state_dict().items()}


@pytest.mark.parametrize("name", DESCRIBED)
def test_a_description_leads_back_to_the_same_model(name: str) -> None:
    options, sizes = DESCRIBED[name]
    config = replace(TransformerConfig(**options).shrink(), dropout=0.1)
    before = stored(config, sizes)
    weights = describe(config, sizes, before, "here")
    found = configuration(weights, sizes)
    after = parameters(found, sizes, weights)
    assert after.keys() == before.keys()
    for key, array in before.items():
        np.testing.assert_array_equal(after[key], array, err_msg=key)
    assert describe(found, sizes, after, "there").target.scale == weights.target.scale
    named = (
        "d_model d_ff num_heads positions position_buckets bucket_distance decoder feed_forward embedding_scale "
        "embedding_norm output_bias start_symbol attention_bias"
    )
    for key in named.split():
        assert getattr(found, key) == getattr(config, key)
    assert found.sinusoids() == config.sinusoids()
    assert found.norm_orders() == config.norm_orders() and found.epsilon() == config.epsilon()


def test_what_is_one_array_stays_one() -> None:
    config = TransformerConfig().shrink()
    weights = describe(config, JOINT, stored(config, JOINT), "here")
    assert weights.source.embedding is weights.target.embedding is weights.output.weight
    copied = map_arrays(np.copy, weights)
    assert copied.source.embedding is copied.target.embedding is copied.output.weight
    assert copied.source.embedding is not weights.source.embedding


def test_arrays_are_named_by_their_places() -> None:
    config = TransformerConfig().shrink()
    places = [place for place, _ in arrays_of(describe(config, JOINT, stored(config, JOINT), "here"))]
    assert len(set(places)) == len(places)
    assert {"source.embedding", "target.layers.1.cross_attention.key.weight", "output.weight"} <= set(places)


def test_a_model_that_none_of_ours_is_like_is_refused() -> None:
    config = TransformerConfig().shrink()
    weights = describe(config, JOINT, stored(config, JOINT), "here")

    def refused(changed: Any, says: str) -> None:
        with pytest.raises(DataError, match=says):
            configuration(changed, JOINT)

    first, *others = weights.source.layers
    odd = replace(first, feed_forward=replace(first.feed_forward, activation=Activation.sigmoid))
    all_odd = tuple(replace(one, feed_forward=odd.feed_forward) for one in weights.source.layers)
    strange = replace(weights, source=replace(weights.source, layers=(odd, *others)))
    refused(strange, "the model has activations sigmoid and relu; they must be the same in all layers")
    both = replace(weights, source=replace(weights.source, layers=all_odd))
    both = replace(
        both,
        target=replace(
            both.target, layers=tuple(replace(one, feed_forward=odd.feed_forward) for one in weights.target.layers)
        ),
    )
    refused(both, "activation sigmoid, which is not supported")
    scaled = {side: replace(getattr(weights, side), scale=3.0) for side in ("source", "target")}
    refused(replace(weights, **scaled), "embeddings are scaled by 3; supported are 1 and the root")
