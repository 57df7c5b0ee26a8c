"""What is of the other direction, and has the model's joint vocabulary, is refused wherever it is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.averaging import average_checkpoints
from nmt.config.commands import AverageConfig, GenerateConfig, ShortlistConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import DataError, UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.search.config import GreedyConfig
from nmt.training.assemble import train
from nmt.translation import Translator
from nmt_cli.generate import run as generate
from nmt_cli.shortlist import run as make_shortlist
from tests.tiny_models import tiny_pair, write_tiny_corpus, write_tiny_model

MakeConfig = Callable[..., TrainConfig]


def with_languages(corpus: Path, destination: Path, source_lang: str, target_lang: str) -> Path:
    """The text of a corpus with its vocabulary, one side as source and the other as target."""
    for language, side in ((source_lang, "src"), (target_lang, "tgt")):
        for split in ("train", "valid"):
            destination.mkdir(exist_ok=True)
            (destination / f"{split}.{language}").write_bytes((corpus.parent / f"{split}.{side}").read_bytes())
    config = PreprocessConfig(source_lang, target_lang, tokenizer=WordsConfig(), joined_dictionary=True)
    config.trainpref, config.validpref = f"{destination}/train", f"{destination}/valid"
    config.srcdict, config.destdir = str(corpus), f"{destination}/corpus"
    preprocess(config)
    return destination / "corpus"


@pytest.fixture
def back(copy_corpus: Path, tmp_path: Path) -> Path:
    return with_languages(copy_corpus, tmp_path / "back", "tgt", "src")


@pytest.fixture
def run(tiny_run: MakeConfig, tmp_path: Path) -> Path:
    """A model from src to tgt."""
    train(tiny_run(training=TrainingConfig(max_update=4)))
    return tmp_path / "run"


def test_training_on_both_directions_at_once_is_refused(tiny_run: MakeConfig, copy_corpus: Path, back: Path) -> None:
    with pytest.raises(DataError, match="goes from src to tgt, .*back/corpus in the opposite direction"):
        train(tiny_run(data=[str(copy_corpus), str(back)]))


def test_a_corpus_of_the_other_direction_is_not_translated(
    run: Path, back: Path, copy_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def translate(folder: Path) -> str:
        generate(GenerateConfig(path=str(run), data=[str(folder)], gen_subset="valid", search=GreedyConfig()))
        return capsys.readouterr().out

    with pytest.raises(
        DataError, match="back/corpus goes from tgt to src, but .*run translates in the opposite direction"
    ):
        translate(back)
    named_otherwise = with_languages(copy_corpus, tmp_path / "other", "src_1", "tgt_1")
    assert translate(named_otherwise) == translate(copy_corpus) != ""


def test_a_shortlist_of_the_other_direction_is_refused(tmp_path: Path) -> None:
    tiny_pair().save(tmp_path / "tokenizer")
    corpus, short = write_tiny_corpus(tmp_path, tokenizer=tmp_path / "tokenizer"), str(tmp_path / "short")
    make_shortlist(ShortlistConfig(data=[str(corpus)], output=short))
    model = write_tiny_model(tmp_path / "model", updates=0)
    back = write_tiny_model(tmp_path / "back-model", updates=0, reverse=True)
    with pytest.raises(
        UsageError, match="short was made for translating from de to en, but .* in the opposite direction"
    ):
        Translator.load(back, device="cpu", shortlist=short)
    Translator.load(model, device="cpu", shortlist=short)


def test_an_ensemble_of_both_directions_is_refused(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", updates=0)
    back = write_tiny_model(tmp_path / "back-model", updates=0, reverse=True)
    with pytest.raises(UsageError, match="model translates from de to en, but .*back-model the other way"):
        Translator.load(f"{model}:{back}", device="cpu")


def test_an_average_is_not_scored_on_the_other_direction(run: Path, back: Path) -> None:
    config = AverageConfig(inputs=[str(run)], output=str(run / "averaged"), device="cpu", data=[str(back)])
    with pytest.raises(
        DataError, match="back/corpus is a corpus from tgt to src, the reverse of the model's direction"
    ):
        average_checkpoints(config)
