"""Subclasses that replace a part of a formula translate with the function that they learn, or are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.config.choices import NumberFormat
from nmt.data.batch import collate
from nmt.interface import EncoderDecoder, OutputLayer, VocabularySizes
from nmt.models import models
from nmt.models.output_layers import LinearOutput
from nmt.models.packed_output import pack_model
from nmt.models.transformer import TransformerConfig
from nmt.modules.attention import CausalSelfAttention, CrossAttention, DotProduct, ScaledDotProduct
from nmt.modules.average_attention import AverageAttention
from nmt.modules.feed_forward import FeedForward
from nmt.modules.head_sizes import HeadSizes
from nmt.modules.linear import Linear
from nmt.modules.local_attention import LocalCausalSelfAttention
from nmt.modules.plain import overridden, plain
from nmt.modules.residual import PostNorm, PreNorm
from nmt.modules.mask import Mask
from nmt.modules.ssru import SSRU
from nmt.modules.transformer_layers import DecoderLayer
from nmt.search.forced import score_targets
from tests.unit.modules.stepping import assert_steps_equal_the_whole

SIZES = HeadSizes(d_model=16, num_heads=2, d_k=8, d_v=8)


class Sharper(ScaledDotProduct):
    """Another score: the documented way to a new kind of attention."""

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        return 3 * torch.tanh(super().scores(queries, keys, mask))


class Halved(ScaledDotProduct):
    def mix(self, weights: Tensor, values: Tensor, mask: Mask) -> Tensor:
        return 0.5 * super().mix(weights, values, mask)


class Shifted(ScaledDotProduct):
    def forward(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None
    ) -> Tensor:
        return super().forward(queries, keys, values, mask, record) + 0.5


class Squared(ScaledDotProduct):
    def _weights(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        weights = super()._weights(queries, keys, mask) ** 2
        return weights / weights.sum(-1, keepdim=True)


class Colder(ScaledDotProduct):
    """Kernels ask for the scale."""

    def scale(self, d_k: int) -> float:
        return 3.0 * d_k**-0.5


class Mixin:
    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        return -(queries @ keys.transpose(-1, -2))


class Mixed(Mixin, ScaledDotProduct):
    pass


class Doubled(CausalSelfAttention):
    def project(self, x: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = super().project(x, mask)
        return queries, keys, 2 * values


class Flipped(CausalSelfAttention):
    def attend_to(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None) -> Tensor:
        return -super().attend_to(queries, keys, values, mask, record)


class DoubledMemory(CrossAttention):
    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = super().project(memory)
        return keys, 2 * values


class Rectified(CrossAttention):
    def forward(
        self, x: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None = None
    ) -> Tensor:
        return torch.relu(super().forward(x, keys, values, mask, record))


class Swish(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.outer(nn.functional.silu(self.inner(x)))
        return projected


class Doubling(Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def plain_model() -> EncoderDecoder:
    torch.manual_seed(1)
    config = TransformerConfig(2, 2, d_model=16, d_ff=24, num_heads=2, dropout=0.0)
    model = models.build(config, VocabularySizes(23, 23, True))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2).add_(torch.randn_like(parameter), alpha=0.3)
    return model.eval()


def with_attend(kind: type[ScaledDotProduct]) -> Callable[[EncoderDecoder], None]:
    def change(model: EncoderDecoder) -> None:
        for module in model.modules():
            if hasattr(module, "attend"):
                module.attend = kind(0.0).eval()

    return change


def with_class(original: type[nn.Module], kind: type[nn.Module]) -> Callable[[EncoderDecoder], None]:
    def change(model: EncoderDecoder) -> None:
        for module in model.modules():
            if type(module) is original:
                module.__class__ = kind

    return change


CHANGES = {
    **{kind.__name__: with_attend(kind) for kind in (Sharper, Halved, Shifted, Squared, Colder, Mixed, DotProduct)},
    "Doubled": with_class(CausalSelfAttention, Doubled),
    "Flipped": with_class(CausalSelfAttention, Flipped),
    "DoubledMemory": with_class(CrossAttention, DoubledMemory),
    "Rectified": with_class(CrossAttention, Rectified),
    "Swish": with_class(FeedForward, Swish),
    "Doubling": with_class(Linear, Doubling),
}


def taught_and_stepped(model: EncoderDecoder, number_format: NumberFormat | None) -> tuple[list[Tensor], list[Tensor]]:
    """Log-probabilities of targets by ``decode``, as a model is trained, and by ``step``, as it translates.

    In a number format both are those of the packed model, whose weights are rounded alike.
    """
    sources = [torch.tensor([5, 6, 7, 8, 2]).numpy(), torch.tensor([9, 4, 2]).numpy()]
    targets = [torch.tensor([7, 4, 11, 2]).numpy(), torch.tensor([12, 13, 14, 5, 6, 2]).numpy()]
    batch = collate(sources, targets)
    with torch.no_grad():
        if number_format is not None:
            pack_model(model, number_format)
        scores = model.output.logits(model(batch).hidden).log_softmax(-1)
        taught = scores.gather(1, batch.targets[:, None])[:, 0].split(batch.target_lengths.tolist())
        stepped = score_targets(model, batch.source, batch.source_lengths, [torch.tensor(one) for one in targets])
    return list(taught), stepped


@pytest.mark.parametrize(
    "number_format", [None, NumberFormat.float32, NumberFormat.bfloat16, NumberFormat.int8], ids=str
)
@pytest.mark.parametrize("name", CHANGES)
def test_a_model_translates_with_what_its_subclasses_learned(name: str, number_format: NumberFormat | None) -> None:
    model, original = plain_model(), plain_model()
    CHANGES[name](model)
    taught, stepped = taught_and_stepped(model, number_format)
    effect = torch.cat(taught) - torch.cat(taught_and_stepped(original, number_format)[0])
    assert effect.abs().max() > 0.05  # it would be seen
    difference = torch.cat(stepped).float() - torch.cat(taught).float()
    assert difference.abs().max() < (1e-4 if number_format in (None, NumberFormat.float32) else 0.03)


@pytest.mark.parametrize("kind", [Sharper, Halved, Squared, Mixed, Shifted])
@pytest.mark.parametrize("length", [5, 300])
def test_no_fused_kernel_computes_another_formula(kind: type[ScaledDotProduct], length: int) -> None:
    """Long sequences are computed by torch's kernel, which knows equation 1 alone; asking for weights writes it out."""
    attend, x = kind(0.0).eval(), torch.randn(1, 2, length, 8)
    torch.testing.assert_close(attend(x, x, x, Mask(None), None), attend(x, x, x, Mask(None), []))
    assert not attend.flat


@pytest.mark.parametrize("kind", [ScaledDotProduct, DotProduct, Colder])
def test_kernels_that_ask_for_the_scale_serve_its_subclasses(kind: type[ScaledDotProduct]) -> None:
    attend = kind(0.0).eval()
    assert attend.by_equation_1 and attend.flat
    assert plain(attend) != attend.forward


@pytest.mark.parametrize("kind", [Doubled, Flipped])
def test_steps_equal_the_whole(kind: type[CausalSelfAttention]) -> None:
    assert_steps_equal_the_whole(kind(SIZES, True, ScaledDotProduct(0.0)).eval(), SIZES.d_model)


def test_steps_of_restricted_attention_keep_to_an_overridden_score() -> None:
    attention = LocalCausalSelfAttention(3, SIZES, True, Sharper(0.0)).eval()
    assert_steps_equal_the_whole(attention, SIZES.d_model)


class Louder(CausalSelfAttention):
    def forward(self, x: Tensor, mask: Mask, record: list[Tensor] | None = None) -> Tensor:
        return 2 * super().forward(x, mask, record)


class LouderAverage(AverageAttention):
    def forward(self, x: Tensor, mask: Mask, record: list[Tensor] | None = None) -> Tensor:
        return 2 * super().forward(x, mask, record)


class LouderUnit(SSRU):
    def forward(self, x: Tensor, mask: Mask, record: list[Tensor] | None = None) -> Tensor:
        return 2 * super().forward(x, mask, record)


class LouderAround(PostNorm):
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return 2 * super().forward(x, sublayer)


class Twice(DecoderLayer):
    def read(self, *arguments: object) -> Tensor:
        return 2 * super().read(*arguments)  # type: ignore[arg-type]


class FedTwice(DecoderLayer):
    def feed(self, x: Tensor, record: object) -> Tensor:
        return super().feed(super().feed(x, record), record)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("original", "kind", "missing"),
    [
        (CausalSelfAttention, Louder, "forward, but not stepper"),
        (PostNorm, LouderAround, "forward, but not halves"),
        (DecoderLayer, Twice, "read, but not _stepper"),
        (DecoderLayer, FedTwice, "feed, but not _feeder"),
    ],
)
def test_a_step_that_cannot_follow_what_was_overridden_is_refused(
    original: type[nn.Module], kind: type[nn.Module], missing: str
) -> None:
    model = plain_model()
    with_class(original, kind)(model)
    with pytest.raises(TypeError, match=f"{kind.__name__} overrides {missing}.*override"):
        taught_and_stepped(model, None)


@pytest.mark.parametrize("module", [LouderAverage(SIZES.d_model, 24, 0.0), LouderUnit(SIZES.d_model)])
def test_so_is_that_of_decoders_without_self_attention(module: AverageAttention | SSRU) -> None:
    with pytest.raises(TypeError, match="overrides forward, but not _step"):
        module.stepper()


def test_an_output_layer_with_other_logits_needs_its_own_ways_to_them() -> None:
    with pytest.raises(TypeError, match="Capped overrides logits, but not restrict and linear"):

        class Capped(LinearOutput):
            def logits(self, hidden: Tensor) -> Tensor:
                return 30 * torch.tanh(super().logits(hidden) / 30)


def test_an_output_layer_may_override_all_of_them() -> None:
    class Capped(LinearOutput):
        def logits(self, hidden: Tensor) -> Tensor:
            return 30 * torch.tanh(super().logits(hidden) / 30)

        def restrict(self, vocabulary: Tensor) -> OutputLayer:
            return self

        def linear(self) -> None:
            return None

    assert Capped(torch.zeros(3, 2)).linear() is None


def test_overridden_names_what_subclasses_replaced() -> None:
    assert overridden(Mixed, ScaledDotProduct) == {"scores"}
    assert overridden(DotProduct, ScaledDotProduct) == {"scale"}
    assert overridden(PreNorm, PreNorm) == frozenset()
