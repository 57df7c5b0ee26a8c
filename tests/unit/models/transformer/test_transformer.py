"""The Transformer beyond the laws of the conformance suite: sizes, sharing, options, attention maps."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch

from nmt.data.batching.batch import Batch, collate
from nmt.errors import DataError, UsageError
from nmt.interface import AttentionRequest, EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.transformer.config import DecoderKind, LayerKind, NormOrder, PositionKind, TransformerConfig
from nmt.models.transformer.transformer import Transformer
from nmt.testing.subjects import load_preset
from nmt.trees import tensors

JOINT = VocabularySizes(20, 20, shared=True)
SEPARATE = VocabularySizes(20, 30, shared=False)
PAPER = VocabularySizes(37_000, 37_000, shared=True)


def build(sizes: VocabularySizes = JOINT, **options: Any) -> Transformer:
    torch.manual_seed(1)
    model = models.build(replace(TransformerConfig().shrink(), **options), sizes)
    assert isinstance(model, Transformer)
    return model


def count(config: TransformerConfig, sizes: VocabularySizes = PAPER) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.build(config, sizes).parameters())


def batch() -> Batch:
    sources, targets = [[5, 6, 7, 3], [8, 3]], [[9, 10, 3], [11, 12, 13, 14, 3]]
    return collate([torch.tensor(ids).numpy() for ids in sources], [torch.tensor(ids).numpy() for ids in targets])


def millions(preset: str) -> float:
    return count(load_preset(preset)) / 1e6


# As docs/reference/models.md states them.
PARAMETERS = {
    "transformer_base": 63_045_632,
    "transformer_base_v3": 63_047_680,
    "transformer_big": 214_171_648,
    "transformer_relative": 63_352_832,
    "transformer_rotary": 63_049_728,
    "transformer_alibi": 63_045_632,
    "transformer_local": 63_045_632,
    "transformer_aan": 75_643_904,
    "transformer_ssru": 59_902_976,
    "transformer_deep_shallow": 60_947_968,
    "transformer_universal": 26_294_272,
}


@pytest.mark.parametrize("preset", PARAMETERS)
def test_the_presets_have_the_documented_number_of_parameters(preset: str) -> None:
    assert count(load_preset(preset)) == PARAMETERS[preset]


def test_the_papers_figures_are_near() -> None:
    assert count(load_preset("transformer_tiny"), VocabularySizes(10_000, 10_000, True)) == 2_598_912
    assert 63 <= millions("transformer_base") <= 66
    assert 210 <= millions("transformer_big") <= 216


# Vaswani et al. 2017, Table 3: options, and millions of parameters as printed (rounded).
TABLE_3: dict[str, tuple[dict[str, Any], int]] = {
    "base": ({}, 65),
    "A: 1 head of 512": ({"num_heads": 1, "d_k": 512, "d_v": 512}, 65),
    "A: 4 heads of 128": ({"num_heads": 4, "d_k": 128, "d_v": 128}, 65),
    "A: 16 heads of 32": ({"num_heads": 16, "d_k": 32, "d_v": 32}, 65),
    "A: 32 heads of 16": ({"num_heads": 32, "d_k": 16, "d_v": 16}, 65),
    "B: d_k 16": ({"d_k": 16}, 58),
    "B: d_k 32": ({"d_k": 32}, 60),
    "C: 2 layers": ({"encoder_layers": 2, "decoder_layers": 2}, 36),
    "C: 4 layers": ({"encoder_layers": 4, "decoder_layers": 4}, 50),
    "C: 8 layers": ({"encoder_layers": 8, "decoder_layers": 8}, 80),
    "C: d_model 256": ({"d_model": 256, "d_k": 32, "d_v": 32}, 28),
    "C: d_model 1024": ({"d_model": 1024, "d_k": 128, "d_v": 128}, 168),
    "C: d_ff 1024": ({"d_ff": 1024}, 53),
    "C: d_ff 4096": ({"d_ff": 4096}, 90),
    "E: learned positions": ({"positions": PositionKind.learned, "max_positions": 256}, 65),
    "big": ({"d_model": 1024, "d_ff": 4096, "num_heads": 16}, 213),
}
AT_512 = [row for row, (options, _) in TABLE_3.items() if "d_model" not in options]


@functools.cache
def of_row(row: str) -> float:
    """Millions of parameters."""
    return count(replace(TransformerConfig(), **TABLE_3[row][0])) / 1e6


@pytest.mark.parametrize(("row", "other"), [*combinations(AT_512, 2)])
def test_rows_of_table_3_with_512_channels_differ_as_printed_within_the_rounding_of_both(row: str, other: str) -> None:
    assert of_row(row) - of_row(other) == pytest.approx(TABLE_3[row][1] - TABLE_3[other][1], abs=1.0)


def test_rows_of_table_3_with_1024_channels_differ_by_more_than_the_paper_says() -> None:
    assert round(of_row("big") - of_row("C: d_model 1024"), 1) == 50.4 > 213 - 168


@pytest.mark.parametrize("row", sorted(TABLE_3.keys() - set(AT_512)))
def test_rows_of_table_3_with_other_widths_are_near(row: str) -> None:
    """The exact vocabulary of the paper, which enters here, is not known."""
    assert of_row(row) - of_row("base") == pytest.approx(TABLE_3[row][1] - TABLE_3["base"][1], abs=3.5)


# Saved models have these names and shapes, in this order: one layer of each stack, d_model 16, d_ff 24, two heads.
ATTENTION = {"self_attention.projection.weight": (48, 16), "self_attention.output.weight": (16, 16)}
NORM = {"norm.weight": (16,), "norm.bias": (16,)}
CROSS = {
    "cross_attention.query.weight": (16, 16),
    "cross_attention.memory.weight": (32, 16),
    "cross_attention.output.weight": (16, 16),
}
NETWORK = {
    "feed_forward.inner.weight": (24, 16),
    "feed_forward.inner.bias": (24,),
    "feed_forward.outer.weight": (16, 24),
    "feed_forward.outer.bias": (16,),
}


def inside(prefix: str, *parts: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}.{name}": shape for part in parts for name, shape in part.items()}


def layer(prefix: str, *middle: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return inside(
        f"{prefix}.layers.0",
        ATTENTION,
        inside("self_residual", NORM),
        *middle,
        NETWORK,
        inside("feed_forward_residual", NORM),
    )


def names_and_shapes(**options: Any) -> list[tuple[str, tuple[int, ...]]]:
    state = build(encoder_layers=1, decoder_layers=1, **options).state_dict()
    return [(name, tuple(tensor.shape)) for name, tensor in state.items()]


def test_saved_models_keep_their_names_and_shapes() -> None:
    paper = {
        "source_input.embedding.table.weight": (20, 16),
        **layer("encoder"),
        **layer("decoder", CROSS, inside("cross_residual", NORM)),
    }
    assert names_and_shapes() == list(paper.items())


ADDED: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "pre-norm": ({"norm": NormOrder.pre}, inside("encoder", NORM) | inside("decoder", NORM)),
    "learned positions": (
        {"positions": PositionKind.learned, "max_positions": 9},
        {"source_input.positions.weight": (9, 16), "target_input.positions.weight": (9, 16)},
    ),
    "biases": (
        {"attention_bias": True},
        inside("encoder.layers.0.self_attention", {"projection.bias": (48,), "output.bias": (16,)})
        | inside("decoder.layers.0.self_attention", {"projection.bias": (48,), "output.bias": (16,)})
        | inside("decoder.layers.0.cross_attention", {"query.bias": (16,), "memory.bias": (32,), "output.bias": (16,)}),
    ),
}


@pytest.mark.parametrize("what", ADDED)
def test_saved_variants_have_the_papers_names_and_some_more(what: str) -> None:
    options, added = ADDED[what]
    paper, variant = names_and_shapes(), names_and_shapes(**options)
    assert [entry for entry in variant if entry[0] not in added] == paper
    assert {name: shape for name, shape in variant if name in added} == added


# Sums of initial values, one from each stack: the order in which a seed is used up must not change.
DRAWN = {
    "source_input.embedding.table.weight": -2.682842,
    "encoder.layers.1.feed_forward.outer.weight": 1.773511,
    "decoder.layers.1.cross_attention.memory.weight": -0.89335,
    "decoder.layers.1.feed_forward.inner.bias": 0.712864,
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_seed_gives_the_initial_values_that_it_always_gave(name: str) -> None:
    assert build().state_dict()[name].sum().item() == pytest.approx(DRAWN[name], abs=1e-4)


def test_a_joint_vocabulary_shares_all_three_matrices() -> None:
    model = build()
    assert model.output.linear()[0] is model.source_input.embedding.table.weight  # type: ignore[index, union-attr]
    assert [name for name in model.state_dict() if "embedding" in name] == ["source_input.embedding.table.weight"]


def test_separate_vocabularies_share_target_and_output() -> None:
    names = [name for name in build(SEPARATE).state_dict() if "embedding" in name or name.startswith("output")]
    assert names == ["source_input.embedding.table.weight", "target_input.embedding.table.weight"]


def test_nothing_is_shared_when_nothing_should_be() -> None:
    model = build(SEPARATE, share_decoder_embeddings=False)
    assert "output.weight" in model.state_dict()
    assert count(replace(TransformerConfig(), share_all_embeddings=False), PAPER) - count(TransformerConfig()) == (
        37_000 * 512
    )


def test_source_and_target_may_share_what_the_output_does_not() -> None:
    apart: dict[str, Any] = {"share_all_embeddings": False, "share_decoder_embeddings": False}
    names = [
        name
        for name in build(share_input_embeddings=True, **apart).state_dict()
        if "embedding" in name or name.startswith("output")
    ]
    assert names == ["source_input.embedding.table.weight", "output.weight"]


@pytest.mark.parametrize("option", ["share_all_embeddings", "share_input_embeddings"])
def test_sharing_matrices_of_separate_vocabularies_is_refused(option: str) -> None:
    with pytest.raises(UsageError, match=f"model.{option} needs one vocabulary .*--joined-dictionary"):
        build(SEPARATE, **{option: True, "share_decoder_embeddings": False})


@pytest.mark.parametrize("sizes", [JOINT, SEPARATE])
def test_a_copy_of_a_model_is_independent(sizes: VocabularySizes) -> None:
    model = build(sizes).eval()
    scores = model.output.logits(model(batch()).hidden)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert torch.equal(model.output.logits(model(batch()).hidden), scores)
    assert not twin.output.logits(twin(batch()).hidden).any()


def test_embeddings_are_scaled_by_the_root_of_the_width() -> None:
    model = build(d_model=64, num_heads=2)
    ids = torch.tensor([[7]])
    position = model.source_input.positions.at(torch.tensor(0), 1)
    expected = 8 * model.source_input.embedding.table.weight[7] + position  # type: ignore[union-attr, index]
    torch.testing.assert_close(model.source_input.eval()(ids)[0, 0], expected)


def test_pre_norm_stacks_end_in_a_norm_and_post_norm_stacks_do_not() -> None:
    assert not [name for name in build().state_dict() if name.startswith(("encoder.norm", "decoder.norm"))]
    pre = build(norm=NormOrder.pre).state_dict()
    assert {"encoder.norm.weight", "decoder.norm.weight"} <= set(pre)


def test_attention_maps_of_every_kind_are_distributions() -> None:
    model, example = build().eval(), batch()
    decoded = model(example, AttentionRequest(("encoder", "decoder", "cross")))
    assert decoded.attention is not None
    maps = decoded.attention.maps
    assert {kind: tuple(weights[0].shape) for kind, weights in maps.items()} == {
        "encoder": (2, 2, 4, 4),
        "decoder": (2, 2, 5, 5),
        "cross": (2, 2, 5, 4),
    }
    for kind in maps:
        assert len(maps[kind]) == 2, kind
        for weights in maps[kind]:
            real = weights[1] if kind == "decoder" else weights[0]  # the sentence without padding among its keys
            torch.testing.assert_close(real.sum(-1), torch.ones(real.shape[:-1]))


def test_padding_columns_of_attention_maps_are_zero() -> None:
    decoded = build().eval()(batch(), AttentionRequest(("encoder", "decoder", "cross")))
    for kind, lengths in {"encoder": [4, 2], "cross": [4, 2], "decoder": [3, 5]}.items():
        for weights in decoded.attention.maps[kind]:
            for sentence, length in enumerate(lengths):
                assert not weights[sentence, :, :, length:].any(), kind


VARIANTS: dict[str, dict[str, Any]] = {
    "restricted": {"encoder_neighborhood": 1, "decoder_neighborhood": 1},
    "universal": {"layers": LayerKind.universal},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_attention_maps_of_variants_are_distributions_and_zero_at_padding(variant: str) -> None:
    decoded = build(**VARIANTS[variant]).eval()(batch(), AttentionRequest(("encoder", "decoder", "cross")))
    for kind, lengths in {"encoder": [4, 2], "cross": [4, 2], "decoder": [3, 5]}.items():
        assert len(decoded.attention.maps[kind]) == 2, kind  # layers, or applications of one
        for weights in decoded.attention.maps[kind]:
            for sentence, length in enumerate(lengths):
                assert not weights[sentence, :, :, length:].any(), kind
                real = weights[sentence, :, : length if kind != "cross" else 1]
                torch.testing.assert_close(real.sum(-1), torch.ones(real.shape[:-1]))


@pytest.mark.parametrize("decoder", [DecoderKind.average_attention, DecoderKind.ssru])
def test_a_decoder_without_self_attention_has_no_maps_of_it(decoder: DecoderKind) -> None:
    maps = build(decoder=decoder).eval()(batch(), AttentionRequest(("decoder", "cross"))).attention.maps
    assert maps["decoder"] == () and len(maps["cross"]) == 2


def test_universal_layers_are_stored_once() -> None:
    names = build(layers=LayerKind.universal, encoder_layers=5).state_dict()
    prefixes = {name.split(".self_attention")[0] for name in names if "self_attention" in name}
    assert prefixes == {"encoder.layers.0.layer", "decoder.layers.0.layer"}
    twice, thrice = (build(layers=LayerKind.universal, encoder_layers=n).eval() for n in (2, 3))
    assert not torch.allclose(twice(batch()).hidden, thrice(batch()).hidden)


def test_a_universal_decoder_reads_the_memory_through_one_projection() -> None:
    model, example = build(layers=LayerKind.universal, decoder_layers=3).eval(), batch()
    memory, state = model.start(model.encode(example.source, example.source_lengths), 1)
    assert len(memory.projected) == 1  # type: ignore[attr-defined]
    assert len(list(tensors(state))) == 2 + 3 * 2  # the lineage, and a cache an application


def test_asking_for_attention_changes_nothing() -> None:
    model = build().eval()
    assert torch.equal(model(batch()).hidden, model(batch(), AttentionRequest()).hidden)
    assert model(batch()).attention is None


def test_hidden_states_are_those_of_the_real_positions() -> None:
    assert build()(batch()).hidden.shape == (8, 16)


def test_a_sentence_longer_than_the_learned_positions_is_refused() -> None:
    model = build(positions=PositionKind.learned, max_positions=3)
    with pytest.raises(DataError, match=r"a source sentence has 4 tokens.*positions for 3.*model.max_positions"):
        model(batch())


def test_learned_positions_limit_lengths_and_sinusoids_do_not() -> None:
    learned: EncoderDecoder = build(positions=PositionKind.learned, max_positions=9)
    assert learned.max_source_length() == 9
    limits = learned.max_target_lengths(torch.tensor([4, 2]))
    assert limits is not None and limits.tolist() == [9, 9]
    assert build().max_source_length() is None
    assert build().max_target_lengths(torch.tensor([4, 2])) is None


@pytest.mark.parametrize("option", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_acts_in_training_only(option: str) -> None:
    model = build(**{"dropout": 0.0, option: 0.5})
    assert not torch.equal(model.train()(batch()).hidden, model(batch()).hidden)
    assert torch.equal(model.eval()(batch()).hidden, model(batch()).hidden)


BAD = {
    "encoder_layers=0": {"encoder_layers": 0},
    "dropout=1.0": {"dropout": 1.0},
    "attention_dropout=-0.1": {"attention_dropout": -0.1},
    "d_model=500 is not divisible by num_heads=8; set model.d_k": {"d_model": 500},
    "d_model=511 is odd": {"d_model": 511, "d_k": 64, "d_v": 64},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_size_is_refused_with_its_value(message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(TransformerConfig(), **BAD[message])


def test_head_widths_are_free_of_the_model_width() -> None:
    model = build(d_model=10, num_heads=3, d_k=4, d_v=2)
    assert model(batch()).hidden.shape == (8, 10)


def test_shrinking_changes_sizes_only() -> None:
    config = TransformerConfig(norm=NormOrder.pre, positions=PositionKind.learned, d_k=9, attention_bias=True)
    small = config.shrink()
    sizes = "encoder_layers decoder_layers d_model d_ff num_heads d_k d_v max_positions relative_distance".split()
    assert replace(small, **{name: getattr(config, name) for name in sizes}) == config
    assert small.d_v is None and small.d_k is not None


def test_the_width_for_the_learning_rate_is_that_of_the_model() -> None:
    assert build().width == 16


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_cache_grows_past_its_first_capacity(beam_size: int) -> None:
    model, example = build().eval(), batch()
    memory, state = model.start(model.encode(example.source, example.source_lengths), beam_size)
    tokens = torch.full((2 * beam_size,), 5)
    for _ in range(40):
        output = model.step(tokens, memory, state)
        state = output.state
    assert torch.isfinite(output.scores).all()
