"""Configurations that were stored, read again."""

from __future__ import annotations

import pytest

import nmt.models  # noqa: F401 - importing a package registers its components
from nmt.config.plain import component_from_plain, flattened, from_plain
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError


def test_a_component_that_is_not_registered_names_the_plugins_of_training() -> None:
    tree = {"user_dir": "plugins/gru.py,more", "model": {"name": "my_gru", "layers": 2}}
    with pytest.raises(
        UsageError, match=r"^x: model 'my_gru' is not registered; the model was trained with"
    ) as refusal:
        from_plain(TrainConfig, tree, origin="x")
    assert "--user-dir plugins/gru.py,more: add it" in str(refusal.value)


def test_without_plugins_in_training_an_unknown_component_is_a_misspelt_one() -> None:
    with pytest.raises(UsageError, match=r"unknown model 'lsm' \(did you mean 'lstm'\?\)"):
        component_from_plain("model", {"name": "lsm"}, origin="x", user_dir=None)


def test_a_nested_tree_is_flattened_to_dotted_keys() -> None:
    tree = {"a": 1, "b": {"c": {"d": [2, {"e": 3}]}, "f": None}, "g": {}}
    assert flattened(tree) == {"a": 1, "b.c.d": [2, {"e": 3}], "b.f": None}
