"""Hops count: three follow three links from symbol to symbol, one does not. The task and the options are the example's."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config.sections import PreprocessConfig
from nmt.data.preprocess import preprocess
from nmt.data.tokenizers.words import WordsConfig
from nmt.models.memory_network import Places
from nmt.testing.subjects import load_preset
from tests.learning.learn import Recipe, learn

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]

GENERATOR = Path(__file__).resolve().parents[2] / "examples" / "memory_network" / "generate.py"
RECIPE = Recipe({"slot_size": 64, "hidden_size": 64, "init_std": 0.3}, rate=0.003, updates=15000, max_tokens=1024)


@pytest.fixture(scope="module")
def look_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("look-up")
    subprocess.run([sys.executable, GENERATOR, folder, "--links", "3", "--seed", "1"], check=True)
    prefixes: dict[str, Any] = {f"{split}pref": str(folder / split) for split in ("train", "valid")}
    preprocess(PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), destdir=str(folder / "corpus"), **prefixes))
    return folder / "corpus"


def exact_match(look_up: Path, hops: int, run: Path) -> float:
    model = replace(load_preset("memory_network_tiny"), num_hops=hops, places=Places.end, **RECIPE.sizes)
    return learn(model, RECIPE, look_up, run, seed=1).exact


def test_three_hops_follow_three_links(look_up: Path, tmp_path: Path) -> None:
    assert exact_match(look_up, 3, tmp_path) > 90.0


def test_one_hop_does_not(look_up: Path, tmp_path: Path) -> None:
    assert exact_match(look_up, 1, tmp_path) < 50.0
