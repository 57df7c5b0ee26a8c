"""Names that documents have told people to import stay where they were, wherever their code has moved."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from nmt.old_names import MOVED

NAMES = (
    ("nmt.config.averaging", "AverageConfig"),
    ("nmt.config.generation", "GenerateConfig"),
    ("nmt.criterions.label_smoothed_cross_entropy", "LabelSmoothedCrossEntropyConfig"),
    ("nmt.criterions.sequences", "SequenceConfig"),
    ("nmt.models.output_layers", "LinearOutput"),
    ("nmt.models.symbol_bits", "check_symbol_bits"),
    ("nmt.models.transformer.transformer_config", "TransformerConfig"),
    ("nmt.models.transformer_config", "TransformerConfig"),
    ("nmt.modules.attention", "Attend"),
    ("nmt.modules.attention", "ScaledDotProduct"),
    ("nmt.modules.padding", "real_rows"),
    ("nmt.modules.recurrent", "LSTMLayer"),
    ("nmt.modules.stack", "Stack"),
    ("nmt.optim.adam", "AdamConfig"),
    ("nmt.optim.by_group", "GroupOptimizer"),
    ("nmt.optim.checks", "check_shares"),
    ("nmt.optim.schedules.inverse_sqrt", "InverseSqrtConfig"),
    ("nmt.plotting", "plot_learning_curve"),
    ("nmt.scoring.lines", "check_lines"),
    ("nmt.training.assemble", "train"),
    ("nmt.training.html_report", "write"),
)


@pytest.mark.parametrize(("module", "name"), NAMES, ids=lambda part: part)
def test_a_name_of_the_documents_can_be_imported(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_an_old_name_is_the_same_module_as_the_new_one() -> None:
    """In a fresh process, in which nothing else has imported either."""
    code = "import nmt.modules.stack as old, nmt.layers.stack as new; assert old is new and old.Stack is new.Stack"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_what_has_moved_is_there(old: str, new: str) -> None:
    assert importlib.import_module(old) is importlib.import_module(new)
