"""What the plain description of a Transformer's weights has no place for: engines that read it leave it to torch."""

from __future__ import annotations

import pytest

from nmt.models.transformer.config import LightConvConfig, PositionKind, TransformerConfig
from nmt.models.transformer.weights import undescribed

MISSING = {
    "model.positions=alibi": TransformerConfig(positions=PositionKind.alibi),
    "its architecture": LightConvConfig(),
}


@pytest.mark.parametrize("missing", MISSING)
def test_a_variant_is_named_as_missing(missing: str) -> None:
    assert undescribed(MISSING[missing]) == missing


def test_nothing_of_the_papers_model_is_missing() -> None:
    assert undescribed(TransformerConfig()) is None
