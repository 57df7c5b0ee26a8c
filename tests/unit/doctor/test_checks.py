"""The checks of nmt-doctor: each passes here, and fails when what it checks is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.choices import Compilation, Precision
from nmt.devices.faults import FastPath
from nmt.devices.kinds import Device
from nmt.doctor import computations as checks
from nmt.doctor.computations import USUAL
from nmt.doctor.outcomes import Check, Outcome, Skipped, Wrong, results
from nmt.doctor.report import fact_lines, result_lines
from nmt.doctor.suite import full
from nmt.engines.model_engine import ModelEngine
from nmt.testing.subjects import subject
from nmt.training.loop.learner import Step

CPU = torch.device("cpu")


SLOW = ("compiled: ", "all devices together", "a killed rank", "forecast of memory", "speed: transformer")


ABSENT = ("attention without padding", "recorded steps", "no waiting in an update")  # on a CPU


@pytest.mark.parametrize(
    "check", [check for check in full() if not check.name.startswith(SLOW)], ids=lambda check: check.name
)
def test_each_check_passes_on_a_cpu_or_says_why_it_does_not_apply(check: Check) -> None:
    (result,) = results([check], [CPU])
    absent = check.name.endswith((", tf32", ", fp16")) or check.name in ABSENT
    assert result.outcome is (Outcome.skipped if absent else Outcome.passed) and result.detail, result


@pytest.mark.nightly
@pytest.mark.parametrize("what", [Compilation.layers, Compilation.step])
def test_what_is_compiled_passes_on_a_cpu(what: Compilation) -> None:
    assert "as uncompiled" in checks.compiled(CPU, what)


def test_a_product_that_is_one_percent_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = F.linear
    monkeypatch.setattr(F, "linear", lambda x, *rest: linear(x, *rest) * (1.01 if x.dtype is torch.float32 else 1.0))
    with pytest.raises(Wrong, match=r"loss \d+\.\d+, on the CPU \d+\.\d+ .*; cosine of the gradients"):
        checks.training_step(CPU)


def test_numbers_that_are_none_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = F.linear
    monkeypatch.setattr(
        F, "linear", lambda x, *rest: linear(x, *rest) * (float("nan") if x.dtype is torch.float32 else 1)
    )
    with pytest.raises(Wrong, match="loss nan"):
        checks.training_step(CPU)


def test_a_precision_that_a_device_lacks_is_passed_over() -> None:
    with pytest.raises(Skipped, match="CPU does not compute in fp16"):
        checks.training_step(CPU, precision=Precision.fp16)


def test_other_translations_are_found() -> None:
    with pytest.raises(Wrong, match=r"sentence \d is translated as \["):
        checks._compare_translations(ModelEngine(subject(USUAL).model(seed=2), "cpu"))


def test_a_fused_optimizer_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_fused_adam_", lambda *_, **__: None)
    with pytest.raises(Wrong, match="parameters differ by"):
        checks.fused_optimizer(CPU)


def test_an_optimizer_that_applies_a_bad_gradient_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = torch._fused_adam_
    monkeypatch.setattr(torch, "_fused_adam_", lambda *parts, **more: fused(*parts, **(more | {"found_inf": None})))
    with pytest.raises(Wrong, match="applied a gradient that is not finite"):
        checks.skipped_update(CPU)


@pytest.mark.parametrize(
    "broken",
    [
        lambda query, key, value, bias: F.scaled_dot_product_attention(query, key, value),
        lambda query, key, value, bias: F.scaled_dot_product_attention(query, key, value, bias) * float("nan"),
        lambda query, key, value, bias: F.scaled_dot_product_attention(query, key.detach() + 0 * key, value, bias),
    ],
    ids=["no mask", "no numbers", "no gradient"],
)
def test_attention_that_is_wrong_is_found(broken: Callable[..., Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "scaled_dot_product_attention", broken)
    with pytest.raises(Wrong, match="heads of width 16 in torch.float32, window None"):
        checks.attention(CPU)


def test_a_kernel_without_padding_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "attends_flat", lambda device: True)
    monkeypatch.setattr(checks, "kernel_agrees", lambda kernel, device, dtype, width: width != 64)
    with pytest.raises(Wrong, match="heads of width 64 in torch.bfloat16; batches keep their padding"):
        checks.attention_without_padding(CPU)


def test_recorded_steps_that_translate_otherwise_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModelEngine(subject(USUAL).model(seed=2), "cpu")
    monkeypatch.setattr(Device, "records", True)
    monkeypatch.setattr(checks, "recorded_engine", lambda model, device: other)
    with pytest.raises(Wrong, match="is translated as"):
        checks.recorded_graphs(CPU)


@pytest.mark.parametrize("what", [Compilation.layers, Compilation.step])
def test_what_cannot_be_compiled_is_found(what: Compilation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "compile_step", lambda *_, **__: False)
    with pytest.raises(Wrong, match=f"compilation failed; training with --compile {what.value} runs uncompiled"):
        checks.compiled(CPU, what)


def test_compiled_code_that_computes_otherwise_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_wrongly(step: Step, *_: Any, **__: Any) -> bool:
        step.register_forward_hook(lambda _, __, report: replace(report, loss_sum=report.loss_sum * 1.01))
        return True

    monkeypatch.setattr(checks, "compile_step", compile_wrongly)
    with pytest.raises(Wrong, match=r"loss 72.67\d+, but 71.95\d+ uncompiled"):
        checks.compiled(CPU, Compilation.layers)


def test_steps_that_cannot_be_recorded_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU records nothing; the engine then translates without."""
    monkeypatch.setattr(Device, "records", True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: (_ for _ in ()).throw(RuntimeError("no stream")))
    with pytest.raises(Wrong, match="steps cannot be recorded; --cuda-graphs is ignored"):
        checks.recorded_graphs(CPU)


def test_a_shortage_of_memory_is_no_fault_of_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(device: torch.device) -> str:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def broken(device: torch.device) -> str:
        raise RuntimeError("no kernel image")

    found = results([Check("bf16", run, FastPath.bf16) for run in (short, broken)], [CPU])
    assert [(result.outcome, result.path) for result in found] == [
        (Outcome.failed, None),
        (Outcome.failed, FastPath.bf16),
    ]


def test_a_shortage_that_is_not_recognized_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "is_shortage", lambda error: False)
    with pytest.raises(Wrong, match="a shortage of memory is not recognized"):
        checks.memory_shortage(CPU)


@pytest.mark.parametrize("waits", [False, True])
def test_an_update_that_waits_is_found(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch can tell; here a stand-in tells."""

    def wait(*_: Any, **__: Any) -> Tensor:
        raise RuntimeError("called a synchronizing operation")

    @contextlib.contextmanager
    def refusing(device: Device) -> Iterator[bool]:
        with monkeypatch.context() as inside:
            if waits:
                inside.setattr(F, "layer_norm", wait)
            yield True

    monkeypatch.setattr(Device, "refusing_waits", refusing)
    (result,) = results([Check("no waiting", checks.no_waiting)], [CPU])
    assert result.outcome is (Outcome.failed if waits else Outcome.passed)
    assert result.detail == (
        "RuntimeError: called a synchronizing operation" if waits else "passes, norm, clipping and optimizer"
    )


def test_a_check_that_fails_in_any_way_does_not_stop_the_others() -> None:
    def raises(device: torch.device) -> str:
        raise RuntimeError("\nno kernel image\nand more")

    found = list(results([Check("broken", raises), Check("good", lambda device: "fine")], [CPU]))
    assert [(result.outcome, result.detail) for result in found] == [
        (Outcome.failed, "RuntimeError: no kernel image"),
        (Outcome.passed, "fine"),
    ]
    assert found[0].plain()["outcome"] == "fail"
    assert result_lines(found)[1].split() == ["fail", "cpu", "broken", "RuntimeError:", "no", "kernel", "image"]


def test_facts_are_lines_by_subject() -> None:
    facts: dict[str, dict[str, Any]] = {"versions": {"nmt": "1", "torch": "2"}, "devices": {"cpu": "CPU"}}
    assert list(fact_lines(facts)) == ["versions", "  nmt    1", "  torch  2", "devices", "  cpu    CPU"]
