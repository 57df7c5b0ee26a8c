"""Options that exclude each other are refused by one rule each, and all at once."""

from __future__ import annotations

import pytest

from nmt.config.checks import refuse
from nmt.errors import UsageError


def test_rules_that_hold_say_nothing() -> None:
    refuse((False, "never"), (0, "never"), ("", "never"), (None, "never"))


def test_all_that_is_wrong_is_said_in_the_order_of_the_rules() -> None:
    with pytest.raises(UsageError, match=r"^\(1\) odd; \(2\) too long$"):
        refuse((3 % 2, "odd"), (False, "never"), ([1], "too long"))


def test_a_single_complaint_has_no_number() -> None:
    with pytest.raises(UsageError, match="^odd$"):
        refuse((True, "odd"))
