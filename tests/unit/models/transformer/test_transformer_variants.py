"""Every pair of values of the Transformer's options: it works, or it is refused with a sentence."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from enum import Enum
from itertools import combinations
from typing import Any

import pytest
import torch

from nmt.errors import UsageError
from nmt.layers.sinusoids import SinusoidLayout, Wavelengths
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
from nmt.testing.conformance import Subject
from nmt.testing.model_laws import padding_never_matters, steps_equal_teacher_forcing
from tests.unit.models.covering import covering, pairs_of
from tests.unit.models.every_parameter import assert_every_parameter_learns

SMALL = TransformerConfig().shrink()

# Values beside the defaults: of each option that changes the structure, and one number more of each that does not.
STRUCTURES: dict[str, tuple[Any, ...]] = {
    "d_model": (15,),  # odd
    "d_k": (5,),  # odd
    "d_v": (7,),
    "positions": (
        PositionKind.learned,
        PositionKind.relative,
        PositionKind.rotary,
        PositionKind.alibi,
        PositionKind.buckets,
    ),
    "embedding_norm": (True,),
    "share_all_embeddings": (False,),
    "share_decoder_embeddings": (False,),
    "share_input_embeddings": (True,),
    "norm": (NormOrder.pre,),
    "attention_bias": (True,),
    "norm_kind": (NormKind.rms_norm,),
    "encoder_norm": (NormOrder.pre,),
    "feed_forward": (
        FeedForwardKind.gelu,
        FeedForwardKind.swish,
        FeedForwardKind.glu,
        FeedForwardKind.geglu,
        FeedForwardKind.swiglu,
        FeedForwardKind.gelu_tanh,
        FeedForwardKind.geglu_tanh,
    ),
    "attention_score": (ScoreKind.dot, ScoreKind.additive),
    "encoder_neighborhood": (1,),
    "decoder_neighborhood": (2,),
    "decoder": (DecoderKind.average_attention, DecoderKind.ssru),
    "layers": (LayerKind.universal,),
}
# Of two numbers neither decides what the other means.
NUMBERS: dict[str, tuple[Any, ...]] = {
    "encoder_layers": (1,),
    "decoder_layers": (3,),
    "d_ff": (9,),
    "num_heads": (4,),
    "dropout": (0.3,),
    "attention_dropout": (0.3,),
    "activation_dropout": (0.3,),
    "layer_dropout": (1e-6,),  # a skipped layer has no gradient
    "max_positions": (7,),
    "relative_distance": (1,),
    "position_buckets": (8,),
    "bucket_distance": (16,),  # half of the buckets
    "decoder_norm": (NormOrder.pre,),
    "norm_epsilon": (0.1,),
    "embedding_scale": (False,),
    "output_bias": (True,),
    "start_symbol": (StartSymbol.eos, StartSymbol.pad),
    "sinusoid_layout": (SinusoidLayout.halves,),
    "sinusoid_wavelengths": (Wavelengths.tensor2tensor,),
    "sinusoid_base": (100.0,),
    "position_offset": (2,),
}
VALUES = STRUCTURES | NUMBERS

# What is refused, and the beginning of the reason.
REFUSED = {
    ("d_model=15", "positions=sinusoidal"): "sinusoids come in pairs",
    ("d_model=15", "layers=universal"): "sinusoids encode the step of universal layers",
    ("d_model=15", "positions=rotary"): "rotary positions rotate pairs",  # of 15 / 3 numbers
    ("d_model=15", "num_heads=4"): "d_model=15 is not divisible by num_heads=4",
    ("d_k=5", "positions=rotary"): "rotary positions rotate pairs",
    ("positions=rotary", "attention_score=additive"): "rotary positions need dot products",
    ("positions=relative", "attention_score=dot"): "relative positions are defined",
    ("positions=relative", "attention_score=additive"): "relative positions are defined",
    ("positions=relative", "decoder=average_attention"): "self-attention applies these positions",
    ("positions=relative", "decoder=ssru"): "self-attention applies these positions",
    ("positions=rotary", "decoder=average_attention"): "self-attention applies these positions",
    ("positions=rotary", "decoder=ssru"): "self-attention applies these positions",
    ("positions=alibi", "decoder=average_attention"): "self-attention applies these positions",
    ("positions=alibi", "decoder=ssru"): "self-attention applies these positions",
    ("positions=buckets", "decoder=average_attention"): "self-attention applies these positions",
    ("positions=buckets", "decoder=ssru"): "self-attention applies these positions",
    ("positions=buckets", "encoder_neighborhood=1"): "attention to neighborhoods does not support buckets",
    ("positions=buckets", "decoder_neighborhood=2"): "attention to neighborhoods does not support buckets",
    ("positions=buckets", "bucket_distance=16"): "the number of buckets must be at least 4",
    ("decoder_neighborhood=2", "decoder=average_attention"): "the option restricts self-attention",
    ("decoder_neighborhood=2", "decoder=ssru"): "the option restricts self-attention",
    ("positions=learned", "layers=universal"): "universal layers add sinusoids",
} | {
    (kind, sinusoids): "the option changes sinusoidal positions"
    for kind in (
        "positions=learned",
        "positions=relative",
        "positions=rotary",
        "positions=alibi",
        "positions=buckets",
        "d_model=15",
    )
    for sinusoids in (
        "sinusoid_layout=halves",
        "sinusoid_wavelengths=tensor2tensor",
        "sinusoid_base=100.0",
        "position_offset=2",
    )
}


def spelt(name: str, value: Any) -> str:
    return f"{name}={getattr(value, 'value', value)}"


def every_pair() -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (spelt(first, one), spelt(second, other)): {first: one, second: other}
        for first, second in combinations(VALUES, 2)
        if first in STRUCTURES
        for one in VALUES[first]
        for other in VALUES[second]
    } | {("d_model=15", "positions=sinusoidal"): {"d_model": 15, "positions": PositionKind.sinusoidal}}


PAIRS = every_pair()


def configure(options: dict[str, Any]) -> TransformerConfig:
    # An odd width needs a number of heads that divides it, and positions that exist for it.
    odd: dict[str, Any] = {"num_heads": 3, "positions": PositionKind.learned} if "d_model" in options else {}
    return replace(SMALL, **(odd | options))


def broken_rules(options: dict[str, Any]) -> set[int]:
    """The numbers of the rules against these options, which need not be allowed."""
    config = copy.copy(SMALL)
    for name, value in options.items():
        setattr(config, name, value)
    return {number for number, (broken, _) in enumerate(config.conflicts()) if broken}


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Pairs such as unscaled scores and gates round differently enough to hide a mistake in the tolerance."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_every_option_takes_part() -> None:
    assert set(VALUES) == {field.name for field in fields(TransformerConfig)}
    for name, values in VALUES.items():
        default = getattr(SMALL, name)
        assert default not in values, name
        assert not isinstance(default, Enum) or {default, *values} == set(type(default)), name


def test_every_refusal_is_among_the_pairs() -> None:
    assert set(REFUSED) <= set(PAIRS)
    assert set().union(*(broken_rules(PAIRS[names]) for names in REFUSED)) == set(range(len([*SMALL.conflicts()])))


@pytest.mark.parametrize("names", REFUSED, ids="-".join)
def test_what_excludes_each_other_is_refused_with_a_sentence(names: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"{REFUSED[names]}.*((;|[.]) [Uu]se |omit|set )") as refusal:
        configure(PAIRS[names])
    assert all(name in str(refusal.value) for name in names if not name.startswith("d_"))


def whole(pair: Mapping[str, Any]) -> dict[str, Any]:
    config = configure(dict(pair))
    return {name: getattr(config, name) for name in VALUES}


def is_allowed(options: Mapping[str, Any]) -> bool:
    try:
        replace(SMALL, **options)
    except UsageError:
        return False
    return True


ALLOWED = {names: pair for names, pair in PAIRS.items() if names not in REFUSED}
ROWS = covering(ALLOWED.values(), VALUES, whole, is_allowed)


def test_every_other_pair_of_options_stands_in_a_row() -> None:
    found = set().union(*map(pairs_of, ROWS))
    assert {frozenset(pair.items()) for pair in ALLOWED.values()} <= found


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_row_of_options_works(row: dict[str, Any]) -> None:
    subject = Subject("row", replace(SMALL, **row))
    steps_equal_teacher_forcing(subject)
    assert_every_parameter_learns(subject)
    padding_never_matters(subject)


@pytest.mark.nightly  # a minute, to say which two options are to blame
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("names", ALLOWED, ids="-".join)
def test_every_other_pair_of_options_works_by_itself(names: tuple[str, str]) -> None:
    subject = Subject("-".join(names), configure(PAIRS[names]))
    steps_equal_teacher_forcing(subject)
    assert_every_parameter_learns(subject)
    if set(PAIRS[names]) <= set(STRUCTURES):  # a number decides nothing about padding
        padding_never_matters(subject)
