"""An option that has no effect in a model is found; one that has any effect is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.option import option
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.ignored import build_model, spelled
from nmt.models.memory.config import SymbolKind
from nmt.models.recurrent.config import AttentionKind, ReadoutKind
from nmt.models.transformer.attention import CausalSelfAttention, ScaledDotProduct, SelfAttention
from nmt.models.transformer.config import (
    DecoderKind,
    LayerKind,
    NormOrder,
    PositionKind,
    TransformerConfig,
)
from nmt.models.transformer.layers import DecoderLayer, EncoderLayer
from nmt.models.transformer.lightconv_config import ConvolutionKind, LightConvConfig
from nmt.models.transformer.parts import Stacks, layer_parts, position_vectors
from nmt.models.transformer.transformer import Transformer
from nmt.testing.subjects import load_preset, toy_batch

pytestmark = pytest.mark.slow  # tries every architecture

JOINT, SEPARATE = VocabularySizes(23, 23, True), VocabularySizes(23, 24, False)

BUCKETS = {"position_buckets": 4, "bucket_distance": 5}
# Of each model the choices that decide which other options have an effect.
CONTEXTS: list[tuple[str, dict[str, Any]]] = [
    *(("transformer", {"positions": kind, **BUCKETS}) for kind in (PositionKind.sinusoidal, PositionKind.buckets)),
    ("transformer", {"decoder": DecoderKind.average_attention}),
    ("transformer", {"layers": LayerKind.universal}),
    ("transformer", {"encoder_norm": NormOrder.post, "decoder_norm": NormOrder.post}),
    ("transformer", {"share_all_embeddings": False}),
    ("transformer_moe", {"experts_every": 1, "expert_size": 8}),
    *(("lightconv", {"convolution": kind}) for kind in ConvolutionKind),
    ("lstm", {}),
    ("lstm", {"bidirectional": True}),
    ("lstm", {"attention": AttentionKind.none}),
    ("lstm", {"readout": ReadoutKind.tanh}),
    *((name, {}) for name in ("gnmt", "deep_att", "lstm_moe", "bytenet", "conv_s2s", "memory_network")),
    *(("neural_turing_machine", {"symbols": kind}) for kind in SymbolKind),
    ("neural_gpu", {}),
]
CONTEXTS_AT_NIGHT: list[tuple[str, dict[str, Any]]] = [
    *(("transformer", {"positions": kind, **BUCKETS}) for kind in PositionKind),
    *(("transformer", {"decoder": kind}) for kind in DecoderKind),
    ("transformer_moe", {}),
    ("transformer_moe", {"experts_every": 1}),
]
# Other values of options that are null by default.
INSTEAD_OF_NULL: dict[str, Any] = {
    "d_k": 4,
    "d_v": 4,
    "share_all_embeddings": False,
    "encoder_norm": NormOrder.pre,
    "decoder_norm": NormOrder.pre,
    "norm_epsilon": 0.1,
    "encoder_neighborhood": 1,
    "decoder_neighborhood": 2,
    "expert_size": 9,
    "encoder_size": 20,
    "residual_from": 2,
    "attention_window": 1,
    "readout_size": 12,
    "init_range": 0.2,
    "symbol_bits": 6,
}


def others(name: str, value: Any) -> Iterator[Any]:
    """Other values of an option."""
    if value is None:
        yield INSTEAD_OF_NULL[name]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, Enum):
        yield from (other for other in type(value) if other is not value)
    elif name == "experts_every":
        yield 3 - value  # the stacks have two layers
    elif isinstance(value, int):
        yield (2 * value or 1) + name.endswith("_kernel")
    elif isinstance(value, float):
        yield 4.0 if name == "unfold_b" else 0.6 * value + 0.07


def computed(config: Any, sizes: VocabularySizes) -> tuple[EncoderDecoder, list[Any]]:
    """A model, and what tells it from others: its parameters, and a pass of training."""
    torch.manual_seed(1)
    model = build_model(config, sizes).train()
    output = model(toy_batch(model, (2, 9), (6, 3)))
    found: list[Any] = [*model.state_dict().items(), ("logits", model.output.logits(output.hidden))]
    learned = [(name, torch.tensor(parameter.requires_grad)) for name, parameter in model.named_parameters()]
    return model, [*found, *learned, *sorted(output.auxiliary.items())]


def equal(one: list[tuple[str, Tensor]], other: list[tuple[str, Tensor]]) -> bool:
    return len(one) == len(other) and all(
        name == as_other and tensor.shape == beside.shape and torch.equal(tensor, beside)
        for (name, tensor), (as_other, beside) in zip(one, other)
    )


@pytest.mark.parametrize(
    ("name", "context", "sizes"),
    [
        *((*context, JOINT) for context in CONTEXTS),
        *(("transformer", {}, SEPARATE), ("lstm", {}, SEPARATE)),
        *(
            pytest.param(*context, JOINT, marks=pytest.mark.nightly)
            for context in CONTEXTS_AT_NIGHT
            if context not in CONTEXTS
        ),
    ],
    ids=str,
)
def test_exactly_the_options_that_change_nothing_are_ignored(
    name: str, context: dict[str, Any], sizes: VocabularySizes
) -> None:
    config = replace(models.config_class(name)().shrink(), **context)
    _, before = computed(config, sizes)
    for field in fields(config):
        if field.name == "share_all_embeddings" and not sizes.shared:
            continue  # null and false agree
        for value in others(field.name, getattr(config, field.name)):
            try:
                model, after = computed(replace(config, **{field.name: value}), sizes)
            except UsageError:
                continue  # refused in any case
            chosen = f"model.{field.name}={spelled(value)}"
            assert (chosen in model.ignored) == equal(before, after), chosen


class OwnSelfAttention(SelfAttention):
    pass


@dataclass
class OwnConfig(TransformerConfig):
    """A variant with an own self-attention, as a plug-in writes it."""

    own_encoder: bool = option(True, help="in the encoder")
    own_decoder: bool = option(True, help="in the decoder")


def own_stacks(config: OwnConfig) -> Stacks:
    parts = layer_parts(config)
    if config.own_encoder:
        parts = replace(
            parts, source_attention=lambda: OwnSelfAttention(config.head_sizes(), False, ScaledDotProduct(0.0))
        )
    if config.own_decoder:
        parts = replace(
            parts, target_attention=lambda: CausalSelfAttention(config.head_sizes(), False, ScaledDotProduct(0.0))
        )
    return Stacks(
        position_vectors,
        encoder=lambda c: [EncoderLayer(parts) for _ in range(c.encoder_layers)],
        decoder=lambda c: [DecoderLayer(parts) for _ in range(c.decoder_layers)],
    )


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_entries", dict(models._entries))

    @models.register("own_attention", OwnConfig)
    class Own(Transformer):
        def __init__(self, config: OwnConfig, sizes: VocabularySizes) -> None:
            super().__init__(config, sizes, own_stacks(config))


def ignored(**options: Any) -> tuple[str, ...]:
    return build_model(replace(OwnConfig().shrink(), **options), JOINT).ignored


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", [PositionKind.relative, PositionKind.rotary, PositionKind.alibi])
def test_positions_beside_an_own_self_attention_are_ignored(kind: PositionKind) -> None:
    where = [f"model.positions={kind.name} in the {stack}" for stack in ("encoder", "decoder")]
    assert ignored(positions=kind) == tuple(where)
    assert ignored(positions=kind, own_encoder=False) == (where[1],)
    assert ignored(positions=kind, own_decoder=False) == (where[0],)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    "options",
    [
        {"encoder_neighborhood": 2},
        {"decoder_neighborhood": 2},
        {"decoder": DecoderKind.ssru},
        {"layers": LayerKind.universal},
    ],
    ids=str,
)
def test_other_options_of_a_part_that_is_replaced_are_ignored(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    assert ignored(**options) == (f"model.{name}={spelled(value)}",)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("options", [{}, {"positions": PositionKind.learned}, {"attention_dropout": 0.1}], ids=str)
def test_options_that_other_parts_read_are_not(options: dict[str, Any]) -> None:
    assert ignored(**options) == ()


def test_a_preset_without_shared_embeddings_can_be_told_to_share_all() -> None:
    """The presets with fairseq's names share nothing unless --share-all-embeddings asks for it."""
    preset = load_preset("transformer_wmt_en_de")
    assert not preset.share_decoder_embeddings
    with torch.device("meta"):
        assert build_model(replace(preset, share_all_embeddings=True), JOINT).ignored == ()


@pytest.mark.usefixtures("registered")
def test_an_own_self_attention_may_apply_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    init = OwnSelfAttention.__init__

    def applying(self: OwnSelfAttention, *arguments: Any) -> None:
        init(self, *arguments)
        self.applies_positions = True

    monkeypatch.setattr(OwnSelfAttention, "__init__", applying)
    assert ignored(positions=PositionKind.rotary, own_decoder=False) == ()


def test_a_model_that_keeps_its_configuration_may_read_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(LightConvConfig().shrink(), max_positions=33)
    assert build_model(config, JOINT).ignored == ("model.max_positions=33",)
    entry = models._entries["lightconv"]

    def keeping(own: LightConvConfig, sizes: VocabularySizes) -> EncoderDecoder:
        assert entry.builder is not None
        model = entry.builder(own, sizes)
        model.config = own
        return model

    monkeypatch.setitem(models._entries, "lightconv", replace(entry, builder=keeping))
    model = build_model(config, JOINT)
    assert model.ignored == ()
    assert type(model.config) is LightConvConfig and model.config == config and model.config is not config


def test_building_does_not_change_the_configuration() -> None:
    config = TransformerConfig().shrink()
    before = replace(config)
    build_model(config, JOINT)
    assert type(config) is TransformerConfig and config == before
