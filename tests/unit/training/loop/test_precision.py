"""Which number format is chosen, and what it does to a step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.choices import Precision
from nmt.config.sections import CheckpointConfig, DeviceConfig, TrainConfig, TrainingConfig, ValidationConfig
from nmt.data.batching.batch import collate
from nmt.devices.kinds import Cuda, Device
from nmt.errors import NMTError, UsageError
from nmt.storage.checkpoints import read_info
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.loop import learner as precision
from nmt.training.loop.learner import Arithmetic, LossScale, Step, choose_precision
from nmt.training.loop.trainer import Trainer

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
LARGE, SMALL = 8000, 100


@pytest.mark.parametrize(
    "device, bf16, tiles, width, vocabulary, expected",
    [
        (CUDA, True, False, 128, LARGE, Precision.bf16),
        (CUDA, False, False, 1024, LARGE, Precision.fp16),
        (CPU, True, False, 512, LARGE, Precision.bf16),
        (CPU, True, False, 256, SMALL, Precision.bf16),
        (CPU, True, False, 128, LARGE, Precision.bf16_output),
        (CPU, True, False, 128, SMALL, Precision.fp32),
        (CPU, True, True, 128, SMALL, Precision.bf16),
        (CPU, True, True, 64, LARGE, Precision.bf16_output),
        (CPU, False, False, 512, LARGE, Precision.fp32),
    ],
)
def test_auto_is_a_rule_over_device_capability_and_size(
    device: torch.device,
    bf16: bool,
    tiles: bool,
    width: int,
    vocabulary: int,
    expected: Precision,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for kind in (Device, Cuda):
        monkeypatch.setattr(kind, "computes_bf16", lambda device: bf16)
    monkeypatch.setattr(Device, "multiplies_tiles", lambda device: tiles)
    assert choose_precision(Precision.auto, device, width=width, vocabulary=vocabulary) is expected
    assert choose_precision(Precision.fp32, device, width=width, vocabulary=vocabulary) is Precision.fp32


@pytest.mark.parametrize(
    "device, bf16, before, expected",
    [
        (CPU, True, Precision.fp32, Precision.fp32),
        (CPU, True, Precision.bf16_output, Precision.bf16_output),
        (CPU, False, Precision.bf16, Precision.fp32),
        (CPU, True, Precision.fp16, Precision.bf16),
        (CUDA, True, Precision.fp16, Precision.fp16),
        (CUDA, False, Precision.bf16, Precision.fp16),
    ],
)
def test_auto_keeps_the_format_of_the_run_where_the_device_has_it(
    device: torch.device, bf16: bool, before: Precision, expected: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (Device, Cuda):
        monkeypatch.setattr(kind, "computes_bf16", lambda device: bf16)
    assert choose_precision(Precision.auto, device, width=512, vocabulary=LARGE, before=before) is expected


def test_a_run_keeps_what_auto_chose_at_its_start(
    tiny_run: Callable[..., TrainConfig], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = DeviceConfig("cpu", Precision.auto)
    monkeypatch.setattr(Device, "computes_bf16", lambda device: True)
    with caplog.at_level(logging.INFO, "nmt"):
        train(tiny_run(training=TrainingConfig(max_update=4), device=auto))
    assert "training on cpu in fp32 (chosen by --precision auto)" in caplog.text
    caplog.clear()
    monkeypatch.setattr(precision, "LARGE_VOCABULARY", 1)  # a new run would now take bf16_output
    with caplog.at_level(logging.INFO, "nmt"):
        train(tiny_run(training=TrainingConfig(max_update=6), device=auto))
    assert "training on cpu in fp32 (chosen by --precision auto)" in caplog.text
    assert "resuming on" not in caplog.text


def gradients(make_step: Callable[..., Step], kind: Precision) -> tuple[float, dict[str, torch.Tensor]]:
    """Loss and gradients of a batch, as the trainer computes them."""
    torch.manual_seed(1)
    step = make_step()
    arithmetic = Arithmetic(CPU, kind)
    arithmetic.prepare(step.model)
    ids = torch.tensor([[4, 5, 6, 3], [7, 8, 9, 3]]).numpy()
    batch = collate(list(ids), list(ids))
    torch.manual_seed(2)
    with arithmetic.forward_pass():
        report = step(batch)
    arithmetic.scaled(report.loss_sum).backward()
    divisor = arithmetic.scaled(report.denominator)
    found = {name: p.grad / divisor for name, p in step.named_parameters() if p.grad is not None}
    return float(report.loss_sum.detach() / report.denominator), found


@pytest.mark.parametrize("kind", [Precision.bf16, Precision.fp16, Precision.bf16_output])
def test_gradients_are_those_of_float32_but_for_rounding(make_step: Callable[..., Step], kind: Precision) -> None:
    loss, exact = gradients(make_step, Precision.fp32)
    rounded_loss, rounded = gradients(make_step, kind)
    assert rounded_loss == pytest.approx(loss, rel=0.02)
    assert rounded_loss != loss  # the format is really another one
    assert rounded.keys() == exact.keys()
    whole, other = (torch.cat([found[name].flatten() for name in sorted(exact)]) for found in (exact, rounded))
    assert other.dtype is torch.float32
    assert torch.linalg.norm(other - whole) < 0.05 * torch.linalg.norm(whole)


def test_a_loss_scale_halves_on_overflow_and_doubles_after_many_good_updates() -> None:
    scale = LossScale()
    assert scale.observe(finite=False)
    assert scale.value == LossScale.FIRST / 2
    for _ in range(LossScale.PATIENCE):
        assert not scale.observe(finite=True)
    assert scale.value == LossScale.FIRST
    scale.observe(finite=True)
    assert scale == LossScale(LossScale.FIRST, 1)


def test_a_loss_scale_has_a_largest_value_and_ends_at_its_smallest() -> None:
    scale = LossScale()
    scale.value = LossScale.LARGEST
    for _ in range(LossScale.PATIENCE):
        scale.observe(finite=True)
    assert scale.value == LossScale.LARGEST
    scale.value = 2 * LossScale.SMALLEST
    assert scale.observe(finite=False)
    assert not scale.observe(finite=False), "no scale explains it any longer"
    assert scale.value == LossScale.SMALLEST


class Overflows(Step):
    """Its second batch has an infinite gradient, and on request an infinite loss."""

    calls = 0
    loss_too = False

    def forward(self, batch: Any) -> Any:
        self.calls += 1
        report = super().forward(batch)
        if self.calls != 2:
            return report
        loss = report.loss_sum * float("inf") if self.loss_too else report.loss_sum.clone()
        loss.register_hook(lambda gradient: gradient * float("inf"))
        return replace(report, loss_sum=loss)


@pytest.fixture
def overflows(make_step: Callable[..., Step]) -> Overflows:
    step = make_step()
    step.__class__ = Overflows
    assert isinstance(step, Overflows)
    return step


def test_an_overflow_in_fp16_is_left_out_and_not_counted_as_bad(
    make_trainer: Callable[..., Trainer], overflows: Overflows, caplog: pytest.LogCaptureFixture
) -> None:
    arithmetic = Arithmetic(CPU, Precision.fp16)
    trainer = make_trainer(
        step=overflows, arithmetic=arithmetic, limits=TrainingConfig(max_update=2, max_bad_updates=1)
    )
    with caplog.at_level(logging.INFO, "nmt"):
        trainer.run()
    assert (trainer.state.update, trainer.state.skipped, overflows.calls) == (2, 0, 3)
    assert f"the loss scale is now {LossScale.FIRST / 2:g}" in caplog.text
    assert arithmetic.state() == {"value": LossScale.FIRST / 2, "good": 1}


@pytest.mark.parametrize(
    ("by_updates", "reasons"),
    [
        (None, [("best", "epoch"), ("epoch", "final")]),
        (1, [("update", "best", "epoch"), ("update",), ("update", "epoch", "final")]),
    ],
)
def test_an_overflow_at_the_end_of_an_epoch_does_not_cost_its_checkpoint(
    make_trainer: Callable[..., Trainer],
    overflows: Overflows,
    tmp_path: Path,
    by_updates: int | None,
    reasons: list[tuple[str, ...]],
) -> None:
    """It is that of the update before, which may have been saved, for reasons and with scores of its own."""
    trainer = make_trainer(
        step=overflows,
        arithmetic=Arithmetic(CPU, Precision.fp16),
        updates=[[[0, 1]], [[2, 3]]],
        limits=TrainingConfig(max_update=3),
        save=CheckpointConfig(save_interval=1, save_interval_updates=by_updates),
        validators=[lambda stop: {"loss": 1.0}],
        validation=ValidationConfig(interval=None, interval_updates=1),
    )
    trainer.run()
    infos = [read_info(path) for path in checkpoints_in(tmp_path / "run")]
    assert [info.reasons for info in infos] == reasons and all(info.scores == {"loss": 1.0} for info in infos)


@pytest.mark.parametrize("smallest", [False, True])
def test_what_no_scale_explains_is_a_bad_update_in_fp16_too(
    make_trainer: Callable[..., Trainer], overflows: Overflows, tmp_path: Path, smallest: bool
) -> None:
    """An infinite loss, or an infinite gradient at the smallest scale: dumped, counted, and the end if it goes on."""
    arithmetic = Arithmetic(CPU, Precision.fp16)
    overflows.loss_too = not smallest
    if smallest:
        arithmetic.restore({"value": LossScale.SMALLEST, "good": 0})
    trainer = make_trainer(
        step=overflows, arithmetic=arithmetic, limits=TrainingConfig(max_update=2, max_bad_updates=1)
    )
    with pytest.raises(
        NMTError, match="1 update in a row had a loss or gradient that is not finite; there is no good checkpoint"
    ):
        trainer.run()
    assert trainer.state.skipped == 1
    assert len(list((tmp_path / "run" / "bad-updates").glob("*.json"))) == 1
    assert arithmetic.state()["value"] == (LossScale.SMALLEST if smallest else LossScale.FIRST)


def test_a_checkpoint_holds_the_loss_scale(
    make_trainer: Callable[..., Trainer], make_step: Callable[..., Step], tmp_path: Path
) -> None:
    from nmt.storage.checkpoints import read_checkpoint
    from nmt.storage.run_folder import checkpoints_in

    make_trainer(arithmetic=Arithmetic(CPU, Precision.fp16), limits=TrainingConfig(max_update=2)).run()
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True)
    again = Arithmetic(CPU, Precision.fp16)
    make_trainer(arithmetic=again).restore(ResumePoint.of(stored))
    assert again.state() == {"value": LossScale.FIRST, "good": 2}
    plain = Arithmetic(CPU, Precision.fp32)
    make_trainer(arithmetic=plain).restore(ResumePoint.of(stored))
    assert plain.state() == {}


def test_usual_is_auto_on_a_gpu_and_fp32_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Device, Cuda):
        monkeypatch.setattr(kind, "computes_bf16", lambda device: True)
    sizes: dict[str, Any] = {"width": 512, "vocabulary": LARGE}
    assert choose_precision(Precision.usual, CPU, **sizes, before=Precision.bf16) is Precision.fp32
    assert choose_precision(Precision.usual, CUDA, **sizes) is Precision.bf16
    assert choose_precision(Precision.usual, CUDA, **sizes, before=Precision.fp32) is Precision.fp32


@pytest.mark.parametrize("capability", [(7, 0), (8, 0)])
def test_tf32_needs_ampere(capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    if capability >= (8, 0):
        assert choose_precision(Precision.tf32, CUDA, width=8, vocabulary=8) is Precision.tf32
        return
    for device in (CPU, CUDA):
        with pytest.raises(
            UsageError, match="tf32 is for NVIDIA GPUs of capability 8.0 and higher; use --precision fp32"
        ):
            choose_precision(Precision.tf32, device, width=8, vocabulary=8)


@pytest.mark.parametrize(
    ("precision", "products"), [(Precision.fp32, "ieee"), (Precision.tf32, "tf32"), (Precision.bf16, "tf32")]
)
def test_products_in_float32_are_exact_only_where_that_was_chosen(
    precision: Precision, products: str, make_step: Callable[..., Step], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    before = torch.backends.cuda.matmul.fp32_precision
    try:
        Arithmetic(CUDA, precision).prepare(make_step().model)
        assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.rnn.fp32_precision == products
    finally:
        Cuda(CUDA).allow_tf32(False)
        torch.backends.cuda.matmul.fp32_precision = before
