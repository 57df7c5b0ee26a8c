"""Presets with the names of fairseq's architectures have fairseq's sizes; the facts stand in fairseq/models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.convolutional.conv_s2s import ConvS2SConfig
from nmt.models.recurrent.lstm import LSTMConfig
from nmt.models.transformer.config import (
    NormOrder,
    TransformerConfig,
)
from nmt.models.transformer.lightconv_config import ConvolutionKind, LightConvConfig
from nmt.testing.subjects import load_preset

SIZES = VocabularySizes(700, 500, shared=False)
JOINT = VocabularySizes(700, 700, shared=True)

# Width, inner width, heads; dropout of sublayers, attention and activations; 6 + 6 layers in all of them.
TRANSFORMERS = {
    "transformer_iwslt_de_en": (512, 1024, 4, 0.1, 0.0, 0.0),
    "transformer_wmt_en_de": (512, 2048, 8, 0.1, 0.0, 0.0),
    "transformer_vaswani_wmt_en_de_big": (1024, 4096, 16, 0.3, 0.0, 0.0),
    "transformer_vaswani_wmt_en_fr_big": (1024, 4096, 16, 0.1, 0.0, 0.0),
    "transformer_wmt_en_de_big": (1024, 4096, 16, 0.3, 0.1, 0.0),
    "transformer_wmt_en_de_big_t2t": (1024, 4096, 16, 0.3, 0.1, 0.1),
}
# Width, inner width, heads; dropout of sublayers, attention and kernels; whether there are gates.
LIGHT_CONVOLUTIONS = {
    "lightconv_iwslt_de_en": (512, 1024, 4, 0.1, 0.1, 0.1, False),
    "lightconv_wmt_en_de": (512, 2048, 8, 0.1, 0.0, 0.0, True),
    "lightconv_wmt_en_de_big": (1024, 4096, 16, 0.3, 0.1, 0.1, True),
    "lightconv_wmt_en_fr_big": (1024, 4096, 16, 0.1, 0.1, 0.1, True),
    "lightconv_wmt_zh_en_big": (1024, 4096, 16, 0.2, 0.2, 0.2, True),
}
KERNELS_OF_ENCODER, KERNELS_OF_DECODER = (3, 7, 15, 31, 31, 31, 31), (3, 7, 15, 31, 31, 31)
# Width of embeddings and layers, number of layers.
LSTMS = {"lstm_luong_wmt_en_de": (1000, 4), "lstm_wiseman_iwslt_de_en": (256, 1)}
# Embeddings, width before the output layer, groups of encoder and decoder; dropout is 0.1 in all of them.
_GERMAN = ["9x512x3", "4x1024x3", "2x2048x1"]
_FRENCH = ["6x512x3", "4x768x3", "3x1024x3", "1x2048x1", "1x4096x1"]
CONVOLUTIONS = {
    "fconv": (512, 256, ["20x512x3"], ["20x512x3"]),
    "fconv_iwslt_de_en": (256, 256, ["4x256x3"], ["3x256x3"]),
    "fconv_wmt_en_ro": (512, 512, ["20x512x3"], ["20x512x3"]),
    "fconv_wmt_en_de": (768, 512, _GERMAN, _GERMAN),
    "fconv_wmt_en_fr": (768, 512, _FRENCH, _FRENCH),
}


def count(config: Any, sizes: VocabularySizes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.build(config, sizes).parameters())


def layers_of_fairseq(width: int, inner: int, pre: bool) -> int:
    """Parameters of 6 + 6 layers: attention has biases, and norms before the sublayers need one more at the end."""
    attention, feed_forward, norm = 4 * (width + 1) * width, 2 * width * inner + inner + width, 2 * width
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return 6 * (encoder + decoder) + (2 * norm if pre else 0)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_has_fairseqs_sizes(name: str) -> None:
    config = load_preset(name)
    assert isinstance(config, TransformerConfig)
    assert (config.d_model, config.d_ff, config.num_heads) == TRANSFORMERS[name][:3]
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == TRANSFORMERS[name][3:]
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_a_transformer_has_fairseqs_number_of_parameters_however_embeddings_are_shared(name: str) -> None:
    config = load_preset(name)
    width, inner = TRANSFORMERS[name][:2]
    layers = layers_of_fairseq(width, inner, pre=name.endswith("t2t"))
    assert count(config, SIZES) == layers + (700 + 500 + 500) * width
    assert count(replace(config, share_decoder_embeddings=True), SIZES) == layers + (700 + 500) * width
    assert count(config, JOINT) == layers + 3 * 700 * width
    assert count(replace(config, share_all_embeddings=True), JOINT) == layers + 700 * width


def test_norms_stand_before_the_sublayers_in_tensor2tensors_model_alone() -> None:
    assert [name for name in TRANSFORMERS if load_preset(name).norm is NormOrder.pre] == [
        "transformer_wmt_en_de_big_t2t"
    ]


@pytest.mark.parametrize("name", LIGHT_CONVOLUTIONS)
def test_a_transformer_with_convolutions_has_fairseqs_sizes(name: str) -> None:
    config = load_preset(name)
    assert isinstance(config, LightConvConfig)
    assert config.convolution is ConvolutionKind.dynamic
    found = (config.d_model, config.d_ff, config.num_heads, config.dropout, config.attention_dropout)
    assert (*found, config.weight_dropout, config.gated) == LIGHT_CONVOLUTIONS[name]
    assert (config.encoder_layers, config.decoder_layers) == (7, 6)


@pytest.mark.parametrize("name", LIGHT_CONVOLUTIONS)
def test_a_transformer_with_convolutions_has_fairseqs_number_of_parameters(name: str) -> None:
    """Projections have biases; kernels are predicted without."""
    width, inner, heads, *_, gated = LIGHT_CONVOLUTIONS[name]
    attention, feed_forward, norm = 4 * (width + 1) * width, 2 * width * inner + inner + width, 2 * width
    projections = (3 if gated else 2) * (width + 1) * width
    encoder = sum(projections + width * heads * k + feed_forward + 2 * norm for k in KERNELS_OF_ENCODER)
    decoder = sum(projections + width * heads * k + attention + feed_forward + 3 * norm for k in KERNELS_OF_DECODER)
    assert count(load_preset(name), SIZES) == encoder + decoder + (700 + 500 + 500) * width


@pytest.mark.parametrize("name", LSTMS)
def test_an_lstm_has_fairseqs_number_of_parameters(name: str) -> None:
    """Two biases a layer in fairseq, which are added to each other, are two here as well."""
    config, (width, layers) = load_preset(name), LSTMS[name]
    assert isinstance(config, LSTMConfig)
    layer = 8 * width * width + 8 * width
    fed, attention = 4 * width * width, 3 * width * width
    embeddings_and_output = (700 + 500) * width + 500 * (width + 1)
    assert count(config, SIZES) == 2 * layers * layer + fed + attention + embeddings_and_output


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolutional_model_has_fairseqs_sizes(name: str) -> None:
    config = load_preset(name)
    assert isinstance(config, ConvS2SConfig)
    found = (config.embedding_size, config.output_size, config.encoder_convolutions, config.decoder_convolutions)
    assert (found, config.dropout) == (CONVOLUTIONS[name], 0.1)


def test_the_schemas_that_are_called_as_in_fairseq_have_its_sizes() -> None:
    lstm, transformer = LSTMConfig(), TransformerConfig()
    assert (lstm.embedding_size, lstm.hidden_size, lstm.num_layers, lstm.dropout) == (512, 512, 1, 0.1)
    assert (transformer.d_model, transformer.d_ff, transformer.num_heads) == (512, 2048, 8)
    assert (transformer.encoder_layers, transformer.decoder_layers, transformer.dropout) == (6, 6, 0.1)
