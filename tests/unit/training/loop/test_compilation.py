"""Layers that are compiled, and the way back where they cannot be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from nmt.config.choices import Compilation
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.errors import UsageError
from nmt.models.memory.config import NeuralGPUConfig
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.loop import compilation

pytestmark = pytest.mark.slow  # layers are compiled

MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Any:
    yield
    torch._dynamo.reset()


def weights(config: TrainConfig, folder: Path, **training: Any) -> dict[str, torch.Tensor]:
    train(
        replace(
            config,
            checkpoint=replace(config.checkpoint, save_dir=str(folder)),
            training=TrainingConfig(max_update=6, **training),
        )
    )
    return read_checkpoint(checkpoints_in(folder)[-1]).model


@pytest.mark.nightly  # up to a minute each
@pytest.mark.parametrize("what", [Compilation.layers, Compilation.step])
@pytest.mark.parametrize("again", [False, True])
def test_what_is_compiled_learns_what_it_would_uncompiled(
    tiny_run: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    again: bool,
    what: Compilation,
) -> None:
    """By a backend that needs no C++ compiler: the graphs are taken and differentiated, and run by torch."""
    caplog.set_level("INFO", "nmt.training")
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")
    config = tiny_run()
    config = replace(config, model=replace(config.model, dropout=0.0))  # compiled code draws other numbers
    expected = weights(config, tmp_path / "plain")
    found = weights(config, tmp_path / "compiled", compile=what, checkpoint_activations=again)
    name = "the step is" if what is Compilation.step else "2 layers are"
    assert re.search(f"{name} compiled: [1-9][0-9]* graphs? in", caplog.text) and "uncompiled" not in caplog.text
    graphs = [int(number) for number in re.findall(r"compiled graph (\d+), for new shapes", caplog.text)]
    assert graphs == sorted(graphs) and len(graphs) <= 6, "lengths are dynamic: few kinds of batches"
    assert "on a CPU, compiled layers were slower" in caplog.text
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_where_compilation_fails_everything_runs_as_it_was(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no C++ compiler\nand a long story")

    monkeypatch.setattr(compilation, "BACKEND", broken)
    expected = weights(tiny_run(), tmp_path / "plain")
    found = weights(tiny_run(), tmp_path / "fallen-back", compile=Compilation.layers)
    (said,) = [line for line in caplog.messages if "not compiled" in line]
    assert "no C++ compiler" in said and "long story" not in said
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    events = [json.loads(line) for line in (tmp_path / "fallen-back" / "log.jsonl").read_text().splitlines()]
    assert [event["update"] for event in events if event["event"] == "train"] == [3, 6]


@pytest.mark.nightly
def test_a_part_that_cannot_be_compiled_later_runs_uncompiled_from_then_on(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    graphs = list[Any]()

    def first_alone(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        if len(graphs) > 1:
            raise RuntimeError("a shape that the compiler cannot take")
        return graph.forward

    monkeypatch.setattr(compilation, "BACKEND", first_alone)
    config = tiny_run()
    config = replace(config, model=replace(config.model, dropout=0.0))
    expected = weights(config, tmp_path / "plain")
    found = weights(config, tmp_path / "compiled", compile=Compilation.step)
    assert len(graphs) > 1 and "the step is not compiled" not in caplog.text
    assert "Step runs uncompiled from now on: RuntimeError: a shape that the compiler cannot take" in caplog.text
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_a_shortage_of_memory_is_not_taken_for_a_fault_of_the_compiler(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(graph: Any, inputs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(compilation, "BACKEND", full)
    weights(tiny_run(), tmp_path / "run", compile=Compilation.layers)
    (said,) = [line for line in caplog.messages if "not compiled" in line]
    assert "out of memory in a micro-batch of 2 sentences" in said and "--max-tokens" in said


def test_a_shortage_during_a_later_compilation_is_one_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*_: Any) -> Any:
        raise BackendCompilerFailed(full, torch.OutOfMemoryError("CUDA out of memory"), None)

    def full(*_: Any) -> Any: ...

    layer = torch.nn.Linear(2, 2)
    layer._compiled_call_impl = short
    layer._compiled_call_impl = compilation._with_fallback(layer)
    with pytest.raises(torch.OutOfMemoryError):
        layer(torch.ones(2))
    assert layer._compiled_call_impl is not None, "it stays compiled"


def test_a_model_without_such_layers_refuses(tiny_run: MakeConfig) -> None:
    model = NeuralGPUConfig(num_maps=4, height=1, embedding_size=4, dropout=0.0)
    with pytest.raises(UsageError, match="training.compile=layers compiles nothing"):
        train(tiny_run(model=model, training=TrainingConfig(max_update=6, compile=Compilation.layers)))
