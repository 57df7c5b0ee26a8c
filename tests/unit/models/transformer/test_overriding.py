"""Subclasses that replace a part of a formula translate with the function that they learn, or are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nmt.data.batching.batch import collate
from nmt.interface import EncoderDecoder, OutputLayer, VocabularySizes
from nmt.layers.linear import Linear
from nmt.models import models
from nmt.models.output_layers import LinearOutput
from nmt.models.transformer.attention import (
    CausalSelfAttention,
    CrossAttention,
    DotProduct,
    ScaledDotProduct,
)
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.decoders_without_attention import SSRU, AverageAttention
from nmt.models.transformer.layers import DecoderLayer, FeedForward, PostNorm, Record
from nmt.models.transformer.local_attention import LocalCausalSelfAttention
from nmt.models.transformer.mask import Mask
from nmt.models.transformer.transformer import TransformerConfig
from nmt.testing.subjects import forced_scores
from tests.unit.models.transformer.stepping import assert_steps_equal_the_whole

SIZES = HeadSizes(d_model=16, num_heads=2, d_k=8, d_v=8)


class Sharper(ScaledDotProduct):
    """Another score: the documented way to a new kind of attention."""

    def scores(self, queries: Tensor, keys: Tensor, mask: Mask) -> Tensor:
        return 3 * torch.tanh(super().scores(queries, keys, mask))


class Halved(ScaledDotProduct):
    def mix(self, weights: Tensor, values: Tensor, mask: Mask) -> Tensor:
        return 0.5 * super().mix(weights, values, mask)


class Shifted(ScaledDotProduct):
    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None) -> Tensor:
        return super().forward(queries, keys, values, mask, record) + 0.5


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
    def attend_to(
        self, queries: Tensor, keys: Tensor, values: Tensor, mask: Mask, record: list[Tensor] | None
    ) -> Tensor:
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


class LouderAround(PostNorm):
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return 2 * super().forward(x, sublayer)


class FedTwice(DecoderLayer):
    def feed(self, x: Tensor, record: Record) -> Tensor:
        return super().feed(super().feed(x, record), record)


CHANGES = {
    "LouderAround": with_class(PostNorm, LouderAround),
    "FedTwice": with_class(DecoderLayer, FedTwice),
    **{kind.__name__: with_attend(kind) for kind in (Sharper, Halved, Shifted, Colder, Mixed, DotProduct)},
    "Doubled": with_class(CausalSelfAttention, Doubled),
    "Flipped": with_class(CausalSelfAttention, Flipped),
    "DoubledMemory": with_class(CrossAttention, DoubledMemory),
    "Rectified": with_class(CrossAttention, Rectified),
    "Swish": with_class(FeedForward, Swish),
    "Doubling": with_class(Linear, Doubling),
}


def taught_and_stepped(model: EncoderDecoder) -> tuple[Tensor, Tensor]:
    """Log-probabilities of targets by ``decode``, as a model is trained, and by ``step``, as it translates."""
    sources = [torch.tensor([5, 6, 7, 8, 2]).numpy(), torch.tensor([9, 4, 2]).numpy()]
    targets = [torch.tensor([7, 4, 11, 2]).numpy(), torch.tensor([12, 13, 14, 5, 6, 2]).numpy()]
    batch = collate(sources, targets)
    with torch.no_grad():
        scores = model.output.logits(model(batch).hidden).log_softmax(-1)
        stepped = forced_scores(model, batch.source, batch.source_lengths, [torch.tensor(one) for one in targets])
    return scores.gather(1, batch.targets[:, None])[:, 0], torch.cat(stepped)


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_translates_with_what_its_subclasses_learned(name: str) -> None:
    model, original = plain_model(), plain_model()
    CHANGES[name](model)
    taught, stepped = taught_and_stepped(model)
    assert (taught - taught_and_stepped(original)[0]).abs().max() > 0.05  # it would be seen
    torch.testing.assert_close(stepped, taught, atol=1e-4, rtol=0)


@pytest.mark.parametrize("kind", [Sharper, Halved, Mixed, Shifted])
@pytest.mark.parametrize("length", [5, 300])
def test_no_fused_kernel_computes_another_formula(kind: type[ScaledDotProduct], length: int) -> None:
    """Long sequences are computed by torch's kernel, which knows equation 1 alone; asking for weights writes it out."""
    attend, x = kind(0.0).eval(), torch.randn(1, 2, length, 8)
    torch.testing.assert_close(attend(x, x, x, Mask(None), None), attend(x, x, x, Mask(None), []))
    assert not attend.flat


@pytest.mark.parametrize("kind", [ScaledDotProduct, DotProduct, Colder])
def test_kernels_that_ask_for_the_scale_serve_its_subclasses(kind: type[ScaledDotProduct]) -> None:
    attend = kind(0.0).eval()
    assert attend.fused and attend.flat


@pytest.mark.parametrize("kind", [Doubled, Flipped])
def test_steps_equal_the_whole(kind: type[CausalSelfAttention]) -> None:
    assert_steps_equal_the_whole(kind(SIZES, True, ScaledDotProduct(0.0)).eval(), SIZES.d_model)


def test_steps_of_restricted_attention_keep_to_an_overridden_score() -> None:
    attention = LocalCausalSelfAttention(3, SIZES, True, Sharper(0.0)).eval()
    assert_steps_equal_the_whole(attention, SIZES.d_model)


@pytest.mark.parametrize("original", [CausalSelfAttention, AverageAttention, SSRU])
def test_another_forward_without_another_step_is_refused(original: type[nn.Module]) -> None:
    with pytest.raises(
        TypeError,
        match="Louder overrides forward, but not step, which must compute the same in decoding; override it too",
    ):
        type("Louder", (original,), {"forward": lambda self, *arguments: 2 * original.forward(self, *arguments)})


@pytest.mark.parametrize("method", ["forward", "read"])
def test_so_is_another_layer_without_another_step(method: str) -> None:
    with pytest.raises(TypeError, match=f"Twice overrides {method}, but not step"):
        type(
            "Twice",
            (DecoderLayer,),
            {method: lambda self, *arguments: arguments[0]},
        )


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
