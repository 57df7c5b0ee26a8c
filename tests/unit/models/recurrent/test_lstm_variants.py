"""Every pair of values of the recurrent model's options: it works, or it is refused with a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from enum import Enum
from itertools import combinations
from typing import Any

import pytest
import torch

from nmt.errors import UsageError
from nmt.models.recurrent.config import (
    AttentionKind,
    BridgeKind,
    CellKind,
    ContextPath,
    LSTMConfig,
    Merge,
    ReadoutKind,
)
from nmt.testing.conformance import Subject
from nmt.testing.model_laws import padding_never_matters, steps_equal_teacher_forcing
from tests.unit.models.covering import covering, pairs_of
from tests.unit.models.every_parameter import assert_every_parameter_learns

# One from which every option can be changed by itself.
BASE = replace(
    LSTMConfig().shrink(),
    embedding_size=16,
    bidirectional=True,
    bridge=BridgeKind.dense,
    attention=AttentionKind.additive,
    readout=ReadoutKind.tanh,
)

# Values beside those of the base.
VALUES: dict[str, tuple[Any, ...]] = {
    "cell": (CellKind.gru,),
    "embedding_size": (10,),
    "hidden_size": (20,),
    "encoder_size": (12,),
    "num_layers": (3,),
    "residual_from": (1, 2),
    "bidirectional": (False,),
    "merge": (Merge.sum, Merge.mean),
    "reverse_source": (True,),
    "bridge": (BridgeKind.copy, BridgeKind.backward, BridgeKind.zero),
    "attention": (AttentionKind.dot, AttentionKind.general, AttentionKind.none),
    "attention_window": (2,),
    "context": (ContextPath.input, ContextPath.both, ContextPath.feeding),
    "peeky": (True,),
    "readout": (ReadoutKind.plain, ReadoutKind.maxout),
    "readout_size": (10,),
    "readout_embedding": (True,),
    "share_all_embeddings": (True,),
    "share_decoder_embeddings": (True,),
}

# What is refused, and the beginning of the reason.
REFUSED = {
    ("embedding_size=10", "residual_from=1"): "residual_from=1 adds embeddings of width 10 to states of width 16",
    (
        "embedding_size=10",
        "share_all_embeddings=True",
    ): "shared embeddings of width 10 cannot read a readout of width 16",
    ("embedding_size=10", "share_decoder_embeddings=True"): (
        "shared embeddings of width 10 cannot read a readout of width 16"
    ),
    ("hidden_size=20", "residual_from=1"): "residual_from=1 adds embeddings of width 16 to states of width 20",
    ("hidden_size=20", "share_all_embeddings=True"): "shared embeddings of width 16 cannot read a readout of width 20",
    (
        "hidden_size=20",
        "share_decoder_embeddings=True",
    ): "shared embeddings of width 16 cannot read a readout of width 20",
    ("encoder_size=12", "residual_from=1"): "residual_from=1 adds embeddings of width 16 to states of width 12",
    ("encoder_size=12", "bridge=copy"): "bridge=copy cannot start a decoder of width 16",
    ("encoder_size=12", "attention=dot"): "attention=dot compares states of width 12",
    ("residual_from=1", "context=input"): "residual_from=1 cannot add",
    ("residual_from=1", "context=both"): "residual_from=1 cannot add",
    ("residual_from=1", "context=feeding"): "residual_from=1 cannot add",
    ("residual_from=1", "peeky=True"): "residual_from=1 cannot add",
    ("bidirectional=False", "bridge=backward"): "bridge=backward needs the backward direction",
    ("merge=sum", "bridge=backward"): "bridge=backward needs the backward direction",
    ("merge=mean", "bridge=backward"): "bridge=backward needs the backward direction",
    ("bridge=backward", "attention=none"): "bridge=backward without attention",
    ("bridge=zero", "attention=none"): "bridge=zero without attention",
    ("attention=none", "attention_window=2"): "attention_window=2 needs attention",
    ("attention=none", "context=input"): "context=input needs attention",
    ("attention=none", "context=both"): "context=both needs attention",
    ("attention=none", "context=feeding"): "context=feeding needs attention",
    ("readout=plain", "share_all_embeddings=True"): "shared embeddings of width 16 cannot read a readout of width 32",
    (
        "readout=plain",
        "share_decoder_embeddings=True",
    ): "shared embeddings of width 16 cannot read a readout of width 32",
    ("readout_size=10", "share_all_embeddings=True"): "shared embeddings of width 16 cannot read a readout of width 10",
    (
        "readout_size=10",
        "share_decoder_embeddings=True",
    ): "shared embeddings of width 16 cannot read a readout of width 10",
}


def spelt(name: str, value: Any) -> str:
    return f"{name}={getattr(value, 'value', value)}"


PAIRS = {
    (spelt(first, one), spelt(second, other)): {first: one, second: other}
    for first, second in combinations(VALUES, 2)
    for one in VALUES[first]
    for other in VALUES[second]
}


@pytest.fixture
def double_precision() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_every_option_takes_part() -> None:
    assert set(VALUES) | {"init_range", "dropout"} == {field.name for field in fields(LSTMConfig)}
    assert set(REFUSED) <= set(PAIRS)
    for name, values in VALUES.items():
        default = getattr(BASE, name)
        assert not isinstance(default, Enum) or {default, *values} == set(type(default)), name


@pytest.mark.parametrize("names", REFUSED, ids="-".join)
def test_what_excludes_each_other_is_refused_with_a_sentence(names: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=f"^{REFUSED[names]}.*(; use |; set |; make |; choose |, or )"):
        Subject("-".join(names), replace(BASE, **PAIRS[names])).model()


def whole(pair: Mapping[str, Any]) -> dict[str, Any]:
    config = replace(BASE, **pair)
    return {name: getattr(config, name) for name in VALUES}


def is_allowed(options: Mapping[str, Any]) -> bool:
    try:
        replace(BASE, **options)
    except UsageError:
        return False
    return EXCLUDED.isdisjoint(pairs_of(options))  # some refusals wait for the model


EXCLUDED = {frozenset(PAIRS[names].items()) for names in REFUSED}
ALLOWED = {names: pair for names, pair in PAIRS.items() if names not in REFUSED}
ROWS = covering(ALLOWED.values(), VALUES, whole, is_allowed)


def test_every_other_pair_of_options_stands_in_a_row() -> None:
    found = set().union(*map(pairs_of, ROWS))
    assert {frozenset(pair.items()) for pair in ALLOWED.values()} <= found


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_every_row_of_options_works(row: dict[str, Any]) -> None:
    subject = Subject("row", replace(BASE, **row))
    steps_equal_teacher_forcing(subject)
    padding_never_matters(subject)
    assert_every_parameter_learns(subject)


@pytest.mark.nightly  # half a minute, to say which two options are to blame
@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("names", ALLOWED, ids="-".join)
def test_every_other_pair_of_options_works_by_itself(names: tuple[str, str]) -> None:
    subject = Subject("-".join(names), replace(BASE, **PAIRS[names]))
    steps_equal_teacher_forcing(subject)
    padding_never_matters(subject)
    assert_every_parameter_learns(subject)
