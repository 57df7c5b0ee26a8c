"""Distillation by sentences, as docs/how-to/distill.md has it: translate, preprocess with the teacher's pieces, train."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config.commands import GenerateConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import BatchingConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.models.recurrent.lstm import LSTMConfig
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import ConstantConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.search.config import BeamConfig
from nmt.training.assemble import train
from nmt.translation import Translator
from nmt_cli.generate import run
from tests.tiny_models import in_english, some_lines, write_tiny_model


@pytest.fixture
def teacher(tmp_path: Path) -> Path:
    """The run folder of a model that translates word for word."""
    folder = tmp_path / "runs" / "big"
    checkpoint = write_tiny_model(folder / "checkpoint-0001-00000300")
    shutil.copytree(checkpoint / "tokenizer", folder / "tokenizer")
    return folder


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@pytest.mark.nightly
def test_a_student_comes_to_say_what_its_teacher_said(
    teacher: Path, tmp_path: Path, tiny_run: Callable[..., TrainConfig]
) -> None:
    sources, valid = some_lines(100, longest=3), some_lines(10, seed=2, longest=3)
    write(tmp_path / "distilled" / "train.de", sources)
    write(tmp_path / "text" / "valid.de", valid)
    write(tmp_path / "text" / "valid.en", [in_english(line) for line in valid])
    source, target = (tmp_path / "distilled" / f"train.{language}" for language in ("de", "en"))
    run(GenerateConfig(path=str(teacher), input=str(source), output=str(target), search=BeamConfig()))
    assert len(target.read_text(encoding="utf-8").splitlines()) == len(sources)

    options = {"trainpref": str(source.with_suffix("")), "validpref": str(tmp_path / "text" / "valid")}
    options |= {"srcdict": str(teacher), "tgtdict": str(teacher), "destdir": str(tmp_path / "corpus")}
    preprocess(PreprocessConfig("de", "en", tokenizer=WordsConfig(), **options))  # type: ignore[arg-type]
    assert Corpus.open(tmp_path / "corpus").pair.digest() == Translator.load(teacher).pair.digest()

    config = tiny_run(
        data=[str(tmp_path / "corpus")],
        model=LSTMConfig(embedding_size=32, hidden_size=32, dropout=0.0),
        optimizer=AdamConfig(lr=0.01),
        scheduler=ConstantConfig(),
        batching=BatchingConfig(max_tokens=256),
        training=TrainingConfig(max_update=200),
        validation=ValidationConfig(interval=None, samples=0),
    )
    train(config)
    student = Translator.load(config.checkpoint.save_dir)
    pairs = list(zip(student.translate(sources[:40]), target.read_text(encoding="utf-8").splitlines()))
    assert sum(found == taught for found, taught in pairs) >= 36
