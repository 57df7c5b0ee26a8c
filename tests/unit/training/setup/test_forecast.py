"""What a run will take, told before its first update."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from nmt.config.reporting import ReportConfig
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.distributed.world import World
from nmt.errors import StorageError, UsageError
from nmt.models.transformer.config import TransformerConfig
from nmt.optim import optimizers
from nmt.training.assemble import train
from nmt.training.loop.learner import Step
from nmt.training.loop.learner_state import checkpoint_bytes
from nmt.training.loop.optimizer_state import training_mode
from nmt.training.setup import disk
from nmt.training.setup import forecast as module
from nmt.training.setup.announcements import tell_forecast
from nmt.training.setup.disk import expected_checkpoint, require_disk
from nmt.training.setup.forecast import Forecast, try_forecast
from nmt.training.setup.parts import build_optimizer

MakeConfig = Callable[..., TrainConfig]
CPU = torch.device("cpu")
TINY = {"encoder_layers": 4, "decoder_layers": 4, "d_model": 128, "d_ff": 256, "num_heads": 4, "dropout": 0.3}


def told(caplog: pytest.LogCaptureFixture, found: Forecast, left: int | None, **options: Any) -> list[str]:
    config = TrainConfig(model=options.pop("model", TransformerConfig()), training=TrainingConfig(**options))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        tell_forecast(config, found, left, CPU)
    return [record.getMessage() for record in caplog.records]


def test_a_forecast_is_one_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    (line,) = told(caplog, Forecast(0.5, 2_500_000_000, 120_000_000), 7200)
    assert line == (
        "forecast on cpu with 1 thread, at its current load: 7,200 updates in 1.0 hours, without validations; 2.5 GB of "
        "memory, 0.12 GB for each checkpoint"
    )


def test_more_than_a_day_on_a_cpu_is_a_warning_with_a_smaller_preset(caplog: pytest.LogCaptureFixture) -> None:
    found = Forecast(1.0, 10**9, 10**8)
    assert "a smaller model (--arch transformer_tiny)" in told(caplog, found, 24 * 3600 + 1)[1]
    assert "smaller model" not in told(caplog, found, 24 * 3600 + 1, model=TransformerConfig(**TINY))[1]
    assert len(told(caplog, found, 24 * 3600 - 1)) == 1
    assert len(told(caplog, found, 10**6, stop_time_hours=2)) == 1
    assert len(told(caplog, found, None)) == 1


def test_more_memory_than_there_is_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert (
        "may need 2.0 GB of memory, but the process may use only 1.0 GB; lower --max-tokens"
        in (told(caplog, Forecast(1.0, 2 * 10**9, 10**8, room=10**9), 10)[1])
    )


def free(monkeypatch: pytest.MonkeyPatch, size: int, *, spare: int | None = None) -> None:
    """Give every disk ``size`` free bytes, and folders called "spare" another disk with ``spare`` bytes."""
    real = os.stat

    def stat(path: Any, **options: Any) -> Any:
        found = real(path, **options)
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**fields | {"st_dev": 2 if "spare" in str(path) else 1})

    monkeypatch.setattr(disk, "os", SimpleNamespace(stat=stat))
    sizes = {True: size if spare is None else spare, False: size}
    usage = SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=sizes["spare" in str(path)]))
    monkeypatch.setattr(disk, "shutil", usage)


def with_folders(config: TrainConfig, **folders: str) -> TrainConfig:
    return dataclasses.replace(config, checkpoint=dataclasses.replace(config.checkpoint, **folders))


def test_a_start_without_room_for_a_checkpoint_leaves_no_run_folder(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 1000)
    config = with_folders(tiny_run(), save_dir=str(tmp_path / "runs" / "new"))
    with pytest.raises(StorageError, match=r"a checkpoint takes .* GB are free in /.*choose another --save-dir"):
        train(config)
    assert not (tmp_path / "runs").exists()


def test_a_start_without_room_in_an_existing_folder_records_its_status(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch, 1000)
    with pytest.raises(StorageError):
        train(with_folders(tiny_run(), save_dir=str(tmp_path)))
    assert json.loads((tmp_path / "status.json").read_text())["reason"] == "disk"


def test_a_run_whose_checkpoints_fit_into_the_fallback_folder_begins(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spare").mkdir()
    free(monkeypatch, 1000, spare=10**9)
    config = with_folders(tiny_run(), save_dir=str(tmp_path / "run"), fallback_dir=str(tmp_path / "spare"))
    assert train(config).checkpoint is not None


@pytest.mark.parametrize(
    ("size", "spare", "folders", "said"),
    [
        (1000, None, ["run"], ""),
        (700, None, ["run"], "0.00 GB are free in"),
        (700, 400, ["run", "spare"], ""),  # two fit into one folder, one into the other
        (700, 200, ["run", "spare"], "3 may not fit"),
        (700, None, ["run", "other"], "3 may not fit"),  # both are on one disk
        (100, 200, ["run", "spare"], "refused"),
    ],
)
def test_room_for_checkpoints_is_counted_over_the_disks_of_all_folders(
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    size: int,
    spare: int | None,
    folders: list[str],
    said: str,
) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    free(monkeypatch, size, spare=spare)
    refused = pytest.raises(StorageError, match="name a folder on another disk") if said == "refused" else nullcontext()
    with refused:
        require_disk([tmp_path / name / "not there" for name in folders], 270)
    assert bool(caplog.text) == (said not in ("", "refused")) and (said == "refused" or said in caplog.text)


def test_a_package_that_is_missing_is_refused_before_the_run_folder_is_made(
    tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    config = tiny_run(report=ReportConfig(wandb_project="mine"))
    with pytest.raises(
        UsageError, match="report.wandb_project=mine needs a package that is not installed: pip install"
    ):
        train(config)
    assert not Path(config.checkpoint.save_dir).exists()


def test_a_run_is_the_same_with_and_without_a_forecast(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ends = []
    for least in (1, 10**9):
        monkeypatch.setattr("nmt.training.setup.forecast.LEAST_UPDATES", least)
        config = tiny_run()
        folder = tmp_path / str(least)
        config = dataclasses.replace(config, checkpoint=dataclasses.replace(config.checkpoint, save_dir=str(folder)))
        with caplog.at_level(logging.INFO):
            result = train(config)
        assert result.checkpoint is not None
        ends.append((result.checkpoint / "model.safetensors").read_bytes())
    assert caplog.text.count("forecast on cpu") == 1 and "no forecast" not in caplog.text
    assert ends[0] == ends[1]


def test_a_model_that_cannot_be_copied_has_no_forecast_and_is_trained(
    tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nmt.training.setup.forecast.LEAST_UPDATES", 1)

    def fail(*arguments: object) -> None:
        raise RuntimeError("cannot be copied")

    monkeypatch.setattr(module, "forecast", fail)
    with caplog.at_level(logging.INFO):
        assert train(tiny_run(report=ReportConfig(count_flops=False))).update > 0
    assert "no forecast: cannot be copied" in caplog.text


def test_a_model_that_is_divided_among_ranks_is_not_copied_for_a_forecast(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "forecast", lambda *arguments: pytest.fail("the model is copied"))
    world, nothing = World(), cast(Any, None)
    world.divides = True
    with caplog.at_level(logging.INFO):
        assert try_forecast(TrainConfig(), nothing, nothing, nothing, nothing, world) is None
    assert caplog.messages == [
        "no forecast: it needs a copy of the whole model, and with fsdp each rank has only a part"
    ]


NAMES = [name for name in optimizers.names() if name != "schedule_free_adamw" or find_spec("schedulefree")]


@pytest.mark.parametrize("decay", [None, 0.9])
@pytest.mark.parametrize("name", NAMES)
def test_the_size_of_a_checkpoint_is_known_before_the_first_update(
    make_step: Callable[..., Step], name: str, decay: float | None
) -> None:
    if name == "schedule_free_adamw" and decay:
        pytest.skip("averages weights itself")
    options = TrainingConfig(ema_decay=decay)
    config, step = TrainConfig(optimizer=optimizers.config_class(name)(), training=options), make_step()
    expected = expected_checkpoint(config, step)
    optimizer = build_optimizer(config, step)
    training_mode(optimizer)
    for parameter in step.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert expected == checkpoint_bytes(step, optimizer)
