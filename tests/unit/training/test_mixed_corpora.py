"""Whole runs on several corpora: what each update sees, and that a run that was stopped sees the same."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sampling import CorpusSamplingConfig
from nmt.config.sections import BatchingConfig, CheckpointConfig, TrainConfig, TrainingConfig
from nmt.config.variation import VariationConfig
from nmt.data.batching.variation import PlannedBatch
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.errors import UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.checkpoints import StoredCheckpoint, read_checkpoint
from nmt.storage.run_folder import pointed
from nmt.training.assemble import train
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup.datasets import open_datasets

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
STAGES = CorpusSamplingConfig(weights=[0, 1], stages=["update 9: 3 1", "epoch 4: temperature 5"])


@pytest.fixture
def mixed(tiny_run: MakeConfig, tmp_path: Path, copy_corpus: Path) -> MakeConfig:
    """600 pairs, and the same 600 again; in batches of 600 tokens an epoch has about 8 updates."""

    def make(
        folder: str = "run", max_update: int = 30, sampling: CorpusSamplingConfig = STAGES, **parts: Any
    ) -> TrainConfig:
        config = tiny_run(
            data=[str(copy_corpus), str(copy_corpus)],
            sampling=sampling,
            training=TrainingConfig(max_update=max_update),
            batching=BatchingConfig(max_tokens=600),
            **parts,
        )
        config.checkpoint.save_dir = str(tmp_path / folder)
        return config

    return make


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The sentences of each batch that was trained on."""
    batches: list[list[int]] = []
    batch = TrainingBatches.batch

    def noted(self: TrainingBatches, sentences: PlannedBatch) -> Any:
        batches.append(sentences.numbers.tolist())
        return batch(self, sentences)

    monkeypatch.setattr(TrainingBatches, "batch", noted)
    return batches


def last_of(config: TrainConfig) -> StoredCheckpoint:
    path = pointed(Path(config.checkpoint.save_dir), "last")
    assert path is not None
    return read_checkpoint(path, training=True)


def parameters(config: TrainConfig) -> dict[str, list[float]]:
    train(config)
    return {name: tensor.tolist() for name, tensor in last_of(config).model.items()}


def test_a_run_in_stages_sees_the_corpora_in_their_shares(
    mixed: MakeConfig, seen: list[list[int]], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        train(mixed())
    assert all(number >= 600 for batch in seen[:8] for number in batch)
    later = [number < 600 for batch in seen[8:] for number in batch]
    assert 0.6 < sum(later) / len(later) < 0.9
    assert "stage 1 of training, from update 1 on: weights 0 1;" in caplog.text
    assert "300 pairs an epoch (25.0 %, 0.50 times its 600)" in caplog.text
    assert "stage 2 of training begins with epoch 3 (weights 3 1)" in caplog.text
    assert "stage 3 of training begins with epoch 4 (temperature 5)" in caplog.text
    start = json.loads((tmp_path / "run" / "log.jsonl").read_text().splitlines()[0])
    assert [stage["from"] for stage in start["data"]["stages"]] == ["update 1", "update 9", "epoch 4"]
    assert [corpus["in_epoch"] for corpus in start["data"]["stages"][1]["corpora"]] == [900, 300]


@pytest.mark.slow
def test_a_run_that_is_stopped_in_any_stage_goes_on_as_if_it_had_not_been(
    mixed: MakeConfig, seen: list[list[int]]
) -> None:
    whole = parameters(mixed("whole"))
    at_once = seen.copy()
    seen.clear()
    for stop in (5, 8, 9, 26):
        train(mixed("stopped", stop))
    assert parameters(mixed("stopped")) == whole
    assert seen == at_once


def test_other_stages_go_on_only_if_the_epoch_may_begin_again(mixed: MakeConfig, seen: list[list[int]]) -> None:
    train(mixed(max_update=10))
    other = CorpusSamplingConfig(weights=[0, 1], stages=["update 9: 1 0"])
    with pytest.raises(UsageError, match=r"sampling.stages: .* resume with --reset-dataloader"):
        train(mixed(sampling=other))
    seen.clear()
    config = mixed(max_update=12, sampling=other)
    config.checkpoint.reset_dataloader = True
    train(config)
    assert len(seen) == 2 and all(number < 600 for batch in seen for number in batch)


def test_without_a_mixture_the_log_and_the_identity_of_a_run_are_as_they_were(
    mixed: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = mixed(max_update=4, sampling=CorpusSamplingConfig())
    with caplog.at_level(logging.INFO, "nmt"):
        train(config)
    assert "stage" not in caplog.text
    training = last_of(config).training
    assert training is not None and not [key for key in training.values["fingerprint"] if key.startswith("sampling")]


def test_weights_and_corpora_of_different_number_are_refused(mixed: MakeConfig) -> None:
    for sampling in (CorpusSamplingConfig(weights=[3, 1, 1]), CorpusSamplingConfig(stages=["update 5: 3 1 1"])):
        with pytest.raises(UsageError, match=r"3 weights \(3 1 1\) for 2 corpora \(.*one weight for each"):
            train(mixed(sampling=sampling))


def test_epochs_of_a_mixture_are_counted_for_schedules_that_end_with_the_run(mixed: MakeConfig) -> None:
    config = mixed("counted")
    config.training = TrainingConfig(max_epoch=5)
    result, training = train(config), last_of(config).training
    assert training is not None and training.values["max_update"] == result.update


@pytest.mark.parametrize("options", [{}, {"augment": ["upper_case=0.5"]}])
def test_training_on_shards_is_training_on_what_they_make_together(
    tiny_run: MakeConfig, copy_corpus: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    text, given = copy_corpus.parent, str(copy_corpus)
    config = PreprocessConfig(
        "src", "tgt", tokenizer=WordsConfig(), joined_dictionary=True, keep_text=True, srcdict=given
    )
    config = replace(config, trainpref=f"{text}/train", validpref=f"{text}/valid")
    for number in (1, 2, 3):
        preprocess(replace(config, shard=f"{number}/3", destdir=f"{tmp_path}/shards"))
    preprocess(replace(config, destdir=f"{tmp_path}/whole"))
    found = []
    for name in ("shards", "whole"):
        place = CheckpointConfig(save_dir=f"{tmp_path}/run-{name}")
        run = tiny_run(data=[f"{tmp_path}/{name}"], checkpoint=place, variation=VariationConfig(**options))
        result = train(run)
        assert result.checkpoint is not None
        found.append(read_checkpoint(result.checkpoint).model)
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_changed_text_of_each_corpus_keeps_the_tag_of_that_corpus(tiny_run: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "train.de").write_text("ein mann\nzwei hunde laufen\n" * 5)
    (tmp_path / "train.en").write_text("a man\ntwo dogs run\n" * 5)
    (tmp_path / "words").write_text(
        "\n".join(["<2en>", "<2fr>", *"ein mann zwei hunde laufen a man two dogs run".split()])
    )
    folders = []
    for tag in ("en", "fr", None):
        given: dict[str, Any] = {"srcdict": f"{tmp_path}/words", "tgtdict": f"{tmp_path}/words", "tag": tag}
        given |= {"tokenizer": WordsConfig(), "keep_text": True, "destdir": f"{tmp_path}/{tag}"}
        folders.append(preprocess(PreprocessConfig("de", "en", f"{tmp_path}/train", **given)).folder)
    config = tiny_run(data=folders, variation=VariationConfig(augment=["noise_lines=1"]))
    config.validation.interval = None
    variation = open_datasets(config).variation
    assert variation is not None
    sentences = PlannedBatch(np.arange(30), epoch=1)
    before, after = (pairs[0] for pairs in (variation.usual(sentences), variation.read(sentences)))
    tags = [[4]] * 10 + [[5]] * 10
    assert [one[:1].tolist() for one in before[:20]] == [one[:1].tolist() for one in after[:20]] == tags
    assert not {4, 5} & {number for one in after[20:] for number in one.tolist()}
    assert [one.tolist() for one in before] != [one.tolist() for one in after]
