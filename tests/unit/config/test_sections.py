"""Values that no section accepts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nmt.config.sections import BatchingConfig, FilterConfig, TrainingConfig
from nmt.errors import UsageError


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1])
@pytest.mark.parametrize(
    ("config", "name"),
    [
        (FilterConfig, "max_ratio"),
        (TrainingConfig, "clip_norm"),
        (TrainingConfig, "clip_value"),
        (TrainingConfig, "stop_time_hours"),
        (BatchingConfig, "max_tokens"),
    ],
)
def test_a_negative_or_not_finite_number_is_refused_by_name(config: Any, name: str, value: float) -> None:
    with pytest.raises(UsageError, match=rf"\.{name}={value} must be a finite number"):
        config(**{name: value})


def test_a_norm_of_zero_is_accepted() -> None:
    assert TrainingConfig(clip_norm=0).clip_norm == 0
