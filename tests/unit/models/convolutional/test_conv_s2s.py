"""ConvS2S against the paper's formulas, position by position, and what the laws of the conformance suite leave open."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batching.batch import Batch, collate
from nmt.errors import DataError, UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.convolutional import conv_s2s
from nmt.models.convolutional.config import ConvS2SConfig
from nmt.models.convolutional.conv_s2s import ConvS2S, scale_gradient
from nmt.testing.subjects import load_preset

JOINT = VocabularySizes(20, 20, shared=True)
SEPARATE = VocabularySizes(20, 30, shared=False)
HALF = math.sqrt(0.5)


def build(sizes: VocabularySizes = SEPARATE, **options: Any) -> ConvS2S:
    torch.manual_seed(1)
    model = models.build(replace(ConvS2SConfig(dropout=0.0).shrink(), **options), sizes)
    assert isinstance(model, ConvS2S)
    with torch.no_grad():
        for parameter in model.parameters():  # biases start at 0, lengths at those of the directions
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def batch(*sources: list[int]) -> Batch:
    given = sources or ([5, 6, 7, 9, 3], [8, 3])
    targets = [[9, 10, 3], [11, 12, 13, 14, 3]][: len(given)]
    return collate([torch.tensor(ids).numpy() for ids in given], [torch.tensor(ids).numpy() for ids in targets])


def count(config: ConvS2SConfig, sizes: VocabularySizes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.build(config, sizes).parameters())


class Formulas:
    """The model of the paper in plain matrices and loops, for one sentence in double precision."""

    def __init__(self, model: ConvS2S) -> None:
        self.p = {name: tensor.double() for name, tensor in model.state_dict().items()}

    def linear(self, name: str, x: Tensor) -> Tensor:
        v, g, b = (self.p[f"{name}.{part}"] for part in ("direction", "length", "bias"))
        mapped: Tensor = (g * v / v.pow(2).sum(1, keepdim=True).sqrt()) @ x + b
        return mapped

    def embed(self, side: str, ids: list[int]) -> list[Tensor]:
        table, positions = self.p[f"{side}_input.embedding.table.weight"], self.p[f"{side}_input.positions.weight"]
        return [table[token] + positions[position] for position, token in enumerate(ids)]

    def gated(self, name: str, xs: list[Tensor], offsets: range) -> list[Tensor]:
        """v([A B]) = A * sigma(B): section 3.2"""
        outputs = []
        for i in range(len(xs)):
            inputs = [xs[i + o] if 0 <= i + o < len(xs) else torch.zeros_like(xs[0]) for o in offsets]
            a, b = self.linear(f"{name}.convolution.linear", torch.cat(inputs)).chunk(2)
            outputs.append(a / (1 + torch.exp(-b)))
        return outputs

    def shortcut(self, name: str, x: Tensor) -> Tensor:
        return self.linear(f"{name}.shortcut", x) if f"{name}.shortcut.bias" in self.p else x

    def encode(self, ids: list[int], kernels: list[int]) -> tuple[list[Tensor], list[Tensor]]:
        embedded = self.embed("source", ids)
        xs = [self.linear("encoder.enter", e) for e in embedded]
        for number, kernel in enumerate(kernels):
            name = f"encoder.layers.{number}"
            gated = self.gated(name, xs, range(-(kernel // 2), kernel // 2 + 1))
            xs = [(v + self.shortcut(name, x)) * HALF for v, x in zip(gated, xs)]
        keys = [self.linear("encoder.leave", x) for x in xs]
        return keys, [(z + e) * HALF for z, e in zip(keys, embedded)]

    def decode(self, ids: list[int], kernels: list[int], keys: list[Tensor], values: list[Tensor]) -> Tensor:
        embedded = self.embed("target", ids)
        xs = [self.linear("decoder.enter", e) for e in embedded]
        for number, kernel in enumerate(kernels):
            name = f"decoder.layers.{number}"
            gated = self.gated(name, xs, range(1 - kernel, 1))
            outputs = []
            for v, x, g in zip(gated, xs, embedded):
                d = (self.linear(f"{name}.query", v) + g) * HALF
                weights = torch.stack([d @ z for z in keys]).softmax(0)
                context = sum(a * y for a, y in zip(weights, values))
                assert isinstance(context, Tensor)
                m = len(keys)
                attended = (self.linear(f"{name}.context", context * m * math.sqrt(1 / m)) + v) * HALF
                outputs.append((attended + self.shortcut(name, x)) * HALF)
            xs = outputs
        return torch.stack([self.linear("output.projection", self.linear("decoder.leave", x)) for x in xs])


@pytest.mark.parametrize(
    ("encoder", "decoder", "encoder_kernels", "decoder_kernels"),
    [
        (["2x8x3"], ["2x8x3"], [3, 3], [3, 3]),
        (["1x8x5", "1x12x1"], ["1x8x2", "2x12x4"], [5, 1], [2, 4, 4]),  # widths differ, kernels may be even
    ],
)
def test_scores_are_those_of_the_papers_formulas(
    encoder: list[str], decoder: list[str], encoder_kernels: list[int], decoder_kernels: list[int]
) -> None:
    model = build(encoder_convolutions=encoder, decoder_convolutions=decoder).double().eval()
    example, formulas = batch(), Formulas(model)
    scores = model.output.logits(model(example).hidden)
    expected = []
    for source, target, length, written in zip(
        example.source, example.target_in, example.source_lengths, example.target_lengths
    ):
        keys, values = formulas.encode(source[:length].tolist(), encoder_kernels)
        expected.append(formulas.decode(target[:written].tolist(), decoder_kernels, keys, values))
    torch.testing.assert_close(scores, torch.cat(expected))


def test_presets_have_the_documented_number_of_parameters() -> None:
    joint = VocabularySizes(40_000, 40_000, shared=True)
    assert count(load_preset("conv_s2s_wmt_en_de"), joint) == 209_569_920
    assert count(load_preset("conv_s2s_wmt_en_fr"), joint) == 258_111_616
    assert count(load_preset("conv_s2s_iwslt"), VocabularySizes(10_000, 10_000, shared=True)) == 11_644_448
    assert count(load_preset("conv_s2s_tiny"), VocabularySizes(10_000, 10_000, shared=True)) == 2_532_352


def test_the_wmt_presets_have_the_papers_fifteen_layers() -> None:
    for preset in ("conv_s2s_wmt_en_de", "conv_s2s_wmt_en_fr"):
        config = load_preset(preset)
        for groups in (config.encoder_groups(), config.decoder_groups()):
            assert sum(group.count for group in groups) == 15


def test_weights_start_as_the_paper_says() -> None:
    """Section 3.5: variance p / n, and 4 p / n before a gated linear unit; p is the probability of being retained."""
    torch.manual_seed(1)
    config = replace(ConvS2SConfig(), encoder_convolutions=["1x64x3"], decoder_convolutions=["1x64x3"])
    model = models.build(replace(config, dropout=0.2, embedding_size=128, output_size=96), SEPARATE)
    assert isinstance(model, ConvS2S)
    layer: Any = model.decoder.layers[0]
    expected = {
        model.source_input.embedding.weight: 0.1,
        model.source_input.positions.weight: 0.1,
        layer.convolution.linear.weight: math.sqrt(4 * 0.8 / (3 * 64)),
        layer.query.weight: math.sqrt(1 / 64),
        layer.context.weight: math.sqrt(1 / 128),
        model.decoder.enter.weight: math.sqrt(0.8 / 128),
        model.decoder.leave.weight: math.sqrt(1 / 64),
        model.output.linear()[0]: math.sqrt(0.8 / 96),  # type: ignore[index]
    }
    for weight, std in expected.items():
        assert isinstance(weight, Tensor)
        assert weight.std().item() == pytest.approx(std, rel=0.05)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    assert biases and not any(bias.any() for bias in biases)


def test_a_scaled_gradient_leaves_the_values() -> None:
    x = torch.randn(3, requires_grad=True)
    scaled = scale_gradient(x, 0.25)
    assert torch.equal(scaled, x)
    (gradient,) = torch.autograd.grad(scaled.sin().sum(), x)
    torch.testing.assert_close(gradient, 0.25 * x.cos())


def test_the_encoder_gets_a_share_of_the_gradient_and_its_embeddings_get_theirs_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Section 3.4, with the authors' factor of two: divided by twice the number of attentions, embeddings excluded."""

    def gradients(factor: float | None) -> list[Tensor]:
        model = build(decoder_convolutions=["3x8x3"]).double()
        chosen = scale_gradient if factor is None else lambda x, _: scale_gradient(x, factor)
        monkeypatch.setattr(conv_s2s, "scale_gradient", chosen)
        model(batch()).hidden.sin().sum().backward()
        parameters = [*model.encoder.parameters(), *model.source_input.parameters()]
        return [parameter.grad for parameter in parameters if parameter.grad is not None]

    for found, direct, whole in zip(gradients(None), gradients(0.0), gradients(1.0)):
        torch.testing.assert_close(found, direct + (whole - direct) / 6)
        assert (whole - direct).any()


def test_every_layer_reports_its_attention_and_a_step_their_mean() -> None:
    model, example = build().eval(), batch()
    decoded = model(example, AttentionRequest(("cross", "encoder")))
    assert decoded.attention is not None and set(decoded.attention.maps) == {"cross"}
    maps = decoded.attention.maps["cross"]
    assert [tuple(weights.shape) for weights in maps] == [(2, 1, 5, 5)] * 2
    memory, state = model.start(model.encode(example.source, example.source_lengths), 1)
    for position, tokens in enumerate(example.target_in.unbind(1)[:3]):
        output = model.step(tokens, memory, state, attention=True)
        state = output.state
        torch.testing.assert_close(output.attention, (maps[0] + maps[1])[:, 0, position] / 2)


def test_a_joint_vocabulary_may_share_one_matrix() -> None:
    model = build(JOINT, share_all_embeddings=None)
    assert [name for name in model.state_dict() if "embedding" in name] == ["source_input.embedding.table.weight"]
    assert model.output.linear()[0] is model.source_input.embedding.weight  # type: ignore[index]


@pytest.mark.parametrize(("sizes", "share"), [(JOINT, False), (SEPARATE, None)])
def test_otherwise_nothing_is_shared(sizes: VocabularySizes, share: bool | None) -> None:
    names = set(build(sizes, share_all_embeddings=share).state_dict())
    assert {"target_input.embedding.table.weight", "output.projection.direction"} <= names


def test_sharing_separate_vocabularies_is_refused() -> None:
    with pytest.raises(UsageError, match="--joined-dictionary"):
        build(SEPARATE, share_all_embeddings=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_convolutions": []}, "model.encoder_convolutions is empty"),
        ({"decoder_convolutions": ["512x3"]}, r"decoder_convolutions has '512x3'.*layers x channels x kernel width"),
        ({"decoder_convolutions": ["0x512x3"]}, "'0x512x3'"),
        ({"encoder_convolutions": ["4x512x3", "1x512x2"]}, "'1x512x2'.*odd"),
        ({"embedding_size": 0}, "model.embedding_size=0"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
        (
            {"share_all_embeddings": True, "output_size": 256},
            "model.output_size=256 differs from model.embedding_size=512",
        ),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConvS2SConfig(**options)


def test_shrinking_keeps_the_groups_and_which_of_them_are_wider() -> None:
    small = load_preset("conv_s2s_wmt_en_fr").shrink()
    assert small.encoder_convolutions == ["1x8x3", "1x12x3", "1x16x3", "1x20x1", "1x24x1"]
    assert ConvS2SConfig().shrink().encoder_convolutions == ["2x8x3"]


def test_sentences_longer_than_the_positions_are_refused() -> None:
    model = build(max_positions=5)
    assert model.max_source_length() == 5
    assert model.max_target_lengths(torch.tensor([2, 3])).tolist() == [5, 5]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="source sentence has 6 tokens.*for 5"):
        model(batch([5, 6, 7, 8, 9, 3]))
