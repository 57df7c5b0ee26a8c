"""The recipes of examples/parsing have the sizes that their papers state."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from nmt.interface import VocabularySizes
from nmt.models import models

README = (Path(__file__).resolve().parents[3] / "examples" / "parsing" / "README.md").read_text(encoding="utf-8")
SYMBOLS = 60  # of the target vocabulary


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (
            "parsing_wsj",
            {
                "model.encoder_layers": 4,
                "model.decoder_layers": 4,
                "model.d_model": 1024,
                "model.d_ff": 2048,
                "model.num_heads": 8,
                "scheduler.warmup_updates": 16000,
                "search.beam_size": 21,
                "search.lenpen": 0.3,
                "search.max_len_a": 1.0,
                "search.max_len_b": 300,
            },
        ),
        (
            "parsing_semi_supervised",
            {
                "model.encoder_layers": 4,
                "model.d_model": 1024,
                "search.beam_size": 21,
                "sampling.weights": [1, 9],
                "scheduler.warmup_updates": 4000,
            },
        ),
        (
            "parsing_vinyals",
            {
                "model.embedding_size": 512,
                "model.hidden_size": 256,
                "model.num_layers": 3,
                "model.reverse_source": True,
                "search.beam_size": 10,
            },
        ),
    ],
)
def test_a_recipe_has_the_sizes_of_its_paper_and_the_parameters_that_the_example_counts(recipe, expected, composed):
    config = composed("train", f"recipe={recipe}", "data=[treebank,parsed]")
    for key, value in expected.items():
        section, name = key.split(".")
        assert getattr(getattr(config, section), name) == value, key
    ((words, parameters),) = re.findall(rf"^\| `{recipe}` \| ([\d,]+) \| ([\d,]+) \|", README, flags=re.MULTILINE)
    with torch.device("meta"):
        model = models.build(config.model, VocabularySizes(int(words.replace(",", "")), SYMBOLS, shared=False))
    assert f"{sum(parameter.numel() for parameter in model.parameters()):,}" == parameters
