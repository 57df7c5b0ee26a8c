"""Averaging checkpoints: which are taken, what the mean is, what is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.averaging import average_checkpoints, select
from nmt.config.commands import AverageConfig
from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.storage.checkpoints import CheckpointInfo, TrainingState, read_checkpoint, write_checkpoint
from nmt.storage.run_folder import checkpoint_name
from tests.tiny_models import WORDS, write_tiny_model


def save(
    run: Path,
    update: int,
    tensors: dict[str, Tensor] | None = None,
    *,
    epoch: int = 1,
    reasons: tuple[str, ...] = ("update",),
    width: int = 3,
    dropout: float = 0.1,
    best_metric: str = "loss",
    more: dict[str, Any] | None = None,
    **scores: float,
) -> Path:
    path = run / checkpoint_name(epoch, update)
    write_checkpoint(
        path,
        model=tensors or {"weight": torch.full((2,), float(update))},
        config={
            "model": {"name": "toy", "width": width, "dropout": dropout} | (more or {}),
            "validation": {"best_metric": best_metric},
        },
        info=CheckpointInfo(update, epoch, reasons, scores),
        training=TrainingState({}, {}),
    )
    return path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "tokenizer" / "pair.json").write_text("{}")
    return folder


def average(run: Path, **options: Any) -> Path:
    config = AverageConfig(**({"inputs": [str(run)], "output": str(run / "averaged")} | options))
    return average_checkpoints(config).folder


def test_the_average_is_the_mean_of_the_last_n(run: Path) -> None:
    for update in (1, 2, 3, 6):
        save(run, update)
    stored = read_checkpoint(average(run, num_update_checkpoints=3))
    assert torch.equal(stored.model["weight"], torch.full((2,), 11 / 3))


def test_averaging_that_takes_long_says_how_far_it_is(
    run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nmt.progress.SECONDS_BETWEEN_LINES", 0.0)
    for update in (1, 2, 3):
        save(run, update)
    with caplog.at_level("INFO", "nmt"):
        average(run, num_update_checkpoints=3)
    said = [message.partition(" checkpoints (")[0] for message in caplog.messages if "added up" in message]
    assert said == ["added up 1 of 3", "added up 2 of 3", "added up 3 of 3"]


def test_the_average_stands_alone_and_has_no_training_state(run: Path) -> None:
    save(run, 1)
    output = average(run)
    assert (output / "tokenizer" / "pair.json").is_file() and not (output / "training.json").exists()


def test_epochs_and_updates_are_told_apart(run: Path) -> None:
    save(run, 10, epoch=1)
    save(run, 20, epoch=1, reasons=("update", "epoch"))
    save(run, 30, epoch=2)
    save(run, 40, epoch=2, reasons=("epoch",))
    options = {"inputs": [str(run)], "output": "x"}
    by_epoch = select(AverageConfig(num_epoch_checkpoints=2, **options))  # type: ignore[arg-type]
    by_update = select(AverageConfig(num_update_checkpoints=2, **options))  # type: ignore[arg-type]
    assert [path.name[-2:] for path in by_epoch] == ["20", "40"]
    assert [path.name[-2:] for path in by_update] == ["20", "30"]


def test_checkpoints_by_minutes_count_as_updates(run: Path) -> None:
    save(run, 10, reasons=("minutes",))
    assert len(select(AverageConfig(inputs=[str(run)], output="x", num_update_checkpoints=1))) == 1


def test_the_upper_bound_leaves_out_later_ones(run: Path) -> None:
    for update in (1, 2, 3, 4):
        save(run, update)
    stored = read_checkpoint(average(run, num_update_checkpoints=2, checkpoint_upper_bound=3))
    assert torch.equal(stored.model["weight"], torch.full((2,), 2.5))


def test_fewer_than_asked_for_are_averaged_with_a_warning(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(run, 1)
    save(run, 3)
    with caplog.at_level(logging.WARNING, logger="nmt"):
        stored = read_checkpoint(average(run, num_update_checkpoints=5))
    assert "only 2 of 5 requested" in caplog.text and torch.equal(stored.model["weight"], torch.full((2,), 2.0))


def test_no_checkpoint_is_status_66(run: Path) -> None:
    with pytest.raises(MissingInputError, match="no checkpoint"):
        average(run, num_update_checkpoints=5)


def test_an_existing_output_is_refused_unless_overwritten(run: Path) -> None:
    save(run, 1)
    average(run)
    with pytest.raises(OutputError):
        average(run)
    assert average(run, overwrite=True).is_dir()


def test_an_average_that_was_being_replaced_when_the_command_was_killed_is_not_lost(run: Path) -> None:
    save(run, 1)
    output = average(run)
    output.rename(run / ".averaged.1-00ff00ff.00ff00ff.old.tmp")
    with pytest.raises(OutputError, match="--overwrite"):
        average(run)
    average(run, overwrite=True)
    assert not list(run.glob(".averaged.*"))


def test_integers_are_kept_where_they_agree(run: Path) -> None:
    save(run, 1, {"w": torch.ones(1), "n": torch.tensor([4])})
    save(run, 2, {"w": torch.zeros(1), "n": torch.tensor([4])})
    assert torch.equal(read_checkpoint(average(run)).model["n"], torch.tensor([4]))


def test_what_was_dropped_in_training_is_no_part_of_the_architecture(run: Path) -> None:
    save(run, 1, dropout=0.1)
    save(run, 3, dropout=0.3)
    assert torch.equal(read_checkpoint(average(run)).model["weight"], torch.full((2,), 2.0))


def test_an_option_that_only_the_newer_of_two_checkpoints_knows_does_not_part_them_if_it_is_null(run: Path) -> None:
    save(run, 1)
    save(run, 3, more={"neighborhood": None})
    assert torch.equal(read_checkpoint(average(run)).model["weight"], torch.full((2,), 2.0))


@pytest.mark.parametrize(
    ("second", "width", "sentence"),
    [
        ({"weight": torch.tensor([1.0, float("nan")])}, 3, "NaN"),
        ({"weight": torch.ones(3)}, 3, "shape"),
        ({"weight": torch.ones(2), "extra": torch.ones(1)}, 3, "extra"),
        ({"weight": torch.ones(2)}, 4, r"and .*1 have different architectures \(model.width: 3 -> 4\) and cannot"),
        ({"weight": torch.tensor([1, 2])}, 3, "integers"),
    ],
)
def test_what_has_no_mean_is_refused_by_name(run: Path, second: dict[str, Tensor], width: int, sentence: str) -> None:
    save(run, 1, {"weight": torch.tensor([1, 1])} if sentence == "integers" else None)
    save(run, 2, second, width=width)
    with pytest.raises(DataError, match=sentence):
        average(run)


def test_the_same_checkpoint_twice_is_refused(run: Path) -> None:
    path = str(save(run, 1))
    with pytest.raises(DataError, match="twice"):
        average(run, inputs=[path, path])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"inputs": []}, "no checkpoints are given; set --inputs RUN_FOLDER"),
        ({"output": ""}, "no folder for the average is given; set --output"),
        (
            {"num_update_checkpoints": 1, "num_epoch_checkpoints": 1},
            "--num-update-checkpoints and --num-epoch-checkpoints",
        ),
        ({"num_best_checkpoints": 1, "num_epoch_checkpoints": 1}, "--num-epoch-checkpoints and --num-best-checkpoints"),
        ({"metric": "loss"}, "metric=loss selects the best checkpoints; set their number with --num-best-checkpoints"),
        (
            {"num_best_checkpoints": 1, "metric": "blue"},
            r"metric=blue .*did you mean 'bleu'.* loss, nll, ppl, .*bleu, .*chrf",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(run: Path, options: dict[str, Any], sentence: str) -> None:
    save(run, 1, loss=1.0)
    with pytest.raises(UsageError, match=sentence):
        average(run, **options)


SCORES = {1: (3.0, 10.0), 2: (1.0, 30.0), 3: (4.0, 40.0), 4: (2.0, 20.0)}  # loss and BLEU by update


@pytest.fixture
def scored(run: Path) -> Path:
    for update, (loss, bleu) in SCORES.items():
        save(run, update, loss=loss, bleu=bleu, best_metric="bleu")
    save(run, 5, best_metric="bleu")  # was not validated
    return run


def best(run: Path, count: int, **options: Any) -> list[int]:
    config = AverageConfig(inputs=[str(run)], output="x", num_best_checkpoints=count, **options)
    return [int(path.name[-8:]) for path in select(config)]


@pytest.mark.parametrize(
    ("options", "updates"),
    [
        ({"metric": "loss"}, [2, 4]),
        ({"metric": "bleu"}, [2, 3]),
        ({}, [2, 3]),  # the metric of the run
        ({"metric": "bleu", "checkpoint_upper_bound": 2}, [1, 2]),
    ],
)
def test_the_best_are_taken_in_the_direction_of_the_metric(
    scored: Path, options: dict[str, Any], updates: list[int]
) -> None:
    assert best(scored, 2, **options) == updates


def test_a_score_that_is_no_number_is_none(scored: Path) -> None:
    save(scored, 6, loss=float("nan"), bleu=float("nan"), best_metric="bleu")
    assert best(scored, 1, metric="loss") == [2] and best(scored, 1) == [3]


def test_fewer_scored_checkpoints_than_asked_for_are_a_warning(scored: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="nmt"):
        assert best(scored, 9) == [1, 2, 3, 4]
    assert "only 4 of 9 requested" in caplog.text


def test_a_score_that_no_checkpoint_has_is_named_with_those_that_there_are(scored: Path) -> None:
    with pytest.raises(MissingInputError, match="has a score 'chrf'; there are: bleu, loss"):
        best(scored, 2, metric="chrf")


def test_checkpoints_without_any_score_are_named(run: Path) -> None:
    save(run, 1)
    with pytest.raises(MissingInputError, match="has a score 'loss'.*none was written at a validation"):
        best(run, 2)


def test_runs_of_several_metrics_need_one_to_be_chosen(scored: Path) -> None:
    save(scored, 6, loss=1.0)
    with pytest.raises(UsageError, match=r"different best-checkpoint metrics \(bleu, loss\)"):
        best(scored, 2)
    assert best(scored, 2, metric="loss") == [2, 6]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_other_files_is_never_replaced(run: Path, tmp_path: Path, overwrite: bool) -> None:
    save(run, 1)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("mine")
    with pytest.raises(OutputError):
        average(run, output=str(tmp_path / "precious"), overwrite=overwrite)
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "mine"


def test_a_file_is_never_replaced(run: Path, tmp_path: Path) -> None:
    save(run, 1)
    (tmp_path / "train.en").write_text("a man")
    with pytest.raises(OutputError, match="not a folder"):
        average(run, output=str(tmp_path / "train.en"), overwrite=True)
    assert (tmp_path / "train.en").read_text() == "a man"


def test_a_checkpoint_with_a_file_of_the_user_in_it_is_not_replaced(run: Path) -> None:
    save(run, 1)
    (average(run) / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="notes.txt"):
        average(run, overwrite=True)


@pytest.mark.parametrize("output", [".", "checkpoint-0001-00000001"])
def test_neither_the_run_folder_nor_an_input_is_replaced(run: Path, output: str) -> None:
    save(run, 1)
    before = sorted(run.rglob("*"))
    with pytest.raises(OutputError):
        average(run, output=str(run / output), overwrite=True)
    assert sorted(run.rglob("*")) == before


def test_an_existing_output_is_refused_before_an_input_is_read(run: Path) -> None:
    save(run, 1)
    average(run)
    with pytest.raises(OutputError):
        average(run, inputs=["nowhere"])


def test_named_checkpoints_are_sorted_by_update(run: Path) -> None:
    first, second, third = (save(run, update) for update in (1, 2, 3))
    assert select(AverageConfig(inputs=[str(third), str(first), str(second)], output="x")) == [first, second, third]


def test_an_average_of_one_is_a_notice(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    save(run, 1)
    with caplog.at_level(logging.WARNING, logger="nmt"):
        average(run)
    assert "averaging a single checkpoint" in caplog.text


def test_checkpoints_of_runs_with_the_same_vocabularies_are_averaged(tmp_path: Path) -> None:
    runs = [write_tiny_model(tmp_path / name, updates=1) for name in ("one", "two")]
    assert average(tmp_path, inputs=[str(run) for run in runs], output=str(tmp_path / "mean")).is_dir()


def test_checkpoints_of_runs_with_other_vocabularies_of_the_same_size_are_refused(tmp_path: Path) -> None:
    words = {"one": WORDS, "two": WORDS[::-1]}
    runs = [write_tiny_model(tmp_path / name, updates=1, words=words[name]) for name in words]
    with pytest.raises(DataError, match="have different vocabularies and cannot be averaged"):
        average(tmp_path, inputs=[str(run) for run in runs], output=str(tmp_path / "mean"))
    assert not (tmp_path / "mean").exists()
