"""Every registered model, at night every preset and what no preset uses, in small sizes, under every law."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from nmt.testing import conformance
from nmt.testing.conformance import Subject
from tests.kinds import KINDS, some_by_day

# variants/FAMILY.py holds VARIANTS, subjects of its own.
VARIANTS = [
    subject
    for file in sorted((Path(__file__).parent / "variants").glob("*.py"))
    for subject in importlib.import_module(f"tests.conformance.variants.{file.stem}").VARIANTS
]


AT_NIGHT = [pytest.param(variant, id=variant.name, marks=pytest.mark.nightly) for variant in VARIANTS]


@pytest.mark.parametrize("subject", [*some_by_day(KINDS), *AT_NIGHT])
def test_the_model_obeys_every_law(subject: Subject) -> None:
    conformance.check(subject)
