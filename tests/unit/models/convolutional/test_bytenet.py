"""ByteNet against the paper's formulas, position by position, and what the laws of the conformance suite leave open."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.data.batching.batch import Batch, collate
from nmt.data.vocabulary import PAD
from nmt.errors import UsageError
from nmt.interface import AttentionRequest, VocabularySizes
from nmt.models import models
from nmt.models.convolutional.bytenet import ByteNet, ByteNetMemory
from nmt.models.convolutional.config import ByteNetConfig, CombinationKind
from nmt.testing.subjects import load_preset

JOINT = VocabularySizes(20, 20, shared=True)
SEPARATE = VocabularySizes(20, 30, shared=False)


def build(sizes: VocabularySizes = SEPARATE, **options: Any) -> ByteNet:
    torch.manual_seed(1)
    model = models.build(replace(ByteNetConfig().shrink(), **options), sizes)
    assert isinstance(model, ByteNet)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.double().eval()


def batch() -> Batch:
    sources, targets = [[5, 6, 7, 9, 8, 3], [8, 3]], [[9, 10, 3], [11, 12, 13, 14, 3]]
    return collate([torch.tensor(ids).numpy() for ids in sources], [torch.tensor(ids).numpy() for ids in targets])


def unfolded(model: ByteNet, sources: list[list[int]]) -> Tensor:
    example = collate([torch.tensor(ids).numpy() for ids in sources], [torch.tensor([3]).numpy()] * len(sources))
    memory = model.encode(example.source, example.source_lengths)
    assert isinstance(memory, ByteNetMemory)
    return memory.unfolded


def count(config: ByteNetConfig, sizes: VocabularySizes) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in models.build(config, sizes).parameters())


class Formulas:
    """The model of the paper in plain matrices and loops, for one sentence."""

    def __init__(self, model: ByteNet, config: ByteNetConfig) -> None:
        self.p = dict(model.state_dict())
        self.config = config
        self.scale = math.sqrt(model.width)

    def linear(self, name: str, x: Tensor) -> Tensor:
        mapped: Tensor = self.p[f"{name}.weight"] @ x + self.p[f"{name}.bias"]
        return mapped

    def norm_relu(self, name: str, x: Tensor) -> Tensor:
        normed = (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()
        scaled: Tensor = normed * self.p[f"{name}.weight"] + self.p[f"{name}.bias"]
        return scaled.clamp(min=0)

    def block(self, name: str, xs: list[Tensor], offsets: list[int]) -> list[Tensor]:
        """Figure 3, left."""
        inner = [
            self.norm_relu(f"{name}.before.3", self.linear(f"{name}.before.2", y))
            for y in [self.norm_relu(f"{name}.before.0", x) for x in xs]
        ]
        outputs = []
        for i, x in enumerate(xs):
            taps = [inner[i + o] if 0 <= i + o < len(xs) else torch.zeros_like(inner[0]) for o in offsets]
            convolved = self.linear(f"{name}.convolution.linear", torch.cat(taps))
            outputs.append(x + self.linear(f"{name}.after.2", self.norm_relu(f"{name}.after.0", convolved)))
        return outputs

    def encode(self, ids: list[int]) -> list[Tensor]:
        longer = ids + [PAD] * (math.ceil(1.2 * len(ids)) - len(ids))
        xs = [self.p["source_embedding.table.weight"][token] * self.scale for token in longer]
        for number, r in enumerate(self.config.dilations * self.config.encoder_sets):
            half = self.config.encoder_kernel // 2
            xs = self.block(f"encoder.{number}", xs, [r * i for i in range(-half, half + 1)])
        return xs

    def decode(self, ids: list[int], source: list[Tensor]) -> Tensor:
        zero = torch.zeros_like(source[0])
        beside = [source[i] if i < len(source) else zero for i in range(len(ids))]
        xs = [self.p["target_embedding.table.weight"][token] * self.scale for token in ids]
        xs = [self.combine(x, y) for x, y in zip(xs, beside)]
        for number, r in enumerate(self.config.dilations * self.config.decoder_sets):
            xs = self.block(f"decoder.{number}", xs, [-r * i for i in range(self.config.decoder_kernel)][::-1])
        return torch.stack([self.linear("output", self.linear("head.0", x).clamp(min=0)) for x in xs])

    def combine(self, x: Tensor, y: Tensor) -> Tensor:
        if self.config.combination is CombinationKind.add:
            return x + y
        return self.linear("combination.linear", torch.cat([x, y]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"combination": CombinationKind.concat, "dilations": [1, 3], "encoder_kernel": 5, "decoder_kernel": 2},
        {"encoder_sets": 2, "decoder_sets": 3, "dilations": [1, 2]},
    ],
    ids=["shrunk", "concatenated", "sets"],
)
def test_scores_are_those_of_the_papers_formulas(options: dict[str, Any]) -> None:
    model, example = build(**options), batch()
    formulas = Formulas(model, replace(ByteNetConfig().shrink(), **options))
    expected = [
        formulas.decode(target[:written].tolist(), formulas.encode(source[:length].tolist()))
        for source, target, length, written in zip(
            example.source, example.target_in, example.source_lengths, example.target_lengths
        )
    ]
    torch.testing.assert_close(model.output.logits(model(example).hidden), torch.cat(expected))


def test_presets_have_the_documented_number_of_parameters() -> None:
    assert count(load_preset("bytenet_wmt"), VocabularySizes(300, 300, shared=True)) == 273_377_900
    assert count(load_preset("bytenet_tiny"), VocabularySizes(10_000, 10_000, shared=True)) == 2_474_112


def test_the_wmt_preset_has_the_papers_thirty_blocks_on_each_side() -> None:
    config = load_preset("bytenet_wmt")
    assert config == ByteNetConfig()
    assert len(config.dilations) * config.encoder_sets == len(config.dilations) * config.decoder_sets == 30


def test_the_encoder_unfolds_by_each_sentence_own_length() -> None:
    model = build(unfold_a=1.5, unfold_b=2.0)
    lengths = torch.tensor([1, 2, 5, 10])
    assert model.unfolded_lengths(lengths).tolist() == [4, 5, 10, 17]  # 3.5, 5, 9.5, 17
    found = unfolded(model, [[5, 6, 7, 3], [8, 3]])  # 8 positions, and 5
    assert found.shape == (2, 8, 16)
    assert found[1, :5].abs().amin(1).gt(0).all()
    assert not found[1, 5:].any()


def test_no_source_is_cut_where_targets_are_shorter() -> None:
    assert build(unfold_a=0.5).unfolded_lengths(torch.tensor([4, 9])).tolist() == [4, 9]


def test_a_target_may_grow_beyond_the_unfolded_source() -> None:
    model, example = build(), batch()
    assert model.max_target_lengths(example.source_lengths) is None
    memory, state = model.start(model.encode(example.source[1:, :2], example.source_lengths[1:]), 1)
    longer = collate([example.source[1, :2].numpy()], [torch.tensor([5, 6, 7, 8, 9, 10, 11, 12, 3]).numpy()])
    expected = model.output.logits(model(longer).hidden)
    for position in range(9):  # the source has 2 positions, unfolded 3
        output = model.step(longer.target_in[:, position], memory, state)
        state = output.state
        torch.testing.assert_close(output.scores[0], expected[position])


@pytest.mark.parametrize(("kernel", "sets"), [(3, 1), (3, 2), (5, 1)])
def test_the_encoder_sees_half_the_receptive_field_on_each_side(kernel: int, sets: int) -> None:
    """1 + the sum of (k - 1) r over the blocks."""
    model = build(encoder_kernel=kernel, encoder_sets=sets, dilations=[1, 2], unfold_a=1.0)
    middle, side = 20, (kernel - 1) * 3 * sets // 2
    sentence = [5] * 40 + [3]
    before = unfolded(model, [sentence])[0, middle]
    seen = []
    for position in range(41):
        changed = [*sentence[:position], 6, *sentence[position + 1 :]]
        if not torch.equal(unfolded(model, [changed])[0, middle], before):
            seen.append(position)
    assert seen == list(range(middle - side, middle + side + 1))


def test_the_decoder_sees_the_whole_receptive_field_behind_it() -> None:
    model = build(decoder_sets=2, dilations=[1, 2])
    field = 1 + 2 * (2 * 1 + 2 * 2)
    words = [5] * 20

    def last_scores(targets: list[int]) -> Tensor:
        example = collate([torch.tensor([5, 3]).numpy()], [torch.tensor([*targets, 3]).numpy()])
        return model.output.logits(model(example).hidden)[-1]

    before = last_scores(words)
    seen = [i for i in range(20) if not torch.equal(last_scores([*words[:i], 6, *words[i + 1 :]]), before)]
    assert seen == list(range(20 - field, 20))


def test_without_attention_there_are_no_maps() -> None:
    model, example = build(), batch()
    decoded = model(example, AttentionRequest())
    assert decoded.attention is not None and not decoded.attention.maps
    memory, state = model.start(model.encode(example.source, example.source_lengths), 1)
    assert model.step(example.target_in[:, 0], memory, state, attention=True).attention is None


def test_a_joint_vocabulary_may_share_one_matrix() -> None:
    model = build(JOINT, share_all_embeddings=None)
    tables = [name for name in model.state_dict() if "embedding" in name or name.startswith("output")]
    assert tables == ["source_embedding.table.weight"]


def test_otherwise_nothing_is_shared() -> None:
    names = set(build(JOINT).state_dict())
    assert {"source_embedding.table.weight", "target_embedding.table.weight", "output.weight"} <= names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_size": 0}, "model.hidden_size=0"),
        ({"dilations": []}, r"model.dilations=\[\]"),
        ({"dilations": [1, 0]}, r"model.dilations=\[1, 0\]"),
        ({"encoder_kernel": 4}, "model.encoder_kernel=4 is even"),
        ({"unfold_b": -1.0}, "model.unfold_b=-1.0"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ByteNetConfig(**options)
