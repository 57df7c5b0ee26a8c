"""Options that exclude each other are refused by one rule each, and all at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from nmt.config.checks import (
    choice_named,
    refuse,
    require_at_most,
    require_fraction,
    require_not_negative,
    require_positive,
    require_share,
)
from nmt.config.choices import NumberFormat, Precision
from nmt.errors import UsageError


def test_rules_that_hold_say_nothing() -> None:
    refuse((False, "never"), (0, "never"), ("", "never"), (None, "never"))


def test_all_that_is_wrong_is_said_in_the_order_of_the_rules() -> None:
    with pytest.raises(UsageError, match=r"^\(1\) odd; \(2\) too long$"):
        refuse((3 % 2, "odd"), (False, "never"), ([1], "too long"))


def test_a_single_complaint_has_no_number() -> None:
    with pytest.raises(UsageError, match="^odd$"):
        refuse((True, "odd"))


@pytest.mark.parametrize("given", ["bf16", Precision.bf16])
def test_a_choice_is_known_by_its_name(given: Precision | str) -> None:
    assert choice_named(Precision, "precision", given) is Precision.bf16


def test_an_unknown_choice_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        UsageError, match="^precision='fp8' must be one of usual, auto, fp32, tf32, bf16, fp16, bf16_output$"
    ):
        choice_named(Precision, "precision", "fp8")
    with pytest.raises(UsageError, match="^dtype='int4' must be one of float32, bfloat16, float16, int8$"):
        choice_named(NumberFormat, "dtype", "int4")


@pytest.mark.parametrize("require", [require_positive, require_not_negative])
def test_an_integer_that_no_array_holds_is_refused(require: Callable[..., None]) -> None:
    require("", count=2**63 - 1, rate=1e300)
    with pytest.raises(UsageError, match=f"^search.count={2**63} must be at most {2**63 - 1}$"):
        require("search", count=2**63)


def test_options_that_are_null_are_not_checked() -> None:
    for require in (require_positive, require_not_negative, require_share):
        require("search", topk=None)
    require_at_most("search", 1, topk=None)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("one", [False, True])
def test_a_fraction_lies_between_0_and_1_with_the_ends_that_are_allowed(zero: bool, one: bool) -> None:
    tried = (-0.1, 0.0, 0.5, 1.0, 1.1, math.nan)
    refused = []
    for value in tried:
        try:
            require_fraction("scheduler", "share", value, include_zero=zero, include_one=one, flag="--share")
        except UsageError as error:
            refused.append(str(error))
    bounds = f"{'at least' if zero else 'above'} 0 and {'at most' if one else 'less than'} 1 (--share)"
    expected = [-0.1, *([] if zero else [0.0]), *([] if one else [1.0]), 1.1, math.nan]
    assert refused == [f"scheduler.share={value} must be {bounds}" for value in expected]
