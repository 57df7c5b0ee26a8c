"""The Translator searches as its model was validated, as far as the caller does not say otherwise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nmt import Translator
from nmt.config.plain import to_plain
from nmt.search.config import BeamConfig, DiverseBeamConfig, GreedyConfig, StopRule
from nmt.translation import translation_options
from tests.tiny_models import write_tiny_model

pytestmark = pytest.mark.slow  # whole runs

VALIDATED = BeamConfig(beam_size=3, lenpen=0.9)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, VALIDATED),
        ({"nbest": 2}, VALIDATED),
        ({"beam": 4}, dataclasses.replace(VALIDATED, beam_size=4)),
        ({"lenpen": 0.0, "stop": "all"}, dataclasses.replace(VALIDATED, lenpen=0.0, stop=StopRule.all)),
        ({"search": "beam"}, VALIDATED),
        ({"search": None}, VALIDATED),
        ({"search": BeamConfig(beam_size=6), "lenpen": 2.0}, BeamConfig(beam_size=6, lenpen=2.0)),
        ({"search": "greedy"}, GreedyConfig()),
        ({"search": "diverse_beam", "beam_size": 10}, DiverseBeamConfig(beam_size=10)),
    ],
)
def test_options_override_one_by_one_what_a_model_was_validated_with(options: dict[str, Any], expected: object) -> None:
    validated = {"config.yaml": {"search": to_plain(VALIDATED)}}
    assert translation_options(options, validated).search == expected


def test_an_option_of_the_usual_search_drops_a_stored_one_that_does_not_have_it() -> None:
    validated = {"config.yaml": {"search": to_plain(GreedyConfig(max_len_b=3))}}
    assert translation_options({"beam": 4}, validated).search == BeamConfig(beam_size=4)
    assert translation_options({"min_len": 2}, validated).search == GreedyConfig(max_len_b=3, min_len=2)


def test_a_loaded_model_translates_as_it_was_validated(tmp_path: Path) -> None:
    one_word = BeamConfig(max_len_a=0.0, max_len_b=1)
    translator = Translator.load(write_tiny_model(tmp_path / "model", search=one_word), "cpu")
    assert translator.translate(["ein mann"]) == ["a"]
    assert translator.translate(["ein mann"], max_len_b=5) == ["a man"]
    assert translator.translate(["ein mann"], search="greedy") == ["a man"]
