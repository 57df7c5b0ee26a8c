"""Fine-tuning under another vocabulary: pieces that both models know keep their parameters, the rest start fresh."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.vocabulary import SPECIALS, Vocabulary
from nmt.errors import DataError, UsageError
from nmt.models.memory.config import NeuralTuringMachineConfig, SymbolKind
from nmt.models.recurrent.lstm import LSTMConfig
from nmt.models.transformer.transformer import TransformerConfig
from nmt.optim.config import SgdConfig
from nmt.optim.schedules import ConstantConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.setup.parts import common_pieces

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
Configured = Callable[..., TrainConfig]


def corpus(folder: Path, source: str, target: str, *, joined: bool) -> Path:
    """A corpus of one-letter words in which a letter is the more frequent, the earlier it stands."""
    folder.mkdir()
    for language, letters in (("src", source), ("tgt", target)):
        text = "".join(f"{' '.join(letters[: size % len(letters) + 1])}\n" for size in range(40))
        (folder / f"train.{language}").write_text(text, encoding="utf-8")
    options: dict[str, Any] = {"trainpref": f"{folder}/train", "destdir": f"{folder}/corpus"}
    preprocess(PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), joined_dictionary=joined, **options))
    return folder / "corpus"


TRANSFORMER = TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2)


@pytest.fixture
def configured(tiny_run: MakeConfig, tmp_path: Path) -> Configured:
    """One update at a rate of nearly nothing, on a corpus, into a folder."""

    def make(data: Path, name: str, start: str | None = None, **parts: Any) -> TrainConfig:
        config = tiny_run(
            data=[str(data)],
            optimizer=SgdConfig(lr=1e-12),
            scheduler=ConstantConfig(),
            training=TrainingConfig(max_update=1),
            validation=ValidationConfig(interval=None, samples=0),
            **parts,
        )
        config.checkpoint = replace(config.checkpoint, save_dir=str(tmp_path / name))
        if start is not None:
            config.checkpoint.finetune_from_model = str(tmp_path / start)
            config.checkpoint.finetune_map_vocabulary = True
        return config

    return make


def state(config: TrainConfig) -> dict[str, Tensor]:
    return read_checkpoint(checkpoints_in(Path(config.checkpoint.save_dir))[-1]).model


def assert_equal(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=0.0, atol=1e-6)


def tables(side: str, model: Any, joined: bool) -> list[str]:
    """Names of what belongs to the pieces of a side. A Transformer with a joint vocabulary has one table."""
    if isinstance(model, TransformerConfig):
        return [] if joined and side == "target" else [f"{side}_input.embedding.table.weight"]
    return [f"{side}_embedding.table.weight", *["output.weight", "output.bias"] * (side == "target")]


@pytest.mark.parametrize(
    ("model", "joined"),
    [
        (TRANSFORMER, True),
        (TRANSFORMER, False),
        (LSTMConfig().shrink(), True),
        (LSTMConfig().shrink(), False),
    ],
    ids=["transformer-joint", "transformer-separate", "lstm-joint", "lstm-separate"],
)
def test_pieces_of_both_keep_their_parameters_and_the_rest_are_fresh(
    configured: Configured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    model: Any,
    joined: bool,
) -> None:
    old = corpus(tmp_path / "old", "abcdef", "abcdwxyz", joined=joined)
    new = corpus(tmp_path / "new", "hgfedc", "zyxbaq", joined=joined)
    first, fresh = (configured(data, name, model=model) for data, name in ((old, "first"), (new, "fresh")))
    first.seed = 2
    tuned = configured(new, "tuned", start="first", model=model)
    with caplog.at_level(logging.INFO, "nmt.training"):
        for config in (first, fresh, tuned):
            train(config)
    before, untuned, after = state(first), state(fresh), state(tuned)
    pairs = {name: Corpus.open(data).pair for name, data in (("old", old), ("new", new))}
    mapped = set()
    for side in ("source", "target"):
        theirs, ours = (getattr(pairs[name], side).vocabulary for name in ("old", "new"))
        both = [piece for piece in ours.pieces if piece in theirs.pieces]
        assert 0 < len(both) < len(ours) and [theirs.pieces.index(piece) for piece in both] != list(range(len(both)))
        assert f"{len(both) - 4} of the {len(ours) - 4} {side} tokens are in the vocabulary of" in caplog.text
        for name in tables(side, model, joined):
            mapped.add(name)
            for number, piece in enumerate(ours.pieces):
                known = piece in theirs.pieces
                assert_equal(
                    after[name][number], before[name][theirs.pieces.index(piece)] if known else untuned[name][number]
                )
    for name in after.keys() - mapped:
        assert_equal(after[name], before[name])


def test_a_piece_that_spells_a_special_is_not_the_special() -> None:
    old, new = Vocabulary(["</s>", "b", "a"]), Vocabulary(["a", "<unk>", "</s>", "c"])
    from_old, to_new = common_pieces(old, new)
    assert list(zip(from_old.tolist(), to_new.tolist())) == [(0, 0), (1, 1), (2, 2), (3, 3), (6, 4), (4, 6)]


def test_vocabularies_without_a_common_piece_share_the_specials() -> None:
    old, new = common_pieces(Vocabulary(["a"]), Vocabulary(["b"]))
    assert old.tolist() == new.tolist() == list(range(len(SPECIALS)))


def test_without_the_option_other_vocabularies_are_refused_and_the_option_named(
    configured: Configured, tmp_path: Path, copy_corpus: Path
) -> None:
    train(configured(copy_corpus, "first"))
    config = configured(corpus(tmp_path / "new", "xyz", "xyz", joined=True), "tuned", start="first")
    config.checkpoint.finetune_map_vocabulary = False
    with pytest.raises(DataError, match=r"first and the corpus have different vocabularies.*--finetune-map-vocabulary"):
        train(config)


def test_with_equal_vocabularies_the_option_changes_nothing(configured: Configured, copy_corpus: Path) -> None:
    first = configured(copy_corpus, "first")
    first.seed = 2
    tuned = configured(copy_corpus, "tuned", start="first")
    train(first)
    train(tuned)
    for name, tensor in state(first).items():
        assert_equal(state(tuned)[name], tensor)


def test_another_architecture_stays_refused(configured: Configured, tmp_path: Path, copy_corpus: Path) -> None:
    train(configured(copy_corpus, "first"))
    data = corpus(tmp_path / "new", "xyz", "xyz", joined=True)
    with pytest.raises(
        UsageError, match=r"first holds another architecture: .*: \(24,\) in the checkpoint, \(28,\) in"
    ):
        train(configured(data, "tuned", start="first", model=replace(TRANSFORMER, d_ff=28)))


def test_two_tables_do_not_become_a_shared_one(configured: Configured, tmp_path: Path) -> None:
    train(configured(corpus(tmp_path / "old", "abc", "abc", joined=False), "first"))
    data = corpus(tmp_path / "new", "cbax", "cbax", joined=True)
    with pytest.raises(UsageError, match=r"another architecture: target_input.embedding.*missing in the model"):
        train(configured(data, "tuned", start="first"))


def test_a_model_whose_parameters_belong_to_no_piece_is_refused(
    configured: Configured, tmp_path: Path, copy_corpus: Path
) -> None:
    model = NeuralTuringMachineConfig(symbols=SymbolKind.binary).shrink()
    train(configured(copy_corpus, "first", model=model))
    data = corpus(tmp_path / "new", "abcdefxy", "abcdefxy", joined=True)
    with pytest.raises(UsageError, match="cannot be mapped: .*; omit --finetune-map-vocabulary"):
        train(configured(data, "tuned", start="first", model=model))
