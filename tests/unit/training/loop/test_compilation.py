"""Layers that are compiled, and the way back where they cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from nmt.config.choices import Precision
from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.criterions.config import CrossEntropyConfig, GuidedAlignmentConfig
from nmt.criterions.cross_entropy import GuidedAlignment, TokenCrossEntropy
from nmt.data.corpus.folder import Split
from nmt.errors import UsageError
from nmt.interface import VocabularySizes
from nmt.models.memory.config import NeuralGPUConfig
from nmt.models.transformer import transformer as flat_module
from nmt.models.transformer.transformer import Transformer, TransformerConfig
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.loop import compilation
from nmt.training.loop.batches import read_batch
from nmt.training.loop.flat_sizes import FlatSize, few_shapes
from nmt.training.loop.learner import Arithmetic, Step

pytestmark = pytest.mark.slow  # layers are compiled

MakeConfig = Callable[..., TrainConfig]


@pytest.fixture(autouse=True)
def fresh_compiler() -> Any:
    yield
    torch._dynamo.reset()
    torch._dynamo.config.suppress_errors = False


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
@pytest.mark.parametrize("again", [False, True])
def test_compiled_layers_learn_what_layers_learn(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, again: bool
) -> None:
    """By a backend that needs no C++ compiler: the graphs are taken and differentiated, and run by torch."""
    caplog.set_level("INFO", "nmt.training")
    monkeypatch.setattr(compilation, "BACKEND", "aot_eager")
    config = tiny_run()
    config = replace(config, model=replace(config.model, dropout=0.0))  # compiled code draws other numbers
    expected = weights(config, tmp_path / "plain")
    found = weights(config, tmp_path / "compiled", compile=True, checkpoint_activations=again)
    assert "2 layers are compiled" in caplog.text and "uncompiled" not in caplog.text
    assert "on a CPU compiled layers were slower" in caplog.text
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
    found = weights(tiny_run(), tmp_path / "fallen-back", compile=True)
    (said,) = [line for line in caplog.messages if "uncompiled" in line]
    assert "no C++ compiler" in said and "long story" not in said
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    events = [json.loads(line) for line in (tmp_path / "fallen-back" / "log.jsonl").read_text().splitlines()]
    assert [event["update"] for event in events if event["event"] == "train"] == [3, 6]


def test_a_shortage_of_memory_is_not_taken_for_a_fault_of_the_compiler(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(graph: Any, inputs: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(compilation, "BACKEND", full)
    weights(tiny_run(), tmp_path / "run", compile=True)
    (said,) = [line for line in caplog.messages if "uncompiled" in line]
    assert "out of memory in a batch of 2 sentences" in said and "--max-tokens" in said


def test_a_model_without_such_layers_refuses(tiny_run: MakeConfig) -> None:
    model = NeuralGPUConfig(num_maps=4, height=1, embedding_size=4, dropout=0.0)
    with pytest.raises(UsageError, match="training.compile=true compiles nothing"):
        train(tiny_run(model=model, training=TrainingConfig(max_update=6, compile=True)))


@pytest.fixture
def without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that works sentence by sentence, in place of that for GPUs."""

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        queries: Tensor,
        keys: Tensor,
        *_: int,
        scale: float,
        window_size: Any,
    ) -> Tensor:
        of_queries, of_keys = (
            torch.repeat_interleave(torch.arange(len(ends) - 1), ends.diff(), output_size=rows)
            for ends, rows in ((queries, len(query)), (keys, len(key)))
        )
        scores = torch.einsum("qhd,khd->hqk", query, key) * scale
        unseen = of_queries[:, None] != of_keys
        if window_size[1] == 0:  # the past alone, of rows as long as each other
            unseen = unseen | torch.ones_like(unseen).triu(1)
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(unseen, float("-inf")).softmax(-1), value)

    monkeypatch.setattr(varlen, "varlen_attn", attend)
    monkeypatch.setattr(flat_module, "supports_flat_batches", lambda device: True)


class Recording:
    """In place of a compiler: which shapes a layer was compiled for, with which options."""

    def __init__(self) -> None:
        self.compiled = 0
        self.options: list[dict[str, Any]] = []

    def __call__(self, graph: Any, inputs: Any, **options: Any) -> Any:
        self.compiled += 1
        assert not any(isinstance(value, torch.SymInt) for value in inputs)
        self.options.append(options)
        return graph


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, bool], FlatSize]:
    """By the sizes of a batch and whether it is learned from: of all batches from now on."""
    found: dict[tuple[str, bool], FlatSize] = {}
    of_sizes = FlatSize.for_sides

    def noting(*sizes: Any) -> FlatSize:
        return found.setdefault((str(sizes), torch.is_grad_enabled()), of_sizes(*sizes))

    monkeypatch.setattr(FlatSize, "for_sides", noting)
    return found


def without_dropout(tiny_run: MakeConfig) -> TrainConfig:
    config = tiny_run()
    return replace(config, model=replace(config.model, dropout=0.0))


@pytest.mark.slow
@pytest.mark.usefixtures("without_padding")
def test_graphs_are_of_few_shapes_and_change_nothing(
    tiny_run: MakeConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    rooms: dict[tuple[str, bool], FlatSize],
) -> None:
    caplog.set_level("INFO", "nmt.training")
    compiler = Recording()
    monkeypatch.setattr(compilation, "BACKEND", compiler)
    config = without_dropout(tiny_run)
    config = replace(config, batching=replace(config.batching, update_freq=2))
    expected = weights(config, tmp_path / "plain")
    found = weights(config, tmp_path / "replayed", compile=True, cuda_graphs=True)
    assert "2 layers are compiled, their kernels are recorded and replayed" in caplog.text
    assert all(options == {"mode": "reduce-overhead"} for options in compiler.options)
    kinds = {(room, learned) for (_, learned), room in rooms.items()}
    assert 0 < compiler.compiled <= 2 * len(kinds) < 2 * len(rooms)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.usefixtures("without_padding")
def test_gradients_do_not_stay_where_the_next_replay_writes(
    make_split: Callable[..., Split], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "BACKEND", Recording())
    config = TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, dropout=0.0)
    model = Transformer(config, VocabularySizes(20, 20, shared=True))
    step, batch = Step(model, TokenCrossEntropy(CrossEntropyConfig())), read_batch(make_split(6), np.arange(2))
    owned: list[int] = []
    own = compilation._own_gradient

    def noting(parameter: Tensor) -> None:
        assert parameter.grad is not None
        before = parameter.grad.data_ptr()
        own(parameter)
        owned.append(parameter.grad.data_ptr() != before)

    monkeypatch.setattr(compilation, "_own_gradient", noting)
    arithmetic = Arithmetic(torch.device("cpu"), Precision.fp32)
    assert compilation.compile_layers(step, batch, arithmetic, 1, graphs=True) and step.model.segments_of is few_shapes
    step(batch).loss_sum.backward()
    assert owned == [True] * ((compilation.PASSES + 1) * len(list(step.parameters())))


@pytest.mark.nightly  # half a minute
@pytest.mark.usefixtures("without_padding")
def test_validation_translates_with_layers_as_they_are(tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a search, of each batch, would be another shape to compile for."""
    compiled = []
    for samples in (0, 2):
        compiler = Recording()
        monkeypatch.setattr(compilation, "BACKEND", compiler)
        config = replace(without_dropout(tiny_run), validation=ValidationConfig(samples=samples))
        config.checkpoint.save_dir += str(samples)
        config.training.compile = config.training.cuda_graphs = True
        torch._dynamo.reset()
        train(config)
        compiled.append(compiler.compiled)
    assert compiled[0] == compiled[1] > 0


@pytest.mark.nightly  # half a minute
def test_where_batches_keep_their_padding_nothing_is_replayed(
    tiny_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nmt.training")
    options: list[dict[str, Any]] = []

    def compiler(graph: Any, inputs: Any, **given: Any) -> Any:
        options.append(given)
        return graph

    monkeypatch.setattr(compilation, "BACKEND", compiler)
    weights(without_dropout(tiny_run), tmp_path / "run", compile=True, cuda_graphs=True)
    assert "no CUDA graphs: the batches of this model keep their padding here" in caplog.text
    assert "2 layers are compiled\n" in caplog.text and options and not any(options)


def test_a_criterion_that_runs_the_model_more_than_once_is_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    step: Any = SimpleNamespace(criterion=SimpleNamespace(runs_model_once=False))
    arithmetic: Any = None  # nobody asks
    assert not compilation._choose_few_shapes(step, arithmetic)
    assert "no CUDA graphs: the criterion runs the model more than once" in caplog.text


def test_a_criterion_that_asks_for_attention_is_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    step: Any = SimpleNamespace(criterion=GuidedAlignment(GuidedAlignmentConfig()))
    arithmetic: Any = None  # nobody asks
    assert not compilation._choose_few_shapes(step, arithmetic)
    assert "no CUDA graphs: the criterion asks for attention" in caplog.text
