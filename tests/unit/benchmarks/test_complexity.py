"""Table 1, counted: operations that wait for each other, and layers until every position has met every other."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "complexity.py"


@pytest.fixture(scope="module")
def complexity() -> ModuleType:
    spec = importlib.util.spec_from_file_location("complexity", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["complexity"] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


LAYERS = {
    "self-attention": lambda n: 1,
    "self-attention, products written out": lambda n: 1,
    "recurrent": lambda n: 1,
    "convolutional": lambda n: n - 1,  # a kernel of 3 reaches one position to each side
    "convolutional, dilated": lambda n: math.ceil(math.log(n, 3) - 1e-9),
    "separable convolutional": lambda n: n - 1,
    "restricted self-attention": lambda n: math.ceil((n - 1) / 16),
}


@pytest.mark.parametrize("length", [2, 27, 50])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_until_all_is_seen_are_those_of_the_formula(complexity: ModuleType, name: str, length: int) -> None:
    (kind,) = [kind for kind in complexity.KINDS if kind.name == name]
    assert complexity.layers_until_all_is_seen(kind, length) == LAYERS[name](length)


def test_every_layer_of_the_table_has_its_formula_here(complexity: ModuleType) -> None:
    assert {kind.name for kind in complexity.KINDS} == LAYERS.keys()


def test_only_a_recurrence_makes_positions_wait_for_each_other(complexity: ModuleType) -> None:
    for kind in complexity.KINDS:
        short, long = (complexity.sequential_operations(kind, length) for length in (100, 200))
        if kind.sequential == "n":
            assert long - short >= 200 - 100
        else:
            assert long == short


def test_written_out_products_hold_the_square_of_the_length(complexity: ModuleType) -> None:
    (fused, written) = complexity.KINDS[:2]
    peaks = {
        kind.name: [complexity.measure(kind, length, 1).memory for length in (512, 1024)] for kind in (fused, written)
    }
    assert peaks[written.name][1] > 3.5 * peaks[written.name][0]
    assert peaks[fused.name][1] < 2.1 * peaks[fused.name][0]
