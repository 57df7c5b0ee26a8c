"""When a checkpoint is due, and which old ones may go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nmt.config.sections import CheckpointConfig
from nmt.storage.checkpoints import CheckpointInfo
from nmt.training.checkpoints.retention import superfluous


@pytest.mark.parametrize(
    ("options", "update", "epoch", "ends_epoch", "reasons"),
    [
        ({}, 100, 1, False, ()),
        ({}, 100, 1, True, ("epoch",)),
        ({"save_interval": 2}, 100, 1, True, ()),
        ({"save_interval": 2}, 100, 2, True, ("epoch",)),
        ({"save_interval": None}, 100, 2, True, ()),
        ({"save_interval_updates": 50}, 100, 1, False, ("update",)),
        ({"save_interval_updates": 60}, 100, 1, False, ()),
        ({"save_interval_updates": 50}, 100, 1, True, ("update", "epoch")),
    ],
)
def test_checkpoints_are_due_by_updates_and_epochs(
    options: dict[str, Any], update: int, epoch: int, ends_epoch: bool, reasons: tuple[str, ...]
) -> None:
    assert CheckpointConfig(**options).reasons_to_save(update, epoch if ends_epoch else None, minutes=0.0) == reasons


def test_after_a_skipped_update_no_checkpoint_is_due_by_updates() -> None:
    assert CheckpointConfig(save_interval_updates=1, save_interval=1).reasons_to_save(None, 1, minutes=0.0) == (
        "epoch",
    )


@pytest.mark.parametrize(("minutes", "reasons"), [(9.99, ()), (10.0, ("minutes",)), (11.0, ("minutes",))])
def test_checkpoints_are_due_by_minutes(minutes: float, reasons: tuple[str, ...]) -> None:
    options = CheckpointConfig(save_interval_minutes=10, save_interval=None)
    assert options.reasons_to_save(1, None, minutes) == reasons


def stored(*entries: tuple[str, float | None]) -> dict[Path, CheckpointInfo]:
    """Checkpoints of updates 1, 2, ..., each with its reasons (joined by +) and its loss."""
    return {
        Path(str(update)): CheckpointInfo(
            update, 1, tuple(reasons.split("+")), {} if loss is None else {"loss": loss, "bleu": 100 - loss}
        )
        for update, (reasons, loss) in enumerate(entries, 1)
    }


EPOCHS = stored(("epoch", 5.0), ("epoch", 4.0), ("epoch", 4.5), ("epoch", 6.0), ("epoch", 7.0))
MIXED = stored(("update", 5.0), ("epoch", 1.0), ("update", 2.0), ("update+epoch", 3.0), ("minutes", 4.0))
OTHERS = stored(("best", 3.0), ("signal", None), ("best", 2.0), ("final", None))


@pytest.mark.parametrize(
    ("checkpoints", "options", "deleted"),
    [
        (EPOCHS, {}, []),
        (EPOCHS, {"keep_last_epochs": 1}, [1, 3]),
        (EPOCHS, {"keep_last_epochs": 2}, [1, 3]),
        (EPOCHS, {"keep_last_epochs": 3}, [1]),
        (EPOCHS, {"keep_last_epochs": 1, "keep_best": 2}, [1]),
        (EPOCHS, {"keep_last_epochs": 9}, []),
        (EPOCHS, {"keep_interval_updates": 1}, []),
        (MIXED, {"keep_interval_updates": 2}, [1, 3]),
        (MIXED, {"keep_interval_updates": 1, "keep_last_epochs": 1}, [1, 3]),
        (MIXED, {"keep_interval_updates": 1, "keep_last_epochs": 1, "keep_best": 2}, [1]),
        (OTHERS, {}, [1, 2]),
        (OTHERS, {"keep_best": 2}, [2]),
    ],
)
def test_a_checkpoint_goes_when_nothing_claims_it(
    checkpoints: dict[Path, CheckpointInfo], options: dict[str, Any], deleted: list[int]
) -> None:
    found = superfluous(
        checkpoints,
        CheckpointConfig(**options),
        metric="loss",
        higher_is_better=False,
        named=frozenset(),
        written=list(checkpoints)[-1],
    )
    assert [int(path.name) for path in found] == deleted


def test_a_metric_that_should_be_high_keeps_the_highest() -> None:
    options = CheckpointConfig(keep_last_epochs=1)
    found = superfluous(EPOCHS, options, metric="bleu", higher_is_better=True, named=frozenset(), written=Path("5"))
    assert [int(path.name) for path in found] == [1, 3]


def test_what_a_pointer_names_stays() -> None:
    options = CheckpointConfig(keep_last_epochs=1)
    found = superfluous(
        EPOCHS, options, metric="loss", higher_is_better=False, named={Path("1"), Path("5")}, written=Path("5")
    )
    assert [int(path.name) for path in found] == [3]


def test_the_newest_two_stay_so_that_one_may_be_damaged() -> None:
    improving = stored(("epoch", 5.0), ("epoch", 4.0), ("epoch", 3.0))
    options = CheckpointConfig(keep_last_epochs=1)
    found = superfluous(improving, options, metric="loss", higher_is_better=False, named={Path("3")}, written=Path("3"))
    assert [int(path.name) for path in found] == [1]


def test_the_newest_two_are_those_of_the_course_that_the_run_is_on() -> None:
    """It fell back from the last one, which is damaged and stays, and has written another before it."""
    options = CheckpointConfig(keep_last_epochs=1)
    left = stored(("epoch", 1.0), ("epoch", 5.0), ("signal", 6.0), ("epoch", 7.0))
    found = superfluous(left, options, metric="loss", higher_is_better=False, named={Path("3")}, written=Path("3"))
    assert Path("2") not in found and Path("3") not in found


def test_while_the_model_is_in_doubt_the_newest_good_checkpoint_stays() -> None:
    options = CheckpointConfig(keep_interval_updates=1)
    found = stored(*[("update", None)] * 6)
    rule: dict[str, Any] = {"metric": "loss", "higher_is_better": False, "named": set(), "written": Path("6")}
    assert superfluous(found, options, **rule) == [Path(str(update)) for update in (1, 2, 3, 4)]
    assert superfluous(found, options, **rule, good_until=3) == [Path(str(update)) for update in (1, 2, 4)]
    assert superfluous(found, options, **rule, good_until=0) == [Path(str(update)) for update in (1, 2, 3, 4)]
