"""One subject of each kind of model, and which of them can be recorded: found once for all tests of a process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from nmt.engines.graphs import fixed_steps
from nmt.models import models
from nmt.testing.subjects import Subject, kinds

KINDS = kinds()
RECORDED = [kind for kind in KINDS if fixed_steps(kind.built, torch.device("cpu"))]
# Presets with layers or choices that no registered model has by default. The others repeat these in other sizes.
PRESETS_BY_DAY = (
    *("conv_s2s_wmt_en_de", "dynamicconv_tiny", "lightconv_wmt_en_de", "lstm_bahdanau", "lstm_bidirectional"),
    *("lstm_deep_residual", "lstm_luong", "lstm_peeky", "lstm_plain", "memory_network_tiny", "ntm_copy_lstm"),
    *("transformer_aan", "transformer_alibi"),
    *("transformer_deep_shallow", "transformer_iwslt_de_en", "transformer_local", "transformer_relative"),
    *("transformer_rotary", "transformer_ssru", "transformer_universal"),
)
assert {*PRESETS_BY_DAY} <= {kind.name for kind in KINDS}


def some_by_day(subjects: Sequence[Subject]) -> list[Any]:
    """Return parameters of tests: by day every registered model and ``PRESETS_BY_DAY``, at night all."""
    by_day = {*models.names(), *PRESETS_BY_DAY}
    return [
        pytest.param(subject, id=subject.name, marks=[] if subject.name in by_day else pytest.mark.nightly)
        for subject in subjects
    ]
