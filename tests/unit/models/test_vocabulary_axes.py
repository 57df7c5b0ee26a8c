"""Which tensors have one entry a piece, as the builders show it."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.memory.config import NeuralTuringMachineConfig, SymbolKind
from nmt.models.recurrent.lstm import LSTMConfig
from nmt.models.transformer.transformer import TransformerConfig
from nmt.models.vocabulary_axes import VocabularyAxis, vocabulary_axes

SEPARATE, JOINT = VocabularySizes(30, 40, shared=False), VocabularySizes(30, 30, shared=True)


def test_tables_stand_under_their_side() -> None:
    assert vocabulary_axes(partial(models.build, TransformerConfig().shrink()), SEPARATE) == {
        "source_input.embedding.table.weight": VocabularyAxis("source", 0),
        "target_input.embedding.table.weight": VocabularyAxis("target", 0),
    }
    axes = vocabulary_axes(partial(models.build, LSTMConfig().shrink()), SEPARATE)
    assert {name: place.side for name, place in axes.items()} == {
        "source_embedding.table.weight": "source",
        "target_embedding.table.weight": "target",
        "output.weight": "target",
        "output.bias": "target",
    }


def test_a_shared_table_stands_there_once() -> None:
    axes = vocabulary_axes(partial(models.build, TransformerConfig().shrink()), JOINT)
    assert axes == {"source_input.embedding.table.weight": VocabularyAxis("source", 0)}


def test_symbols_written_as_bits_have_no_entries() -> None:
    for bits in (None, 3):
        config = NeuralTuringMachineConfig(symbol_bits=bits, symbols=SymbolKind.binary).shrink()
        assert vocabulary_axes(partial(models.build, config), SEPARATE) == {}


@pytest.mark.parametrize("grow", [{"source": 31}, {"target": 41}])
def test_a_tensor_that_depends_on_a_vocabulary_in_another_way_leaves_nothing_to_map(grow: dict[str, int]) -> None:
    def build(sizes: VocabularySizes) -> EncoderDecoder:
        model = models.build(TransformerConfig().shrink(), sizes)
        model.twice = torch.nn.Parameter(torch.ones((sizes.source if "source" in grow else sizes.target) * 2))
        return model

    assert vocabulary_axes(build, SEPARATE) == {}


def test_looking_for_the_axes_draws_no_random_numbers() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    vocabulary_axes(partial(models.build, TransformerConfig().shrink()), SEPARATE)
    assert torch.equal(torch.rand(3), expected)
