"""From a configuration to a finished run, on a generated corpus."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from nmt.config.choices import Precision
from nmt.config.plain import from_plain, to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import (
    BatchingConfig,
    CheckpointConfig,
    DeviceConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt.config.variation import VariationConfig
from nmt.data.corpus.folder import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.vocabulary import EOS
from nmt.errors import DataError, DeviceError, UsageError
from nmt.interface import VocabularySizes
from nmt.models import models
from nmt.models.transformer.config import PositionKind, TransformerConfig
from nmt.models.transformer.transformer import Transformer
from nmt.optim.config import AdamConfig
from nmt.optim.schedules import ConstantConfig, InverseSqrtConfig, LinearConfig, NoamConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.checkpoints import read_checkpoint, read_info
from nmt.storage.run_folder import checkpoints_in, pointed, read_config
from nmt.training.assemble import train
from nmt.training.setup import datasets
from nmt.training.setup.datasets import Datasets, check_lengths, number_of_updates

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]


def events(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [
        event for event in map(json.loads, (folder / "log.jsonl").read_text().splitlines()) if event["event"] == kind
    ]


def test_a_run_folder_holds_all_that_translating_needs(tiny_run: MakeConfig, tmp_path: Path, copy_corpus: Path) -> None:
    config = tiny_run()
    result = train(config)
    run = tmp_path / "run"
    assert LanguagePair.load(run / "tokenizer").digest() == LanguagePair.load(copy_corpus / "tokenizer").digest()
    stored = yaml.safe_load((run / "config.yaml").read_text())
    assert stored == to_plain(config) and from_plain(TrainConfig, stored, origin="config.yaml") == config
    assert result.checkpoint == pointed(run, "best")
    last = pointed(run, "last")
    assert last is not None and read_info(last).update == result.update == 12
    assert "final" in read_info(last).reasons


def test_the_best_value_and_why_it_ended_are_the_result(tiny_run: MakeConfig, tmp_path: Path) -> None:
    validation = ValidationConfig(interval=None, interval_updates=4, metrics=["bleu"], samples=0, best_metric="bleu")
    result = train(tiny_run(validation=validation))
    assert (result.metric, result.ending) == ("bleu", "12 updates are made")
    assert result.best == max(event["bleu"] for event in events(tmp_path / "run", "valid"))


def test_the_loss_of_the_log_is_that_of_the_criterion_and_falls(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(training=TrainingConfig(max_update=60)))
    losses = [event["loss"] for event in events(tmp_path / "run", "train")]
    assert losses[-1] < losses[0]
    first = events(tmp_path / "run", "train")[0]
    assert first["loss"] > first["nll"] * 0.8 and first["ppl"] == pytest.approx(math.exp(first["nll"]))


def test_noam_sets_the_rate_from_the_width_of_the_model(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(scheduler=NoamConfig(6), optimizer=AdamConfig()))
    rates = {event["update"]: event["lr"] for event in events(tmp_path / "run", "train")}
    expected = {update: 16**-0.5 * min(update**-0.5, update * 6**-1.5) for update in (3, 6, 9, 12)}
    assert rates == pytest.approx(expected)


def test_a_warmup_derived_from_the_length_of_the_run_stays_when_the_run_gets_longer(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    for max_update in (30, 60):
        train(tiny_run(scheduler=InverseSqrtConfig(), training=TrainingConfig(max_update=max_update)))
    rates = {event["update"]: event["lr"] for event in events(tmp_path / "run", "train")}
    assert rates[60] == pytest.approx(0.01 * math.sqrt(3 / 60))


def test_epochs_can_limit_a_run(tiny_run: MakeConfig, tmp_path: Path) -> None:
    result = train(tiny_run(training=TrainingConfig(max_epoch=2)))
    reasons = [read_info(path).reasons for path in checkpoints_in(tmp_path / "run") if path.name[11:15] == "0002"]
    assert result.epoch == 2 and result.ending == "2 epochs done"
    assert {"epoch", "final"} <= set(reasons[-1])


@pytest.mark.slow
def test_epochs_of_a_sort_window_are_planned_as_they_are_made(tiny_run: MakeConfig, tmp_path: Path) -> None:
    """Rates that end with the run end with its last update."""
    batching = BatchingConfig(max_tokens=150, sort_window=200)
    result = train(tiny_run(batching=batching, scheduler=LinearConfig(2), training=TrainingConfig(max_epoch=4)))
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True).training
    assert stored is not None and stored.values["max_update"] == result.update
    ends = [info.update for info in map(read_info, checkpoints_in(tmp_path / "run")) if "epoch" in info.reasons]
    assert len(ends) == 4 and result.update != 4 * ends[0], "epochs of one length would show nothing"


class Epochs:
    """Batches whose epochs have 1, 2, 3 ... updates."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def updates_in_epoch(self, epoch: int) -> int:
        self.asked.append(epoch)
        return epoch


@pytest.mark.parametrize(
    ("window", "limits", "planned", "asked"),
    [
        (9, TrainingConfig(max_epoch=4), 1 + 2 + 3 + 4, 4),
        (None, TrainingConfig(max_epoch=4), 4 * 1, 1),
        (9, TrainingConfig(max_epoch=10), 2 * (1 + 2 + 3 + 4 + 5), 5),  # five is what may be counted
        (9, TrainingConfig(max_epoch=10, max_update=3), 3, 2),
        (9, TrainingConfig(max_epoch=4, max_update=30), 10, 4),
        (9, TrainingConfig(max_update=7), 7, 0),
    ],
)
@pytest.mark.parametrize(("sentences", "epochs"), [(10, 10**6), (10**6, 5)])
def test_the_length_of_a_run_is_counted_or_where_that_takes_long_estimated(
    tiny_run: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    window: int | None,
    limits: TrainingConfig,
    planned: int,
    asked: int,
    sentences: int,
    epochs: int,
) -> None:
    monkeypatch.setattr(datasets, "MOST_SENTENCES", sentences)
    monkeypatch.setattr(datasets, "MOST_EPOCHS", epochs)
    pair: Any = None
    split, batches = given_lengths([2, 3], [2, 3]), Epochs()
    config = tiny_run(batching=BatchingConfig(sort_window=window), training=limits)
    opened = Datasets(pair, Path(), split, None, (3, 3), [])
    assert number_of_updates(config, batches, opened) == planned  # type: ignore[arg-type]
    assert batches.asked == list(range(1, asked + 1))


@pytest.mark.parametrize(("headroom", "asked"), [(None, 2), (1.2, 6)])
def test_few_epochs_are_counted_where_their_text_has_to_be_drawn(
    tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch, headroom: float | None, asked: int
) -> None:
    monkeypatch.setattr(datasets, "MOST_DRAWN", 4)
    pair: Any = None
    split, batches, limits = given_lengths([2, 3], [2, 3]), Epochs(), TrainingConfig(max_epoch=6)
    variation, batching = VariationConfig(bpe_dropout=0.1, headroom=headroom), BatchingConfig(sort_window=9)
    config = tiny_run(batching=batching, training=limits, variation=variation)
    opened = Datasets(pair, Path(), split, None, (3, 3), [])
    assert number_of_updates(config, batches, opened) == 6 * sum(range(asked + 1)) // asked  # type: ignore[arg-type]
    assert batches.asked == list(range(1, asked + 1))


def test_patience_counts_across_a_restart(tiny_run: MakeConfig) -> None:
    validation = ValidationConfig(interval=None, interval_updates=1, patience=3, samples=0)

    def start(max_update: int) -> int:
        # a rate of nearly nothing: the first validation stays the best
        optimizer = AdamConfig(lr=1e-30)
        return train(
            tiny_run(
                optimizer=optimizer,
                scheduler=ConstantConfig(),
                validation=validation,
                training=TrainingConfig(max_update=max_update),
            )
        ).update

    assert start(3) == 3
    assert start(100) == 4


def test_a_resumed_run_names_its_checkpoint_and_the_next_batch(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = tiny_run(training=TrainingConfig(max_epoch=1), checkpoint=CheckpointConfig(str(tmp_path / "run")))
    made = train(config).update
    assert "resumed after" not in caplog.text
    train(replace(config, training=TrainingConfig(max_update=made + 2)))
    path = tmp_path / "run" / f"checkpoint-0001-{made:08d}"
    assert f"resumed after update {made} of {path.parent}, from {path}: next is micro-batch 1 of epoch 2" in caplog.text
    train(replace(config, training=TrainingConfig(max_update=made + 4)))
    path = tmp_path / "run" / f"checkpoint-0002-{made + 2:08d}"
    assert (
        f"resumed after update {made + 2} of {path.parent}, from {path}: next is micro-batch 3 of epoch 2"
        in caplog.text
    )


def test_several_corpora_are_trained_on_as_one(
    tiny_run: MakeConfig, copy_corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        train(tiny_run(data=[str(copy_corpus), str(copy_corpus)], training=TrainingConfig(max_update=4)))
    assert "1,200 training pairs from src to tgt" in caplog.text


def test_corpora_of_different_vocabularies_do_not_mix(tiny_run: MakeConfig, copy_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="different vocabularies"):
        train(tiny_run(data=[str(copy_corpus), str(other_corpus(tmp_path))]))


def test_a_run_does_not_go_on_with_another_vocabulary_even_with_reset(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    config = tiny_run(data=[str(other_corpus(tmp_path))])
    config.checkpoint.reset = True
    with pytest.raises(DataError, match="and the corpus have different vocabularies"):
        train(config)


def test_a_missing_validation_split_is_named_with_the_ways_out(tiny_run: MakeConfig) -> None:
    with pytest.raises(DataError, match="no split 'dev'.*only train, valid, test.*validation.interval=null"):
        train(tiny_run(valid_subset="dev"))


def test_without_validation_no_validation_split_is_needed(tiny_run: MakeConfig, tmp_path: Path) -> None:
    result = train(tiny_run(valid_subset="dev", validation=ValidationConfig(interval=None, samples=0)))
    assert result.best is None and result.checkpoint == pointed(tmp_path / "run", "last")


def test_a_batch_smaller_than_the_longest_pair_is_refused_with_all_else_that_is_wrong(tiny_run: MakeConfig) -> None:
    config = tiny_run(batching=BatchingConfig(max_tokens=3), scheduler=InverseSqrtConfig(100))
    with pytest.raises(UsageError, match=r"\(1\) .*warmup_updates=100.*\(2\) .*max_tokens=3 is less than the 8 tokens"):
        train(config)


def test_a_model_that_reads_less_than_the_longest_source_is_refused_at_the_start(tiny_run: MakeConfig) -> None:
    model = TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, positions=PositionKind.learned, max_positions=5)
    with pytest.raises(DataError, match="longest source of split 'train' has 8 tokens, but the model reads at most 5"):
        train(tiny_run(model=model))


class Lengths:
    """A side of a split of which only the lengths matter."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = np.array(lengths, dtype=np.int64)

    def __getitem__(self, index: int) -> Any:
        return np.full(self.lengths[index], EOS)

    def text(self) -> list[str] | None:
        return None


def given_lengths(source: list[int], target: list[int], name: str = "train") -> Split:
    return Split(name, Lengths(source), Lengths(target))


def check_with_five_positions(train: Split, valid: Split, batching: BatchingConfig) -> None:
    config = TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2, positions=PositionKind.learned, max_positions=5)
    model = Transformer(config, VocabularySizes(12, 12, shared=False))
    pair: Any = None  # the check does not look at it
    check_lengths(model, Datasets(pair, Path(), train, valid, (5, 5), []), batching)


@pytest.mark.parametrize("name", ["train", "valid"])
@pytest.mark.parametrize(("side", "said"), [("source", "longest source"), ("target", "a target")])
def test_either_side_of_either_split_may_be_too_long_for_the_model(name: str, side: str, said: str) -> None:
    splits = {each: given_lengths([5, 4], [5, 3], each) for each in ("train", "valid")}
    check_with_five_positions(**splits, batching=BatchingConfig())
    splits[name] = given_lengths([2, 6 if side == "source" else 3], [2, 6 if side == "target" else 3], name)
    with pytest.raises(DataError, match=f"{said} of split '{name}' has 6 tokens.* at most 5"):
        check_with_five_positions(**splits, batching=BatchingConfig())


def test_pairs_that_are_left_out_may_be_too_long_for_the_model() -> None:
    valid, train = given_lengths([2], [2], "valid"), given_lengths([5, 9, 2], [5, 2, 9])
    check_with_five_positions(train, valid, BatchingConfig(max_tokens=5, skip_long=True))
    with pytest.raises(DataError, match="has 9 tokens"):
        check_with_five_positions(train, valid, BatchingConfig(max_tokens=9, skip_long=True))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": -1}, "seed=-1"),
        ({"validation": ValidationConfig(metrics=["blue"])}, "blue"),
    ],
)
def test_what_no_corpus_is_needed_to_refuse_is_refused_first(
    tiny_run: MakeConfig, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        train(tiny_run(data=[str(tmp_path / "nowhere")], **changes))
    assert not (tmp_path / "run").exists()


def test_an_empty_run_folder_name_and_a_negative_number_of_samples_are_refused() -> None:
    for name in ("", " "):
        with pytest.raises(UsageError, match="--save-dir"):
            CheckpointConfig(save_dir=name)
    with pytest.raises(UsageError, match="samples=-1"):
        ValidationConfig(samples=-1)


def test_a_longer_run_is_warned_of_if_its_rates_depend_on_the_length(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    for max_update in (4, 8):
        assert "learning rates follow the new length" not in caplog.text
        train(tiny_run(scheduler=LinearConfig(2), training=TrainingConfig(max_update=max_update)))
    assert "planned with 4 updates and now has 8: its learning rates follow the new length" in caplog.text


def test_a_longer_run_is_not_warned_of_if_its_rates_stay(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    for max_update in (4, 8):
        train(tiny_run(scheduler=InverseSqrtConfig(2), training=TrainingConfig(max_update=max_update)))
    assert "learning rates" not in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_said_before_anything_is_written(tiny_run: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="--device cpu"):
        train(tiny_run(device=DeviceConfig("cuda")))
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_bf16_trains_and_its_parameters_stay_in_float32(tiny_run: MakeConfig, tmp_path: Path) -> None:
    from nmt.storage.checkpoints import read_checkpoint

    train(tiny_run(device=DeviceConfig("cpu", Precision.bf16)))
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1])
    assert {tensor.dtype for tensor in stored.model.values() if tensor.is_floating_point()} == {torch.float32}
    assert events(tmp_path / "run", "train")[-1]["loss"] < 4


def test_going_on_in_another_precision_is_allowed_and_said(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    with caplog.at_level(logging.INFO, "nmt"):
        train(tiny_run(device=DeviceConfig("cpu", Precision.bf16)))
    assert "resuming on cpu in bf16; before, the run computed on cpu in fp32" in caplog.text


def test_only_the_last_checkpoints_and_the_best_stay(tiny_run: MakeConfig, tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    options = CheckpointConfig(save_dir=run, save_interval=None, save_interval_updates=2, keep_interval_updates=2)
    validation = ValidationConfig(interval=None, interval_updates=12, samples=0)
    train(replace(tiny_run(checkpoint=options, validation=validation)))
    assert [int(path.name[-8:]) for path in checkpoints_in(tmp_path / "run")] == [10, 12]


def other_corpus(folder: Path) -> Path:
    for language in ("src", "tgt"):
        (folder / f"other.{language}").write_text("i j k\nl m n\n", encoding="utf-8")
    prefix = str(folder / "other")
    preprocess(
        PreprocessConfig(
            source_lang="src",
            target_lang="tgt",
            trainpref=prefix,
            validpref=prefix,
            destdir=str(folder / "other-corpus"),
            tokenizer=WordsConfig(),
            joined_dictionary=True,
        )
    )
    return folder / "other-corpus"


def test_layers_that_run_again_change_no_bit_of_a_run(tiny_run: MakeConfig, tmp_path: Path) -> None:
    weights = []
    for again in (False, True):
        config = tiny_run(
            training=TrainingConfig(max_update=5, checkpoint_activations=again),
            checkpoint=CheckpointConfig(save_dir=str(tmp_path / f"run-{again}")),
        )
        config.model.dropout = 0.3
        weights.append(read_checkpoint(train(config).checkpoint).model)
    assert list(weights[0]) == list(weights[1])
    assert all(torch.equal(weights[1][name], tensor) for name, tensor in weights[0].items())


def test_a_model_without_layers_to_run_again_is_refused(tiny_run: MakeConfig) -> None:
    config = tiny_run(
        model=models.config_class("memory_network")().shrink(),
        training=TrainingConfig(max_update=5, checkpoint_activations=True),
    )
    with pytest.raises(UsageError, match="no stack of layers.*omit --checkpoint-activations"):
        train(config)


@pytest.mark.parametrize("metric", ["nll", "ppl"])
def test_what_every_validation_computes_can_decide_the_best(tiny_run: MakeConfig, metric: str) -> None:
    result = train(tiny_run(validation=ValidationConfig(samples=0, best_metric=metric)))
    assert result.metric == metric and result.checkpoint is not None
    assert result.best == pytest.approx(read_info(result.checkpoint).scores[metric])


def test_a_start_from_a_model_of_other_options_is_warned_of(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two heads fit where four were, and see other things."""
    start = tiny_run(scheduler=ConstantConfig(), training=TrainingConfig(max_update=1))
    start.checkpoint.save_dir = str(tmp_path / "start")
    train(start)
    for number, (heads, dropout) in enumerate([(2, 0.3), (4, 0.2)]):
        config = tiny_run(scheduler=ConstantConfig(), training=TrainingConfig(max_update=1))
        config.model.num_heads, config.model.dropout = heads, dropout
        config.checkpoint.save_dir = str(tmp_path / f"run{number}")
        config.checkpoint.finetune_from_model = str(tmp_path / "start")
        caplog.clear()
        train(config)
        warned = "has other options (model.num_heads: 2 -> 4): its parameters may not be useful here" in caplog.text
        assert warned == (heads == 4)


def test_a_run_that_goes_on_takes_no_other_model_to_begin_with(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run(scheduler=ConstantConfig(), training=TrainingConfig(max_update=1))
    train(config)
    config.training.max_update = 2
    config.checkpoint.finetune_from_model = str(tmp_path / "another")
    with pytest.raises(UsageError, match=r"did not start from .*another; omit --finetune-from-model to resume it"):
        train(config)
    assert read_config(Path(config.checkpoint.save_dir))["checkpoint"]["finetune_from_model"] is None


def test_the_model_that_a_run_began_with_stays_noted(tiny_run: MakeConfig, tmp_path: Path) -> None:
    start = tiny_run(scheduler=ConstantConfig(), training=TrainingConfig(max_update=1))
    start.checkpoint.save_dir = str(tmp_path / "start")
    train(start)
    for update, named in ((1, True), (2, False), (3, True)):
        config = tiny_run(scheduler=ConstantConfig(), training=TrainingConfig(max_update=update))
        config.checkpoint.finetune_from_model = given = str(tmp_path / "start") if named else None
        train(config)
        assert config.checkpoint.finetune_from_model == given  # the caller's object may begin another run
        assert read_config(Path(config.checkpoint.save_dir))["checkpoint"]["finetune_from_model"] == str(
            tmp_path / "start"
        )


def test_what_is_missing_is_said_before_anything_is_opened() -> None:
    with pytest.raises(UsageError, match="no model, no criterion, no optimizer, no scheduler is chosen"):
        train(TrainConfig(data=["nowhere"]))


def test_segments_that_grow_are_for_gpus(tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture) -> None:
    train(tiny_run(training=TrainingConfig(max_update=5, expandable_segments=True)))
    assert "training.expandable_segments=true has no effect on cpu, only on NVIDIA and AMD GPUs" in caplog.text
