"""The scores of an average and of its parts: those of the model that they stand beside, measured alike."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.averaging import Average, Judge, Row, average_checkpoints, table
from nmt.config.choices import Precision
from nmt.config.commands import AverageConfig
from nmt.config.sections import (
    CheckpointConfig,
    DeviceConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt.data.corpus.folder import Corpus
from nmt.errors import DeviceError, MissingInputError, NMTError, UsageError
from nmt.models.loading import load_model
from nmt.scoring import TextOptions, scorers
from nmt.storage.checkpoints import read_checkpoint, read_info, write_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.loop.batches import read_batch
from nmt.translation import Translator

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
CPU = torch.device("cpu")
BLEU = ValidationConfig(interval=None, interval_updates=4, metrics=["bleu"], samples=0, best_metric="bleu")


def average(run: Path, **options: Any) -> Average:
    given = {"inputs": [str(run)], "output": str(run / "averaged"), "device": "cpu"}
    return average_checkpoints(AverageConfig(**(given | options)))


def scores_of(checkpoint: Path, corpus: Path) -> dict[str, float]:
    """Without any of the code of validation: each sentence by itself, label smoothing of 0.1 by its definition."""
    model = load_model(checkpoint, CPU).module
    split = Corpus.open(corpus).split("valid")
    loss = nll = tokens = 0.0
    for index in range(len(split)):
        batch = read_batch(split, torch.tensor([index]).numpy())
        with torch.no_grad():
            predicted = model.output.logits(model(batch).hidden).double().log_softmax(1)
        right = -predicted.gather(1, batch.targets.long()[:, None]).sum()
        nll += float(right)
        loss += float(0.9 * right - 0.1 * predicted.mean(1).sum())
        tokens += len(batch.targets)
    source, target = split.sources.text(), split.targets.text()
    assert source is not None and target is not None
    translations = Translator.load(checkpoint, "cpu").translate(source, search="greedy")
    bleu = scorers.build(scorers.config_class("bleu")(), TextOptions())(translations, [target]).value
    return {"loss": loss / tokens, "nll": nll / tokens, "ppl": math.exp(nll / tokens), "bleu": bleu}


@pytest.fixture
def run(tiny_run: MakeConfig, tmp_path: Path) -> Path:
    """Three checkpoints with scores, but of the loss alone."""
    train(tiny_run(validation=replace(BLEU, metrics=[], best_metric="loss")))
    return tmp_path / "run"


def test_runs_of_earlier_versions_are_scored_as_well(run: Path) -> None:
    """Their ``training.compile`` was true or false."""
    before = average(run).scores
    for path in checkpoints_in(run):
        stored = read_checkpoint(path)
        config = {**stored.config, "training": {**stored.config["training"], "compile": False, "cuda_graphs": False}}
        write_checkpoint(path, model=stored.model, config=config, info=stored.info, overwrite=True)
    assert average(run, overwrite=True).scores == before and len(before) > 2


def test_the_average_is_scored_as_the_model_that_is_written_and_its_parts_as_they_were(
    tiny_run: MakeConfig, tmp_path: Path, copy_corpus: Path
) -> None:
    config = tiny_run(training=TrainingConfig(max_update=120), validation=replace(BLEU, interval_updates=40))
    config.checkpoint = CheckpointConfig(str(tmp_path / "run"), save_interval=None, save_interval_updates=40)
    train(config)
    run, result = tmp_path / "run", average(tmp_path / "run")
    *parts, mean = result.scores
    stored = [read_info(path) for path in checkpoints_in(run)]
    assert [(row.update, dict(row.scores)) for row in parts] == [(info.update, info.scores) for info in stored]
    assert (mean.name, mean.update) == ("average of 3", None)
    assert mean.scores == pytest.approx(scores_of(result.folder, copy_corpus), rel=1e-5)
    assert mean.scores["bleu"] > 0 and mean.scores != stored[-1].scores
    assert read_info(result.folder).scores == mean.scores


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16, Precision.bf16_output])
@pytest.mark.parametrize("decay", [None, 0.5])
def test_what_training_stored_is_measured_again_to_the_bit(
    tiny_run: MakeConfig, tmp_path: Path, precision: Precision, decay: float | None
) -> None:
    limits, device = TrainingConfig(max_update=8, ema_decay=decay), DeviceConfig("cpu", precision)
    train(tiny_run(training=limits, validation=BLEU, device=device))
    first, last = checkpoints_in(tmp_path / "run")
    judge = Judge(last, [], CPU)
    for path in (first, last):
        stored = read_checkpoint(path)
        assert stored.info.scores.keys() == {"loss", "nll", "ppl", "bleu"}
        assert judge(stored.model, stored.info.update, "it") == judge.of_checkpoint(path) == stored.info.scores


def test_parts_that_were_not_validated_are_measured_now(tiny_run: MakeConfig, tmp_path: Path) -> None:
    save = {"save_interval": None, "save_interval_updates": 4}
    for name, every in (("seldom", 12), ("often", 4)):
        config = tiny_run(validation=ValidationConfig(interval=None, interval_updates=every, samples=0))
        config.checkpoint = CheckpointConfig(str(tmp_path / name), **save)  # type: ignore[arg-type]
        train(config)
    assert not read_info(checkpoints_in(tmp_path / "seldom")[0]).scores
    expected = [read_info(path).scores for path in checkpoints_in(tmp_path / "often")]
    assert [row.scores for row in average(tmp_path / "seldom").scores[:-1]] == expected


def test_with_another_corpus_the_parts_are_measured_on_it_too(
    tiny_run: MakeConfig, tmp_path: Path, make_copy_corpus: Callable[..., Path]
) -> None:
    train(tiny_run(validation=BLEU))
    run, other = tmp_path / "run", make_copy_corpus(train=600, valid=30, test=40)
    paths = checkpoints_in(run)
    *parts, mean = average(run, data=[str(other)]).scores
    assert len(parts) == len(paths) == 3
    for row, path in [*zip(parts, paths), (mean, run / "averaged")]:
        assert row.scores == pytest.approx(scores_of(path, other), rel=1e-5)
        assert row.scores != read_info(path).scores or row is mean


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of averaging: training may warn that other processes slowed it."""
    records = [record for record in caplog.records if record.name == "nmt.average"]
    return [record.getMessage() for record in records if record.levelno == logging.WARNING]


def without_corpus(tiny_run: MakeConfig, tmp_path: Path, copy_corpus: Path) -> None:
    """A run whose corpus has gone since."""
    (tmp_path / "corpus").symlink_to(copy_corpus)
    train(tiny_run(data=[str(tmp_path / "corpus")]))
    (tmp_path / "corpus").unlink()


def test_without_the_corpus_of_the_run_a_line_says_how_to_get_the_scores(
    tiny_run: MakeConfig, tmp_path: Path, copy_corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without_corpus(tiny_run, tmp_path, copy_corpus)
    result = average(tmp_path / "run")
    assert result.scores == [] and read_info(result.folder).scores == {}
    (line,) = warned(caplog)
    assert "skipped the validation of the average" in line and f"{tmp_path / 'corpus'} is not a folder" in line
    assert "--data" in line and "\n" not in line
    named = average(tmp_path / "run", data=[str(copy_corpus)], overwrite=True)
    assert len(named.scores) == len(checkpoints_in(tmp_path / "run")) + 1


def test_a_corpus_that_was_named_must_be_there(run: Path) -> None:
    with pytest.raises(MissingInputError, match="nowhere is not a folder"):
        average(run, data=["nowhere"])
    assert not (run / "averaged").exists()


def test_a_corpus_of_other_vocabularies_is_refused(run: Path, make_copy_corpus: Callable[..., Path]) -> None:
    with pytest.raises(NMTError, match="and the model have different vocabularies"):
        average(run, data=[str(make_copy_corpus(train=2, valid=2))])


def test_no_scores_are_computed_if_none_are_wanted(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = average(run, validate=False)
    assert result.scores == [] and warned(caplog) == [] and read_info(result.folder).scores == {}


def test_a_precision_that_the_device_lacks_is_named(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored = read_checkpoint(checkpoints_in(run)[0])
    config = {**stored.config, "device": {"name": "cuda", "precision": "fp16", "threads": None}}
    write_checkpoint(run / "fp16", model=stored.model, config=config, info=stored.info)
    assert average(run, inputs=[str(run / "fp16")]).scores == []
    assert "the run computes in fp16, which device cpu does not support" in warned(caplog)[1]


def test_an_unknown_device_is_refused_before_anything_is_averaged(run: Path) -> None:
    with pytest.raises(UsageError, match="device.name=tpu"):
        average(run, device="tpu")


def test_a_failing_device_costs_the_scores_and_not_the_average(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def exhausted(*_: object) -> Mapping[str, float]:
        raise DeviceError("out of memory")

    monkeypatch.setattr(Judge, "__call__", exhausted)
    result = average(run)
    assert result.scores == [] and read_checkpoint(result.folder).model
    assert "skipped the validation of the average: out of memory" in warned(caplog)[0]


def test_the_table_is_aligned_and_shows_what_is_missing() -> None:
    rows = [
        Row("checkpoint-0001-00000004", 4, {"loss": 2.5, "ppl": 12345.6, "bleu": 3.14159}),
        Row("checkpoint-0010-00010000", 10000, {"loss": 12.25, "ppl": 7.0}),
        Row("average of 2", None, {"loss": 2.0, "ppl": 6.5, "bleu": 30.0}),
    ]
    assert table(rows) == [
        "checkpoint                update    loss        ppl    bleu",
        "checkpoint-0001-00000004       4  2.5000  1.235e+04  3.1416",
        "checkpoint-0010-00010000   10000   12.25     7.0000       -",
        "average of 2                      2.0000     6.5000   30.00",
    ]
