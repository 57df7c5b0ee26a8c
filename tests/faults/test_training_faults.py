"""What can go wrong around a training run, and what must then happen."""

from __future__ import annotations

import dataclasses
import errno
import json
import math
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.errors import DataError, Interrupted, NMTError, OutputError, StorageError, UsageError
from nmt.reporting.stopwatch import ACTIVITIES
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.files import Verify
from nmt.storage.lock import one_writer
from nmt.storage.run_folder import checkpoints_in, pointed
from nmt.training.assemble import train
from nmt.training.checkpoints import store as store_module
from nmt.training.checkpoints.store import CheckpointStore
from nmt.training.loop.validation import LossValidator

MakeConfig = Callable[..., TrainConfig]


def run_folder(config: TrainConfig) -> Path:
    return Path(config.checkpoint.save_dir)


def weights(run: Path) -> dict[str, Tensor]:
    stored = read_checkpoint(checkpoints_in(run)[-1]).model
    return {name: tensor.clone() for name, tensor in stored.items()}  # what was read may be a view of the file


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def events(run: Path, kind: str) -> list[dict[str, Any]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == kind]


def elsewhere(config: TrainConfig, folder: Path, **changes: Any) -> TrainConfig:
    checkpoint = dataclasses.replace(config.checkpoint, save_dir=str(folder))
    return dataclasses.replace(config, checkpoint=checkpoint, **changes)


def test_training_half_way_and_going_on_gives_the_weights_of_training_at_once(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    train(tiny_run(training=TrainingConfig(max_update=7)))
    train(tiny_run(training=TrainingConfig(max_update=14)))
    whole = elsewhere(tiny_run(training=TrainingConfig(max_update=14)), tmp_path / "whole")
    train(whole)
    assert equal(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_a_finished_run_is_left_as_it_is(tiny_run: MakeConfig, tmp_path: Path) -> None:
    first = train(tiny_run())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("checkpoint-*/*")}
    second = train(tiny_run())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").glob("checkpoint-*/*")} == before
    assert second == first


def test_a_death_between_the_last_checkpoint_and_what_names_it_is_made_good(
    tiny_run: MakeConfig, tmp_path: Path
) -> None:
    """The pointers and the end of the log, with the figures of the whole run, which had ended before."""
    run = tmp_path / "run"
    train(tiny_run(training=TrainingConfig(max_update=8)))
    first = train(tiny_run())
    pointers = {name: (run / f"{name}.json").read_bytes() for name in ("last", "best")}
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    assert json.loads(lines[-1])["event"] == "end"
    for name in pointers:
        (run / f"{name}.json").write_text(json.dumps({"checkpoint": checkpoints_in(run)[0].name}), encoding="utf-8")
    (run / "log.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    assert train(tiny_run()) == first
    assert {name: (run / f"{name}.json").read_bytes() for name in pointers} == pointers
    again = (run / "log.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    *before, start, _ = again
    assert before == lines[:-1] and json.loads(start)["event"] == "start"
    ends = [json.loads(written[-1]) for written in (again, lines)]
    for end in ends:
        assert end.pop("times").keys() == set(ACTIVITIES)  # the checkpoint that it resumed from took time, too
        end.pop("processor_share")
    assert ends[0] == ends[1]


def test_a_damaged_last_checkpoint_costs_only_the_updates_after_the_one_before(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    train(tiny_run())
    expected = weights(tmp_path / "run")
    damaged = checkpoints_in(tmp_path / "run")[-1] / "model.safetensors"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    train(tiny_run())
    assert "model.safetensors is damaged" in caplog.text and "the updates after 8 are lost" in caplog.text
    assert equal(weights(tmp_path / "run"), expected)


def test_a_run_folder_with_nothing_but_damage_is_refused(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run())
    for path in (tmp_path / "run").glob("checkpoint-*/training.json"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="no checkpoint in .* can be read"):
        train(tiny_run())


@pytest.mark.parametrize(
    ("changes", "listed"),
    [
        ({"seed": 2}, "seed: 1 -> 2"),
        ({"batching.max_tokens": 100}, "batching.max_tokens: 120 -> 100"),
        ({"criterion.label_smoothing": 0.2}, "criterion.label_smoothing: 0.1 -> 0.2"),
        ({"model.d_ff": 32}, "model.d_ff: 24 -> 32"),
        ({"optimizer.lr": 0.02}, "optimizer.lr: 0.01 -> 0.02"),
        ({"training.clip_norm": 1.0}, "training.clip_norm: 0.0 -> 1.0"),
        ({"training.clip_value": 1.0}, "training.clip_value: null -> 1.0"),
    ],
)
def test_going_on_with_another_setting_is_refused_by_name(
    tiny_run: MakeConfig, changes: dict[str, Any], listed: str
) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    with pytest.raises(UsageError, match=listed) as caught:
        train(changed(tiny_run(), changes))
    assert "--reset" in str(caught.value)


def test_going_on_with_other_sentences_is_refused_and_possible(
    tiny_run: MakeConfig, make_copy_corpus: Callable[..., Path], tmp_path: Path
) -> None:
    """Of the same vocabulary: nothing else would notice."""
    train(tiny_run(training=TrainingConfig(max_update=4)))
    other = {"data": [str(make_copy_corpus(train=601, valid=40, test=40))]}
    with pytest.raises(UsageError, match="data: the corpus or its vocabulary changed.*--reset-dataloader"):
        train(tiny_run(**other))
    assert train(changed(tiny_run(**other), {"checkpoint.reset_dataloader": True})).update == 12
    assert train(tiny_run(**other)).update == 12, "from then on it is the run's own"


def test_reset_goes_on_with_another_setting(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    config = changed(tiny_run(), {"seed": 2, "optimizer.lr": 0.02, "checkpoint.reset": True})
    assert train(config).update == 12
    assert events(tmp_path / "run", "train")[-1]["lr"] == pytest.approx(0.02 * math.sqrt(4 / 12))


def training_values(run: Path) -> tuple[dict[str, Tensor], Any]:
    training = read_checkpoint(checkpoints_in(run)[-1], training=True).training
    assert training is not None
    return dict(training.tensors), training.values


def optimizer_steps(run: Path) -> set[float]:
    tensors, _ = training_values(run)
    return {float(tensor) for name, tensor in tensors.items() if name.endswith(".step")}


def test_an_optimizer_that_is_reset_begins_afresh_once(tiny_run: MakeConfig, tmp_path: Path) -> None:
    run, changes = tmp_path / "run", {"checkpoint.reset_optimizer": True, "optimizer.betas": [0.8, 0.9]}
    train(tiny_run(training=TrainingConfig(max_update=4)))
    assert optimizer_steps(run) == {4.0}
    for max_update in (10, 12):  # the second time it is a run that goes on
        train(changed(tiny_run(training=TrainingConfig(max_update=max_update)), changes))
        assert optimizer_steps(run) == {max_update - 4.0}
    train(changed(tiny_run(training=TrainingConfig(max_update=14)), {**changes, "optimizer.betas": [0.7, 0.9]}))
    assert optimizer_steps(run) == {2.0}, "changed once more under the same flag"


def test_a_scheduler_that_is_reset_may_have_another_rate(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    train(changed(tiny_run(), {"optimizer.lr": 0.02, "checkpoint.reset_lr_scheduler": True}))
    assert events(tmp_path / "run", "train")[-1]["lr"] == pytest.approx(0.02 * math.sqrt(4 / 12))
    assert optimizer_steps(tmp_path / "run") == {12.0}


def test_meters_that_are_reset_forget_the_best_score(tiny_run: MakeConfig, tmp_path: Path) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    before = training_values(tmp_path / "run")[1]["best"]["history"]
    train(changed(tiny_run(training=TrainingConfig(max_update=5)), {"checkpoint.reset_meters": True}))
    after = training_values(tmp_path / "run")[1]["best"]["history"]
    assert len(before) == len(after) == 1 and before != after


@pytest.mark.parametrize("changes", [{}, {"seed": 2}])
def test_a_dataloader_that_is_reset_begins_the_epoch_again(
    tiny_run: MakeConfig, tmp_path: Path, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    position = training_values(tmp_path / "run")[1]["run"]["position"]
    assert position["batch"] > 1
    train(changed(tiny_run(training=TrainingConfig(max_update=5)), {**changes, "checkpoint.reset_dataloader": True}))
    assert training_values(tmp_path / "run")[1]["run"]["position"] == {**position, "batch": 1}


def test_limits_and_rhythms_may_change_between_starts(tiny_run: MakeConfig) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    changes = {"checkpoint.save_interval_updates": 5, "report.log_interval": 2, "validation.interval_updates": 3}
    assert train(changed(tiny_run(), changes)).update == 12


def test_another_architecture_is_refused_even_with_reset(tiny_run: MakeConfig) -> None:
    train(tiny_run(training=TrainingConfig(max_update=4)))
    with pytest.raises(UsageError, match="holds another architecture"):
        train(changed(tiny_run(), {"model.d_ff": 32, "checkpoint.reset": True}))


def test_a_fresh_start_does_not_mix_with_old_checkpoints(tiny_run: MakeConfig) -> None:
    train(tiny_run())
    with pytest.raises(OutputError, match="choose another --save-dir"):
        train(changed(tiny_run(), {"checkpoint.restore": False}))


def test_two_processes_do_not_write_one_run_folder(tiny_run: MakeConfig, tmp_path: Path) -> None:
    with one_writer(tmp_path / "run"), pytest.raises(OutputError, match=r"is being written by process \d+ on .* since"):
        train(tiny_run())


def test_a_full_disk_during_a_save_is_a_warning_and_training_goes_on(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill_disk_at(monkeypatch, updates={4, 8})
    assert train(tiny_run()).update == 12
    assert caplog.text.count("No space left on device") == 2
    assert [path.name[-2:] for path in checkpoints_in(tmp_path / "run")] == ["12"]


def test_a_full_disk_at_the_last_save_fails_the_run(tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    fill_disk_at(monkeypatch, updates={12})
    with pytest.raises(StorageError, match="No space left on device"):
        train(tiny_run())


def test_a_log_that_cannot_be_written_costs_nothing_else(
    tiny_run: MakeConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log.jsonl").symlink_to("/dev/full")
    assert train(tiny_run()).update == 12
    assert len([line for line in caplog.messages if "log.jsonl" in line]) == 1


def test_a_run_folder_that_vanishes_is_made_again(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    save = CheckpointStore.save

    def vanish_once(self: CheckpointStore, snapshot: Any, **options: Any) -> Any:
        if snapshot.info.update == 8:
            shutil.rmtree(tmp_path / "run")
        return save(self, snapshot, **options)

    monkeypatch.setattr(CheckpointStore, "save", vanish_once)
    config = tiny_run()  # the log must not be written to while the folder vanishes
    train(dataclasses.replace(config, checkpoint=dataclasses.replace(config.checkpoint, asynchronous=False)))
    assert (tmp_path / "run" / "tokenizer" / "pair.json").is_file() and pointed(tmp_path / "run", "last") is not None


def test_a_metric_that_fails_does_not_end_training(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise ZeroDivisionError("no words")

    monkeypatch.setattr("nmt.scoring.per_cent", crash)  # which exact calls, and chrf does not
    result = train(tiny_run(validation=ValidationConfig(metrics=["exact", "chrf"], samples=0, best_metric="exact")))
    assert result.update == 12 and result.best is None
    assert result.failures == {"exact": "ZeroDivisionError: no words"}
    assert "chrf" in events(tmp_path / "run", "valid")[-1]


def test_updates_that_are_not_finite_are_skipped_and_end_the_run_when_they_follow_each_other(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison_from(monkeypatch, update=7)
    with pytest.raises(NMTError, match="3 updates in a row .* the last good checkpoint is .*00000004") as caught:
        train(tiny_run(training=TrainingConfig(max_update=12, max_bad_updates=3)))
    assert caught.value.exit_status == 1
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run").values())
    left = [json.loads(path.read_text()) for path in sorted((tmp_path / "run" / "bad-updates").iterdir())]
    assert [(bad["update"], bool(bad["parameters"])) for bad in left] == [(7, True)] * 3
    assert all(pair["target"] for bad in left for batch in bad["batches"] for pair in batch)


def test_a_stop_in_the_middle_of_a_validation_repeats_it_when_the_run_goes_on(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tiny_run(validation=ValidationConfig(interval=None, interval_updates=6, samples=0))
    whole = elsewhere(config, tmp_path / "whole")
    train(whole)
    with monkeypatch.context() as patch:
        validate = LossValidator.__call__

        def interrupted(self: LossValidator, stop: Callable[[], bool]) -> dict[str, float]:
            signal.raise_signal(signal.SIGTERM)
            return validate(self, stop)

        patch.setattr(LossValidator, "__call__", interrupted)
        with pytest.raises(Interrupted) as caught:
            train(config)
    assert caught.value.exit_status == 75 and not events(tmp_path / "run", "valid")
    assert train(config).update == 12
    assert events(tmp_path / "run", "valid") == events(tmp_path / "whole", "valid")


def changed(config: TrainConfig, changes: dict[str, Any]) -> TrainConfig:
    """The configuration with other values under dotted names."""
    for key, value in changes.items():
        section, _, option = key.rpartition(".")
        setattr(getattr(config, section) if section else config, option, value)
    return config


def fill_disk_at(monkeypatch: pytest.MonkeyPatch, updates: set[int]) -> None:
    write = store_module.write_checkpoint

    def full(path: Path, **parts: Any) -> None:
        if parts["info"].update in updates:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, **parts)

    monkeypatch.setattr(store_module, "write_checkpoint", full)


def poison_from(monkeypatch: pytest.MonkeyPatch, update: int) -> None:
    """From this update on, every gradient is NaN."""
    from nmt.training.loop import updater

    divide = updater.divide
    calls = 0

    def poisoned(gradients: list[Tensor], denominator: Tensor) -> None:
        nonlocal calls
        calls += 1
        divide(gradients, denominator * (float("nan") if calls >= update else 1.0))

    monkeypatch.setattr(updater, "divide", poisoned)


def test_a_flipped_byte_of_the_corpus_is_found_on_demand(tiny_run: MakeConfig, tmp_path: Path) -> None:
    """An id that became another id shows in nothing but the checksum."""
    config = tiny_run()
    corpus = shutil.copytree(config.data[0], tmp_path / "damaged")
    tokens = next(corpus.glob("train.*.tokens.npy"))
    ids = np.load(tokens)
    ids[0] = ids[1]
    np.save(tokens, ids)
    damaged = changed(config, {"data": [str(corpus)]})
    assert train(damaged).update == 12
    with pytest.raises(DataError, match=r"tokens\.npy is damaged: its checksum differs"):
        train(changed(damaged, {"verify": Verify.full}))
