"""nmt-train --dry-run: what batches, memory and time training takes, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config.sections import BatchingConfig, TrainConfig, TrainingConfig
from nmt.errors import UsageError
from nmt.training.assemble import dry_run, train
from nmt.training.loop.batches import TrainingBatches
from nmt.training.setup import forecast
from nmt.training.setup.announcements import dry_run_in_words
from nmt.training.setup.datasets import open_datasets
from nmt.training.setup.forecast import BatchSize, EpochSizes, Forecast

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
BATCHES = [
    [BatchSize(4, 20, 24, 6, 7), BatchSize(2, 20, 18, 11, 9)],
    [BatchSize(9, 18, 27, 2, 3)],
    [BatchSize(1, 3, 4, 3, 4)],
]
EPOCH = EpochSizes(BATCHES)
MEMORY = {"memory": 1_500_000_000, "room": 8_000_000_000, "is_measured": True}


def test_an_epoch_knows_its_padding_its_largest_batches_and_its_middle() -> None:
    pieces = 20 + 24 + 20 + 18 + 18 + 27 + 3 + 4
    places = 4 * 13 + 2 * 20 + 9 * 5 + 7
    assert EPOCH.padding == pytest.approx(1 - pieces / places)
    assert EPOCH.target_pieces == [42, 27, 4]
    assert EPOCH.middle() == 1
    assert EPOCH.largest == BATCHES[0][0]
    assert EPOCH.costliest() == [0, 1]


def words(seconds: float | None = 0.45, memory: dict[str, Any] = MEMORY, **given: Any) -> Any:
    limits, max_update = TrainingConfig(**given), given.get("max_update") or None
    forecast = Forecast(seconds, checkpoint=0, **memory)
    return dry_run_in_words(EPOCH, forecast, model="lstm", data="16 pairs", limits=limits, max_update=max_update)


def test_what_was_found_is_said_in_words() -> None:
    assert words(max_update=7200) == {
        "model": "lstm",
        "data": "16 pairs",
        "an epoch": "3 updates, 16 pairs, 73 target tokens",
        "micro-batches": "4, on average of 4.0 pairs; padding is 6.9%",
        "the largest": "4 pairs of up to 6 source and 7 target tokens (52 with padding)",
        "memory": "1.50 GB a process, of 8.0 GB available",
        "an update": "0.450 seconds, 54 target tokens a second",
        "to the end": "7,200 updates in 54.0 minutes, without validations",
    }


@pytest.mark.parametrize(
    ("given", "end"),
    [
        ({"max_update": 72_000}, "72,000 updates in 9.0 hours, without validations"),
        ({"max_update": 72_000, "stop_time_hours": 2}, "about 16,000 updates in the limit of 2 hours"),
        ({"max_update": 72_000, "stop_time_hours": 10}, "72,000 updates in 9.0 hours, without validations"),
        ({"stop_time_hours": 0.5}, "about 4,000 updates in the limit of 0.5 hours"),
        ({"max_update": 0}, "no limit is given; 1,000 updates take 7.5 minutes"),
    ],
)
def test_the_end_is_that_of_the_limit_that_is_met_first(given: dict[str, Any], end: str) -> None:
    assert words(**given)["to the end"] == end


def test_what_does_not_fit_is_told_without_times() -> None:
    rows = words(None, {"memory": 9_000_000_000, "room": 8_000_000_000})
    assert "an update" not in rows and "to the end" not in rows
    assert rows["memory"] == (
        "9.00 GB a process (forecast), of 8.0 GB available: the largest micro-batches will not fit; lower --max-tokens "
        "and raise --update-freq by the same factor (--tokens-per-update does so automatically)"
    )
    assert words(memory={"memory": 10**9, "is_measured": True})["memory"] == "1.00 GB a process"


@pytest.mark.slow
def test_what_an_update_of_a_given_size_is_made_of_is_said(tiny_run: MakeConfig) -> None:
    rows = dry_run(tiny_run(batching=BatchingConfig(max_tokens=200, tokens_per_update=600)))
    assert rows["in an update"] == "3 micro-batches of up to 200 tokens on 1 process: 600 tokens"
    assert "in an update" not in dry_run(tiny_run(batching=BatchingConfig(max_tokens=200, update_freq=3)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batching": BatchingConfig(max_tokens=200, update_freq=3)},
        {"batching": BatchingConfig(max_tokens=200, max_padding=0.05, sort_window=500)},
        {"batching": BatchingConfig(batch_size=7, max_tokens=None)},
    ],
)
def test_the_first_epoch_is_counted_batch_by_batch(tiny_run: MakeConfig, options: dict[str, Any]) -> None:
    config = tiny_run(**options)
    datasets = open_datasets(config)
    batches = TrainingBatches(datasets.train, config.batching, config.seed)
    epoch = EpochSizes.first(batches)
    assert len(epoch.updates) == batches.updates_in_epoch(1) > 3
    assert sum(batch.pairs for batch in epoch.batches) == len(datasets.train)
    assert sum(batch.source_pieces for batch in epoch.batches) == datasets.train.source_lengths.sum()
    assert sum(epoch.target_pieces) == datasets.train.target_lengths.sum()
    longest = max(batch.longest_source for batch in epoch.batches), max(batch.longest_target for batch in epoch.batches)
    assert longest == datasets.longest
    assert max(map(len, epoch.updates)) >= config.batching.update_freq


def contents(folder: Path) -> dict[Path, tuple[int, int]]:
    """Of all files and folders the size, and when they were written."""
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_nothing_is_written(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run()
    before = contents(tmp_path)
    rows = dry_run(config)
    assert contents(tmp_path) == before and not (tmp_path / "run").exists()
    assert rows["to the end"].startswith("12 updates in ") and float(rows["an update"].split()[0]) > 0


def test_a_run_that_is_there_stays_as_it_is(tiny_run: MakeConfig, tmp_path: Path) -> None:
    config = tiny_run()
    train(config)
    before = contents(tmp_path / "run")
    assert "memory" in dry_run(config)
    assert contents(tmp_path / "run") == before


def test_training_does_not_take_a_dry_run_for_a_run(tiny_run: MakeConfig) -> None:
    with pytest.raises(UsageError, match="dry_run=true does not train"):
        nmt.train(tiny_run(dry_run=True))


@pytest.mark.slow
def test_batches_that_will_not_fit_are_not_tried(tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would be ended by the system."""
    made: list[int] = []
    try_update = forecast.try_update

    def counted(updater: Any, batches: Any) -> float:
        made.append(sum(map(len, batches.batches)))
        return try_update(updater, batches)

    monkeypatch.setattr(forecast, "try_update", counted)
    config = tiny_run()
    assert "an update" in dry_run(config)
    whole = max(made)
    made.clear()
    monkeypatch.setattr(forecast, "most_memory", lambda device: 1)
    rows = dry_run(config)
    assert "an update" not in rows and "will not fit" in rows["memory"]
    assert 0 < max(made) <= (whole + 1) // 2
