"""What a continued run compares with the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from torch import nn

from nmt.config.sections import CheckpointConfig, TrainConfig
from nmt.errors import DataError, UsageError
from nmt.keywords import with_default_components
from nmt.storage.checkpoints import CheckpointInfo, StoredCheckpoint, TrainingState, load_parameters
from nmt.training.checkpoints.fingerprint import default_options, differences, fingerprint
from nmt.training.checkpoints.resume import RESETS, VALUES, ResumePoint, due_resets, resume_point


def stored(**values: Any) -> StoredCheckpoint:
    complete = {key: {} for key in VALUES} | {"vocabularies": "v", "batches_in_update": 2} | values
    training = TrainingState({}, {key: value for key, value in complete.items() if value is not None})
    return StoredCheckpoint(Path("run/checkpoint"), {}, CheckpointInfo(1, 1), {}, training)


def test_differences_are_listed_by_option_with_both_values() -> None:
    old = {"seed": 1, "model.d_ff": 8, "model.name": "a", "gone": 3}
    new = {"seed": 1, "model.d_ff": 9, "model.name": "a", "added": None, "data": ["x"]}
    assert differences(old, new) == {
        "model.d_ff": "8 -> 9",
        "data": "the corpus or its vocabulary changed",
        "gone": "3 -> null",
    }


def changes(
    checkpoint: StoredCheckpoint,
    current: dict[str, Any],
    *,
    batches: int = 2,
    defaults: Mapping[str, Any] = MappingProxyType({}),
    **consent: Any,
) -> Any:
    parts: Any = {"vocabularies": "v", "batches_in_update": batches, "options": CheckpointConfig(**consent)}
    return resume_point(checkpoint, current, defaults=dict(defaults), **parts).changed


def test_an_option_that_is_newer_than_the_checkpoint_had_its_default() -> None:
    defaults, name = default_options(with_default_components(TrainConfig())), "batching.max_tokens"
    old = stored(fingerprint={key: value for key, value in defaults.items() if key != name})
    assert changes(old, defaults, defaults=defaults) == {}
    with pytest.raises(UsageError, match=f"{name}: {defaults[name]} -> 7"):
        changes(old, {**defaults, name: 7}, defaults=defaults)


def test_a_value_that_is_newer_than_the_checkpoint_may_be_missing() -> None:
    checkpoint = stored()
    assert checkpoint.training is not None and "base" not in checkpoint.training.values
    assert ResumePoint.of(checkpoint).settings.base == {}


def test_a_replaced_component_is_listed_by_its_name_alone() -> None:
    old = {"model.name": "transformer", **{f"model.size_{number}": number for number in range(40)}, "seed": 1}
    new = {"model.name": "lstm", "model.cells": 3, "seed": 2}
    with pytest.raises(UsageError) as caught:
        changes(stored(fingerprint=old), new)
    assert str(caught.value) == (
        "run/checkpoint was trained with other options (model.name: transformer -> lstm; seed: 1 -> 2); choose another "
        "--save-dir, or resume with --reset"
    )


def test_a_refusal_lists_few_changes_and_counts_the_others() -> None:
    old = {f"optimizer.option_{number}": "old " * 100 for number in range(40)}
    with pytest.raises(
        UsageError, match="; 34 more\\); choose another --save-dir, or resume with --reset-optimizer$"
    ) as caught:
        changes(stored(fingerprint=old), dict.fromkeys(old, "new"))
    assert len(str(caught.value)) < 700


def test_nothing_changed_is_nothing_to_say() -> None:
    assert changes(stored(fingerprint={"seed": 1}), {"seed": 1}) == {}


def test_accumulation_that_makes_up_for_the_number_of_processes_is_no_change() -> None:
    checkpoint = stored(fingerprint={"batching.update_freq": 1}, batches_in_update=2)
    assert changes(checkpoint, {"batching.update_freq": 2}) == {}
    with pytest.raises(UsageError, match="update_freq: 1 -> 2"):
        changes(checkpoint, {"batching.update_freq": 2}, batches=4)


def test_a_size_of_updates_that_keeps_their_batches_is_no_change() -> None:
    """Neither said in another way, nor on another number of processes."""
    checkpoint = stored(fingerprint={"batching.update_freq": 2}, batches_in_update=2)
    by_size = {"batching.update_freq": 1, "batching.tokens_per_update": 500}
    assert changes(checkpoint, by_size) == {}
    assert changes(stored(fingerprint=by_size), by_size) == {}
    with pytest.raises(UsageError, match=r"tokens_per_update: 500 -> 1000.*--reset-dataloader"):
        changes(stored(fingerprint=by_size), by_size | {"batching.tokens_per_update": 1000}, batches=4)


def test_a_size_of_updates_that_processes_do_not_divide_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    by_size = {"batching.tokens_per_update": 500}
    assert changes(stored(fingerprint=by_size), by_size, batches=3) == {}
    assert "an update had 2 micro-batches and now has 3" in caplog.text


@pytest.mark.parametrize(
    ("flags", "other_data", "stays"),
    [
        ({}, False, True),
        ({"reset": True}, False, True),
        ({"reset": True}, True, False),
        ({"reset_dataloader": True}, False, False),
    ],
)
def test_the_order_of_batches_is_said_to_stay_only_where_the_epoch_does_not_begin_again(
    caplog: pytest.LogCaptureFixture, flags: dict[str, bool], other_data: bool, stays: bool
) -> None:
    before, now = (
        {"batching.update_freq": 1, "seed": 1},
        {"batching.update_freq": 1 + bool(flags), "seed": 1 + other_data},
    )
    changes(stored(fingerprint=before), now, batches=4, **flags)
    assert ("the order of micro-batches stays" in caplog.text) == stays
    assert "now has 4" in caplog.text and "the course of training changes" in caplog.text


def test_an_update_of_one_batch_is_told_in_the_singular(caplog: pytest.LogCaptureFixture) -> None:
    changes(stored(batches_in_update=1), {}, batches=3)
    assert "an update had 1 micro-batch and now has 3: the order" in caplog.text


def test_a_change_is_refused_unless_reset() -> None:
    checkpoint = stored(fingerprint={"seed": 1})
    with pytest.raises(UsageError, match="seed: 1 -> 2.*--reset"):
        changes(checkpoint, {"seed": 2})
    assert changes(checkpoint, {"seed": 2}, reset=True) == {"seed": "1 -> 2"}


@pytest.mark.parametrize(
    ("changed", "flags"),
    [
        (["seed"], "--reset-dataloader"),
        (["data", "train_subset", "batching.max_tokens"], "--reset-dataloader"),
        (["optimizer.beta1"], "--reset-optimizer"),
        (["parameters.freeze", "training.ema_decay"], "--reset-optimizer"),
        (["optimizer.lr"], "--reset-lr-scheduler"),
        (["scheduler.name", "optimizer.lr"], "--reset-lr-scheduler"),
        (["optimizer.lr", "optimizer.name"], "--reset-optimizer"),
        (["validation.interval", "search.beam_size"], "--reset-meters"),
        (["seed", "optimizer.lr"], "--reset-dataloader --reset-lr-scheduler"),
        (["model.dropout"], "--reset"),
        (["seed", "criterion.label_smoothing"], "--reset"),
    ],
)
def test_each_kind_of_change_has_a_flag_that_lets_it_happen(changed: list[str], flags: str) -> None:
    checkpoint, current = stored(fingerprint=dict.fromkeys(changed, 1)), dict.fromkeys(changed, 2)
    with pytest.raises(UsageError, match=rf"or resume with {flags}$"):
        changes(checkpoint, current)
    named = {flag.removeprefix("--").replace("-", "_") for flag in flags.split()}
    assert changes(checkpoint, current, **dict.fromkeys(named, True)).keys() == set(changed)


def test_plugins_may_lie_elsewhere(tiny_run: Callable[..., TrainConfig]) -> None:
    before, after = (fingerprint(tiny_run(user_dir=place), [], []) for place in (None, "moved/gru.py,more"))
    assert changes(stored(fingerprint=before), after) == {}


def test_a_flag_lets_nothing_else_change() -> None:
    checkpoint = stored(fingerprint={"seed": 1, "model.dropout": 0.1})
    with pytest.raises(UsageError, match=r"options \(model.dropout: 0.1 -> 0.2\); .*--reset$"):
        changes(checkpoint, {"seed": 2, "model.dropout": 0.2}, **dict.fromkeys(RESETS, True))


def resets(options: CheckpointConfig, under: dict[str, bool], *changed: str, others: str = "") -> Any:
    """Those that are due after a checkpoint that was written ``under`` flags."""
    section = dict.fromkeys(RESETS, False) | under
    checkpoint = replace(stored(), config={"checkpoint": section})
    training = checkpoint.training
    assert training is not None
    past = replace(ResumePoint.of(checkpoint), changed=dict.fromkeys(changed, "1 -> 2"))
    return due_resets(options, past, {others: "1 -> 2"} if others else {})


def test_what_a_checkpoint_was_written_under_is_reset_once_more_only_if_something_changed() -> None:
    options = CheckpointConfig(reset_optimizer=True, reset_meters=True)
    before = {"reset_optimizer": True}
    assert resets(options, {}) == {"reset_optimizer", "reset_meters"}
    assert resets(options, before) == {"reset_meters"}
    assert resets(options, before, "optimizer.eps") == {"reset_optimizer", "reset_meters"}
    both = replace(options, reset_lr_scheduler=True)
    found = resets(both, before, "optimizer.lr")
    assert found == {"reset_lr_scheduler", "reset_meters"}, "another rate is no other optimizer"
    assert resets(CheckpointConfig(), before, "optimizer.eps") == set()


def test_the_best_is_forgotten_again_when_scores_mean_something_else_again() -> None:
    before = {"reset_meters": True}
    assert resets(CheckpointConfig(reset_meters=True), before) == set()
    assert resets(CheckpointConfig(reset_meters=True), before, others="search.beam_size") == {"reset_meters"}
    assert resets(CheckpointConfig(), before, others="search.beam_size") == set()


def test_how_to_validate_matters_if_the_schedulers_before_and_after_both_depend_on_it() -> None:
    without = {"scheduler.name": "constant"}
    follows = {"scheduler.name": "plateau", "valid_subset": "valid", "validation.interval": 1, "search.name": "greedy"}
    for before, after in ((without, follows), (follows, without)):
        assert changes(stored(fingerprint=before), after, reset_lr_scheduler=True).keys() == {"scheduler.name"}
    with pytest.raises(UsageError, match=r"\(validation.interval: 1 -> 2\).*--reset-meters$"):
        changes(stored(fingerprint=follows), follows | {"validation.interval": 2})


@pytest.mark.parametrize(
    ("changed", "restarts"),
    [
        ("data", True),
        ("seed", True),
        ("batching.max_tokens", True),
        ("sampling.stages", True),
        ("batching.update_freq", False),
        ("batching.tokens_per_update", False),
        ("optimizer.lr", False),
        ("model.dropout", False),
    ],
)
def test_the_epoch_begins_again_if_its_batches_are_others(changed: str, restarts: bool) -> None:
    assert replace(ResumePoint.of(stored()), changed={changed: "a -> b"}).restarts_epoch == restarts


def test_a_checkpoint_without_the_values_of_training_is_refused_by_name() -> None:
    with pytest.raises(DataError, match="its training.json lacks report"):
        changes(stored(report=None), {})


def test_parameters_of_another_shape_are_named_with_both_shapes() -> None:
    model = nn.Linear(2, 3)
    with pytest.raises(UsageError, match=r"bias: missing in the checkpoint, \(3,\) in the model; weight: \(4, 2\) in"):
        load_parameters(model, {"weight": torch.zeros(4, 2)}, "run/checkpoint")


def test_parameters_of_the_same_shape_are_taken_over() -> None:
    model = nn.Linear(2, 3)
    load_parameters(model, {"weight": torch.ones(3, 2), "bias": torch.ones(3)}, "run/checkpoint")
    assert torch.equal(model.weight, torch.ones(3, 2))
