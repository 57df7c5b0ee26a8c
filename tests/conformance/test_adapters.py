"""Models of every family with low-rank adapters on all of their matrices, under every law."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.layers.low_rank import adapt
from nmt.models import models
from nmt.testing import conformance
from nmt.testing.conformance import Subject
from tests.kinds import KINDS

FAMILIES = ("transformer", "lstm", "conv_s2s", "neural_turing_machine")


def adapted(config: Any, sizes: VocabularySizes) -> EncoderDecoder:
    model = models.build(config, sizes)
    owners: dict[int, list[str]] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        if weight.dim() >= 2 and min(weight.size(0), weight[0].numel()) > 1:
            owners.setdefault(id(weight), []).append(name)
    # a larger scale multiplies rounding: deep_att then differs by 1.2e-4 from itself without padding
    adapt(model, list(owners.values()), rank=2, alpha=1.0, dropout=0.0)
    return model


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(subject, id=str(subject), marks=() if subject.name in FAMILIES else pytest.mark.nightly)
        for subject in KINDS
    ],
)
def test_a_model_with_adapters_obeys_every_law(subject: Subject) -> None:
    conformance.check(dataclasses.replace(subject, builder=adapted))
