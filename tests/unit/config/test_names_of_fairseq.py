"""What fairseq calls otherwise is answered with our name."""

from __future__ import annotations

import re

import pytest

import nmt.criterions
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.composing.presets import NAMES_OF_FAIRSEQ, component_names, preset_names, unknown_preset
from nmt.config.option import flags_of
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig

NAMES = [(group, name) for group, names in NAMES_OF_FAIRSEQ.items() for name in names]


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_the_answer_names_a_choice_and_flags_that_exist(group: str, name: str) -> None:
    message = str(unknown_preset(group, name))
    assert message.startswith(f"fairseq's {group} '{name}' does not exist here: ")
    advice = message.partition(": ")[2]
    choices = {choice for role in ("model", "criterion", "scheduler") for choice in component_names(role)}
    assert choices & set(re.findall(r"\w+", advice))
    flags = {flag.name for flag in (*flags_of(TrainConfig), *flags_of(PreprocessConfig))}
    assert set(re.findall(r"--[\w-]+", advice)) - {"--force-anneal"} <= flags


@pytest.mark.parametrize(("group", "name"), NAMES)
def test_no_name_of_ours_is_taken_for_fairseqs(group: str, name: str) -> None:
    assert name not in [*preset_names(group), *component_names(group)]
