"""A model from disk knows which vocabularies it was trained with."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmt.averaging import average_checkpoints
from nmt.config.commands import AverageConfig
from nmt.config.sections import TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.errors import DataError
from nmt.models.loading import load_model
from nmt.training.assemble import train

CPU = torch.device("cpu")


def put_in_another_order(tokenizer: Path) -> None:
    """A tokenizer as large as the one in ``tokenizer``, with its words behind other numbers."""
    before = LanguagePair.load(tokenizer)
    words = [*reversed(before.source.vocabulary.pieces[4:])]
    other = WordTokenizer(WordsConfig(), words)
    assert len(other.vocabulary) == len(before.source.vocabulary)
    shutil.rmtree(tokenizer)
    LanguagePair("src", "tgt", other, other, shared=True).save(tokenizer)


def test_a_model_beside_a_tokenizer_of_another_run_is_refused(
    tiny_run: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    train(tiny_run())
    run, refusal = tmp_path / "run", r"and .*tokenizer have different vocabularies; restore"
    load_model(run, CPU)
    put_in_another_order(run / "tokenizer")
    with pytest.raises(DataError, match=refusal):
        load_model(run, CPU)
    mean = average_checkpoints(AverageConfig(inputs=[str(run)], output=str(tmp_path / "mean"), validate=False)).folder
    with pytest.raises(DataError, match=refusal):
        load_model(mean, CPU)
