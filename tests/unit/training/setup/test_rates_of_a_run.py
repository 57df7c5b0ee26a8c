"""Rates of whole runs, also resumed and prolonged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config.sections import BatchingConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.errors import UsageError
from nmt.optim.config import AdamConfig, AdamThenSgdConfig, SgdConfig
from nmt.optim.schedules import ConstantConfig, PlateauConfig, PolynomialConfig, WsdConfig
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.setup import datasets

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
STANDSTILL = 1e-30  # a rate
VALIDATION = ValidationConfig(interval=None, interval_updates=2, samples=0)


def rates(run: Path) -> dict[int, float]:
    events = map(json.loads, (run / "log.jsonl").read_text().splitlines())
    return {event["update"]: event["lr"] for event in events if event["event"] == "train"}


def factors(run: Path, *updates: int) -> list[float]:
    """The rates after these updates of a run at ``STANDSTILL``, as multiples of it."""
    found = rates(run)
    return [found[update] / STANDSTILL for update in updates]


def stuck(make: MakeConfig, validation: ValidationConfig, max_update: int = 12) -> TrainConfig:
    """Nothing is learned at such a rate: every loss is the first."""
    return make(
        optimizer=AdamConfig(lr=STANDSTILL),
        scheduler=PlateauConfig(patience=1),
        validation=validation,
        training=TrainingConfig(max_update=max_update),
    )


def test_the_rate_shrinks_with_the_validations_also_over_a_restart(tiny_run: MakeConfig, tmp_path: Path) -> None:
    for max_update in (7, 12):
        train(stuck(tiny_run, VALIDATION, max_update))
    # validations after 2, 4, 6, (7 ends the first part,) 8, 10
    assert factors(tmp_path / "run", 3, 6, 9, 12) == pytest.approx([1, 1, 0.25, 0.25])


def test_a_metric_that_should_rise_is_followed_upwards(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(stuck(tiny_run, replace(VALIDATION, metrics=["chrf"], best_metric="chrf")))
    assert factors(tmp_path / "run", 12) == pytest.approx([0.25])


@pytest.mark.parametrize(
    ("change", "named"),
    [({"interval_updates": 3}, "validation.interval_updates: 2 -> 3"), ({"lowercase": True}, "validation.lowercase")],
)
def test_other_validations_are_refused_when_the_rate_follows_them(
    tiny_run: MakeConfig, change: dict[str, object], named: str
) -> None:
    train(stuck(tiny_run, VALIDATION, 4))
    with pytest.raises(UsageError, match=named):
        train(stuck(tiny_run, replace(VALIDATION, **change)))  # type: ignore[arg-type]
    train(stuck(tiny_run, replace(VALIDATION, samples=1, patience=50), 6))


def test_an_end_rate_above_the_peak_is_refused(tiny_run: MakeConfig) -> None:
    scheduler = PolynomialConfig(4, end_learning_rate=0.02)
    with pytest.raises(UsageError, match=r"end_learning_rate=0.02 is above the peak of 0.01"):
        train(tiny_run(scheduler=scheduler))


@pytest.mark.parametrize(
    ("scheduler", "lr", "expected"),
    [
        (WsdConfig(decay_share=0.25), 0.01, {3: 0.01, 6: 0.01, 9: 0.01 / 3, 12: 0.0025}),
        (PolynomialConfig(0, end_learning_rate=2.0, total_num_update=5), 5.0, {3: 3.2, 6: 2.0, 9: 2.0, 12: 2.0}),
    ],
    ids=["wsd", "polynomial"],
)
def test_schedules_know_the_peak_and_the_length_of_the_run_also_when_it_gets_longer(
    tiny_run: MakeConfig, tmp_path: Path, scheduler: object, lr: float, expected: dict[int, float]
) -> None:
    for max_update in (9, 12):
        train(
            tiny_run(
                optimizer=SgdConfig(lr=lr),
                scheduler=scheduler,
                training=TrainingConfig(max_update=max_update, clip_norm=1e-6),
            )
        )
    found = rates(tmp_path / "run")
    assert {update: found[update] for update in expected} == pytest.approx(expected)


def test_prolonging_wsd_before_its_decay_is_nothing_to_warn_of_and_gives_the_longer_run(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planned = tiny_run(scheduler=WsdConfig(2, decay_share=0.5), training=TrainingConfig(max_update=8))
    train(planned)
    for late in ("checkpoint-0001-00000006", "checkpoint-0001-00000008"):
        shutil.rmtree(tmp_path / "run" / late, ignore_errors=True)  # as if it had been interrupted after update 4
    longer = replace(planned, training=TrainingConfig(max_update=12))
    train(longer)
    assert "learning rates" not in caplog.text
    train(replace(longer, checkpoint=replace(longer.checkpoint, save_dir=str(tmp_path / "whole"))))
    found, expected = (read_checkpoint(checkpoints_in(tmp_path / run)[-1]).model for run in ("run", "whole"))
    assert rates(tmp_path / "run") == rates(tmp_path / "whole")
    assert all(found[name].equal(tensor) for name, tensor in expected.items())
    train(replace(longer, training=TrainingConfig(max_update=14)))
    assert "planned with 12 updates and now has 14: its learning rates follow the new length" in caplog.text


@pytest.mark.parametrize(
    ("validation", "warned"),
    [
        (ValidationConfig(interval=None, interval_updates=3, samples=0), True),
        (ValidationConfig(interval=None, interval_updates=2, samples=0), False),
    ],
    ids=["off its interval", "on its interval"],
)
@pytest.mark.parametrize("decides", ["plateau", "patience", "nothing"])
def test_a_prolonged_run_is_warned_of_a_validation_that_would_not_have_been(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture, validation: ValidationConfig, warned: bool, decides: str
) -> None:
    changes: dict[str, Any] = {"validation": validation}
    if decides == "plateau":
        changes["scheduler"] = PlateauConfig(patience=1)
    elif decides == "patience":
        changes["validation"] = replace(validation, patience=50)
    train(tiny_run(**changes, training=TrainingConfig(max_update=4)))
    train(tiny_run(**changes, training=TrainingConfig(max_update=8)))
    said = (
        "the run ended at update 4 with an extra validation: patience, and learning rates that depend on" in caplog.text
    )
    assert said == (warned and decides != "nothing")


@pytest.mark.slow
@pytest.mark.parametrize("estimated", [False, True])
@pytest.mark.parametrize(("interval", "warned"), [(1, False), (2, True)])
def test_a_prolonged_run_is_warned_of_an_epoch_that_would_not_have_been_validated(
    tiny_run: MakeConfig,
    make_copy_corpus: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    interval: int,
    warned: bool,
    estimated: bool,
) -> None:
    monkeypatch.setattr(datasets, "MOST_EPOCHS", 1 if estimated else 1000)
    changes: dict[str, Any] = {
        "data": [str(make_copy_corpus(train=60, valid=4))],
        "validation": ValidationConfig(interval=interval, patience=50, samples=0),
        "batching": BatchingConfig(max_tokens=50, sort_window=20),
    }
    for max_epoch in (3, 4):
        assert "ended at update" not in caplog.text
        train(tiny_run(**changes, training=TrainingConfig(max_epoch=max_epoch)))
    assert ("ended at update" in caplog.text) == warned


def test_a_schedule_that_takes_over_is_not_judged_by_the_length_of_the_run_before(tiny_run: MakeConfig) -> None:
    """Half of the shorter run would be less than this warmup."""
    train(tiny_run(training=TrainingConfig(max_update=4)))
    longer = tiny_run(scheduler=WsdConfig(warmup_updates=6), training=TrainingConfig(max_update=12))
    longer.checkpoint.reset_lr_scheduler = True
    assert train(longer).update == 12


def best(run: Path) -> dict[str, Any]:
    """What the last checkpoint says of the validations so far."""
    training = read_checkpoint(checkpoints_in(run)[-1], training=True).training
    assert training is not None
    state: dict[str, Any] = training.values["best"]
    return state


@pytest.mark.parametrize("flag", ["reset_lr_scheduler", "reset"])
@pytest.mark.parametrize("stops", [(16,), (12, 16)], ids=["at once", "with a stop"])
def test_plateau_that_takes_over_begins_with_the_full_rate_and_keeps_the_best(
    tiny_run: MakeConfig, tmp_path: Path, flag: str, stops: tuple[int, ...]
) -> None:
    """What was validated under another scheduler says nothing of this rate."""
    train(replace(stuck(tiny_run, VALIDATION, 8), scheduler=ConstantConfig()))
    for max_update in stops:
        config = stuck(tiny_run, VALIDATION, max_update)
        setattr(config.checkpoint, flag, True)
        train(config)
    # four validations before; its own come after 10, 12, 14, and the third of them ends its patience
    assert factors(tmp_path / "run", 9, 12, 15) == pytest.approx([1, 1, 0.5])
    assert best(tmp_path / "run")["update"] == 2 and len(best(tmp_path / "run")["history"]) == 8


def test_another_scheduler_may_take_over_from_plateau_and_plateau_from_it(tiny_run: MakeConfig, tmp_path: Path) -> None:
    plateau = stuck(tiny_run, VALIDATION, 8)
    train(plateau)
    constant = replace(plateau, scheduler=ConstantConfig(), training=TrainingConfig(max_update=12))
    constant.checkpoint.reset_lr_scheduler = True
    train(constant)
    train(replace(plateau, training=TrainingConfig(max_update=16)))
    assert factors(tmp_path / "run", 6, 9, 12, 15) == pytest.approx([1, 1, 1, 1])
    assert best(tmp_path / "run")["update"] == 2


def test_another_rate_is_taken_in_full_by_plateau(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = stuck(tiny_run, VALIDATION, 8)
    train(config)
    config.optimizer.lr, config.training.max_update, config.checkpoint.reset_lr_scheduler = 3 * STANDSTILL, 10, True
    train(config)
    assert factors(tmp_path / "run", 9) == pytest.approx([3])


def test_the_best_is_forgotten_each_time_that_the_validation_data_is_another(
    tiny_run: MakeConfig, tmp_path: Path, make_copy_corpus: Callable[..., Path]
) -> None:
    config = tiny_run(scheduler=ConstantConfig(), validation=VALIDATION, training=TrainingConfig(max_update=4))
    train(config)
    config.checkpoint.reset_meters = True
    corpora = [str(make_copy_corpus(train=600, valid=size)) for size in (30, 20)]
    lengths = []
    for config.training.max_update, corpus in ((6, corpora[0]), (8, corpora[1]), (10, corpora[1])):
        config.data = [corpus]
        train(config)
        lengths.append(len(best(tmp_path / "run")["history"]))
    assert lengths == [1, 1, 2]  # the last time nothing is new


@pytest.mark.parametrize("metric", ["loss", "nll", "chrf"])
def test_another_search_makes_other_scores_only_where_translations_decide(
    tiny_run: MakeConfig, caplog: pytest.LogCaptureFixture, metric: str
) -> None:
    options = replace(VALIDATION, metrics=["chrf"], best_metric=metric)
    train(tiny_run(validation=options, training=TrainingConfig(max_update=4)))
    again = tiny_run(validation=replace(options, lowercase=True), training=TrainingConfig(max_update=6))
    again.search.max_len_b = 7
    caplog.clear()
    assert train(again).update == 6
    said = "earlier scores are from a different validation (search.max_len_b: " in caplog.text
    assert said == ("earlier scores are from" in caplog.text) == (metric == "chrf")


@pytest.mark.parametrize("follows", [True, False])
def test_other_validation_data_is_noticed(
    tiny_run: MakeConfig, make_copy_corpus: Callable[..., Path], caplog: pytest.LogCaptureFixture, follows: bool
) -> None:
    """The rate follows it, or only what is called best is mixed."""
    scheduler = PlateauConfig() if follows else ConstantConfig()
    train(tiny_run(scheduler=scheduler, validation=VALIDATION, training=TrainingConfig(max_update=4)))
    other = [str(make_copy_corpus(train=600, valid=30))]
    again = tiny_run(data=other, scheduler=scheduler, validation=VALIDATION, training=TrainingConfig(max_update=6))
    caplog.clear()
    if follows:
        with pytest.raises(UsageError, match="validation.data: the validation data changed.*--reset-meters"):
            train(again)
        assert "earlier scores are from" not in caplog.text
    else:
        assert train(again).update == 6
        assert "earlier scores are from a different validation (data:" in caplog.text
        again.training.max_update = 8
        caplog.clear()
        train(again)
        assert "earlier scores are from" not in caplog.text
    again.checkpoint.reset_meters = True
    again.training.max_update = 10
    caplog.clear()
    assert train(again).update == 10
    assert "earlier scores are from" not in caplog.text


def test_the_rate_that_an_optimizer_takes_itself_is_the_one_that_is_told(tiny_run: MakeConfig, tmp_path: Path) -> None:
    optimizer = AdamThenSgdConfig(lr=0.01, sgd_lr=0.5, switch_update=3)
    config = tiny_run(optimizer=optimizer, scheduler=ConstantConfig(), training=TrainingConfig(max_update=5))
    config.report.log_interval = 1
    train(config)
    assert list(rates(tmp_path / "run").values()) == pytest.approx([0.01, 0.01, 0.01, 0.5, 0.5])
