"""How each model preset learns the two tasks in seconds to minutes. Presets of a family share a recipe.

A recipe replaces sizes and dropout, and the range of the initial values, which belongs to the width; structure and
options stay those of the preset. A new preset needs an entry.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nmt.testing.subjects import load_preset
from tests.learning.learn import Recipe

MANY = 100_000  # training pairs, for models that tend to learn fewer by heart

TRANSFORMER = Recipe(
    {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "d_model": 64,
        "d_ff": 128,
        "num_heads": 4,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
    },
    rate=0.004,
    updates=700,
)
LSTM = Recipe({"embedding_size": 32, "hidden_size": 64, "dropout": 0.0}, rate=0.01, updates=400)
DOT_ATTENTION = replace(LSTM, updates=800)
ONE_VECTOR = Recipe(
    {"embedding_size": 32, "hidden_size": 128, "dropout": 0.0}, rate=0.005, updates=5000, max_tokens=1024, pairs=MANY
)
GNMT = Recipe({"embedding_size": 64, "hidden_size": 64, "init_range": 0.2, "dropout": 0.0}, rate=0.005, updates=500)
DEEP_ATT = Recipe({"embedding_size": 32, "hidden_size": 64, "dropout": 0.0}, rate=0.005, updates=500)
EXPERTS = Recipe({"width": 32, "cell_size": 64, "expert_size": 64, "dropout": 0.0}, rate=0.008, updates=700)
CONVOLUTION = Recipe({"embedding_size": 64, "output_size": 64, "dropout": 0.0}, rate=0.004, updates=900)
BYTENET = Recipe(
    {"hidden_size": 64, "encoder_sets": 2, "decoder_sets": 1, "dropout": 0.0}, rate=0.003, updates=5000, pairs=MANY
)
TURING = Recipe({"controller_size": 64, "memory_slots": 16, "memory_width": 20}, rate=0.005, updates=7500, pairs=MANY)
MEMORY = Recipe({"slot_size": 64, "embedding_size": 32, "hidden_size": 64}, rate=0.005, updates=600)
NEURAL_GPU = Recipe(
    {"num_maps": 24, "height": 2, "width_b": 1.0, "embedding_size": 24, "dropout": 0.0},
    rate=0.005,
    updates=2000,
    pairs=MANY,
)


def _sized(recipe: Recipe, **sizes: Any) -> Recipe:
    return replace(recipe, sizes=recipe.sizes | sizes)


def _groups(encoder: list[str], decoder: list[str]) -> Recipe:
    return _sized(CONVOLUTION, encoder_convolutions=encoder, decoder_convolutions=decoder)


LIGHTCONV = _sized(TRANSFORMER, weight_dropout=0.0)

RECIPES: dict[str, Recipe] = {
    "bytenet_tiny": BYTENET,
    "bytenet_wmt": BYTENET,
    "conv_s2s_iwslt": _groups(["2x64x3"], ["2x64x3"]),
    "conv_s2s_tiny": _groups(["2x64x3"], ["2x64x3"]),
    "conv_s2s_wmt_en_de": _groups(["2x32x3", "1x64x3", "1x96x1"], ["2x32x3", "1x64x3", "1x96x1"]),
    "conv_s2s_wmt_en_fr": _groups(
        ["1x32x3", "1x48x3", "1x64x3", "1x96x1", "1x128x1"], ["1x32x3", "1x48x3", "1x64x3", "1x96x1", "1x128x1"]
    ),
    "deep_att_tiny": DEEP_ATT,
    "deep_att_wmt": _sized(DEEP_ATT, encoder_layers=4, decoder_layers=3),
    "dynamicconv_tiny": LIGHTCONV,
    "fconv": _groups(["2x64x3"], ["2x64x3"]),
    "fconv_iwslt_de_en": _groups(["2x64x3"], ["2x64x3"]),
    "fconv_wmt_en_de": _groups(["2x32x3", "1x64x3", "1x96x1"], ["2x32x3", "1x64x3", "1x96x1"]),
    "fconv_wmt_en_fr": _groups(
        ["1x32x3", "1x48x3", "1x64x3", "1x96x1", "1x128x1"], ["1x32x3", "1x48x3", "1x64x3", "1x96x1", "1x128x1"]
    ),
    "fconv_wmt_en_ro": _groups(["2x64x3"], ["2x64x3"]),
    "gnmt_4": _sized(GNMT, encoder_layers=4, decoder_layers=4),
    "gnmt_tiny": GNMT,
    "gnmt_wmt": _sized(GNMT, encoder_layers=4, decoder_layers=4),
    "lightconv_iwslt_de_en": LIGHTCONV,
    "lightconv_tiny": LIGHTCONV,
    "lightconv_wmt_en_de": LIGHTCONV,
    "lightconv_wmt_en_de_big": LIGHTCONV,
    "lightconv_wmt_en_fr_big": LIGHTCONV,
    "lightconv_wmt_zh_en_big": LIGHTCONV,
    "lstm_attention": DOT_ATTENTION,
    "lstm_bahdanau": _sized(LSTM, embedding_size=64, encoder_size=128, readout_size=32),
    "lstm_bidirectional": DOT_ATTENTION,
    "lstm_deep_residual": _sized(LSTM, readout_size=32),
    "lstm_luong": _sized(LSTM, num_layers=2, init_range=0.2),
    "lstm_luong_wmt_en_de": _sized(LSTM, num_layers=2, init_range=0.2),
    "lstm_moe_32": _sized(EXPERTS, num_experts=16),
    "lstm_moe_tiny": EXPERTS,
    "lstm_peeky": ONE_VECTOR,
    "lstm_plain": ONE_VECTOR,
    "lstm_sutskever": _sized(ONE_VECTOR, num_layers=2, init_range=0.1),
    "lstm_tiny": LSTM,
    "lstm_wiseman_iwslt_de_en": _sized(LSTM, init_range=0.2),
    "memory_network_tiny": MEMORY,
    "neural_gpu_tiny": NEURAL_GPU,
    "neural_gpu_wmt": NEURAL_GPU,
    "ntm_copy_feedforward": replace(TURING, updates=2000),
    "ntm_copy_lstm": TURING,
    "ntm_tiny": TURING,
    "transformer_aan": TRANSFORMER,
    "transformer_alibi": replace(TRANSFORMER, updates=1400),
    "transformer_base": TRANSFORMER,
    "transformer_base_v3": TRANSFORMER,
    "transformer_big": TRANSFORMER,
    "transformer_deep_shallow": replace(_sized(TRANSFORMER, encoder_layers=4, decoder_layers=1), updates=1000),
    "transformer_iwslt_de_en": TRANSFORMER,
    "transformer_local": TRANSFORMER,
    "transformer_moe_8": _sized(TRANSFORMER, num_experts=4),
    "transformer_moe_tiny": TRANSFORMER,
    "transformer_relative": TRANSFORMER,
    "transformer_rotary": TRANSFORMER,
    "transformer_ssru": TRANSFORMER,
    "transformer_tiny": TRANSFORMER,
    "transformer_universal": replace(_sized(TRANSFORMER, encoder_layers=3, decoder_layers=3), updates=1200),
    "transformer_vaswani_wmt_en_de_big": TRANSFORMER,
    "transformer_vaswani_wmt_en_fr_big": TRANSFORMER,
    "transformer_wmt_en_de": TRANSFORMER,
    "transformer_wmt_en_de_big": TRANSFORMER,
    "transformer_wmt_en_de_big_t2t": TRANSFORMER,
}


def recipe_and_model(preset: str) -> tuple[Recipe, Any]:
    """The recipe of a preset, and its configuration in the recipe's sizes."""
    recipe = RECIPES[preset]
    return recipe, replace(load_preset(preset), **recipe.sizes)
