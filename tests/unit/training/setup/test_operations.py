"""Counting the operations of training: against arithmetic, for every architecture, and without a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from nmt.config.choices import Precision
from nmt.config.reporting import ReportConfig
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.criterions.config import CrossEntropyConfig
from nmt.criterions.cross_entropy import TokenCrossEntropy
from nmt.data.corpus.folder import Split
from nmt.data.vocabulary import EOS
from nmt.interface import Batch, LossReport, VocabularySizes
from nmt.models import models
from nmt.models.transformer.transformer import Transformer, TransformerConfig
from nmt.reporting.reporter import Reporter
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.testing.subjects import JOINT, subject
from nmt.training.assemble import train
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import Arithmetic, Step
from nmt.training.setup.operations import COUNTED_AS, RECURRENT, Cost, flops_per_token, sustained_tflops

CPU = Arithmetic(torch.device("cpu"), Precision.fp32)


class OfLength:
    """Equal sentences of one length, eos included."""

    def __init__(self, count: int, length: int) -> None:
        self.lengths = np.full(count, length, dtype=np.int64)

    def __getitem__(self, index: int) -> Any:
        return np.array([*[5] * (int(self.lengths[index]) - 1), EOS])

    def text(self) -> list[str] | None:
        return None


def split_of(source: int, target: int) -> Split:
    return Split("train", OfLength(40, source), OfLength(40, target))


def step_of(model: Any) -> Step:
    return Step(model, TokenCrossEntropy(CrossEntropyConfig()))


@pytest.mark.parametrize(("source", "target"), [(9, 7), (60, 40)])
def test_the_count_of_a_transformer_is_that_of_its_formulas(source: int, target: int) -> None:
    d, d_ff, vocabulary, encoders, decoders = 32, 80, 300, 2, 3
    config = TransformerConfig(encoders, decoders, d_model=d, d_ff=d_ff, num_heads=4, dropout=0.1)
    encoder = 4 * d**2 * source + 2 * source**2 * d + 2 * d * d_ff * source
    decoder = 4 * d**2 * target + 2 * target**2 * d + 2 * d * d_ff * target
    decoder += 2 * d**2 * (target + source) + 2 * target * source * d  # attention to the source
    products = encoders * encoder + decoders * decoder + vocabulary * d * target
    step = step_of(Transformer(config, VocabularySizes(vocabulary, vocabulary, shared=True)))
    counted = flops_per_token(step, split_of(source, target), CPU, seed=1)
    # a multiplication and an addition; the backward pass has two products for each of the forward pass
    assert counted == pytest.approx(2 * 3 * products / target, rel=0.02)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers_are_counted(kind: type[nn.LSTM] | type[nn.GRU]) -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.layer = nn.Embedding(10, 6), kind(6, 8, batch_first=True)
            self.output = nn.Identity()

        def without_padding(self, device: torch.device) -> bool:
            return False

    class Sum(nn.Module):
        def forward(self, model: Recurrent, batch: Batch) -> LossReport:
            loss = model.layer(model.embedding(batch.source))[0].sum()
            tokens = torch.tensor(float(batch.targets.numel()))
            return LossReport(loss, loss.detach(), tokens, tokens, batch.num_sentences, {})

    step: Any = Step(Recurrent(), Sum())  # type: ignore[arg-type]
    gates = 4 if kind is nn.LSTM else 3
    expected = 3 * 2 * gates * 8 * (6 + 8) * 12 / 5
    # of the first state, which is zero, no gradient is computed
    assert flops_per_token(step, split_of(12, 5), CPU, seed=1) == pytest.approx(expected, rel=0.03)


class Operators(TorchDispatchMode):
    """Notes which operators run."""

    def __init__(self) -> None:
        super().__init__()
        self.packets: set[Any] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.packets.add(function._overloadpacket)
        return function(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize("name", models.names())
def test_every_product_of_every_architecture_is_counted(name: str) -> None:
    step, split = step_of(subject(name).model()), split_of(5, 4)
    with Operators() as operators:
        step.train()(read_batch(split, np.arange(2))).loss_sum.backward()
    parts = ("mm", "conv", "attention", "rnn", "lstm", "gru", "linear", "matmul", "dot", "einsum", "bilinear")
    products = {op for op in operators.packets if any(part in str(op).split(".")[1] for part in parts)}
    elementwise = {torch.ops.aten._thnn_fused_lstm_cell, torch.ops.aten._thnn_fused_gru_cell}
    assert products and products - elementwise <= flop_registry.keys() | COUNTED_AS.keys() | RECURRENT.keys()
    counted = flops_per_token(step, split, CPU, seed=1)
    assert counted is not None and counted > 0


def test_counting_leaves_no_trace() -> None:
    model = Transformer(TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2, dropout=0.5), JOINT)
    step = step_of(model)
    before = {name: tensor.clone() for name, tensor in step.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    assert flops_per_token(step, split_of(5, 4), CPU, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in step.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in step.state_dict().items())


def test_training_is_bit_for_bit_the_same_whether_operations_are_counted_or_not(
    tiny_run: Callable[..., TrainConfig], tmp_path: Path
) -> None:
    weights, figures = [], []
    for count in (True, False):
        config = tiny_run(report=ReportConfig(log_interval=1, count_flops=count))
        folder = tmp_path / f"run-{count}"
        train(replace(config, checkpoint=replace(config.checkpoint, save_dir=str(folder))))
        weights.append((checkpoints_in(folder)[-1] / "model.safetensors").read_bytes())
        events = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        figures.append([(event["loss"], event.get("grad_norm")) for event in events if "loss" in event])
        assert (events[0]["flops_per_token"] is not None) == count
        assert ("flops_counted" in events[-1]) == count
    assert weights[0] == weights[1] and figures[0] == figures[1]


def test_a_model_that_cannot_be_counted_is_trained_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    step = step_of(Transformer(TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2), JOINT))

    def stubborn(*_: object) -> None:
        raise RuntimeError("larger batches, please")

    for handle_on in (step.model.register_forward_pre_hook, next(step.parameters()).register_hook):
        caplog.clear()
        handle = handle_on(stubborn)
        assert flops_per_token(step, split_of(3, 3), CPU, seed=1) is None
        assert "operations are not counted, training continues: larger batches, please" in caplog.text
        assert all(parameter.grad is None for parameter in step.parameters())
        handle.remove()


def test_counting_copies_no_model() -> None:
    # before fsdp divides it, a second one might not fit on rank 0
    class OnlyOne(Transformer):
        def __deepcopy__(self, memo: object) -> None:
            raise AssertionError("copied")

    assert flops_per_token(
        step_of(OnlyOne(TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2), JOINT)), split_of(3, 3), CPU, seed=1
    )


def test_longer_pairs_than_training_keeps_are_not_looked_at() -> None:
    step = step_of(Transformer(TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2), JOINT))
    split = split_of(5, 5)
    split.source_lengths[20:] = split.target_lengths[20:] = 50  # type: ignore[index]
    short, all_of_them = (flops_per_token(step, split, CPU, seed=1, longest=longest) for longest in (10, None))
    assert short == flops_per_token(step, split_of(5, 5), CPU, seed=1)
    assert all_of_them is not None and short is not None and all_of_them > short


def test_rows_that_bf16_adds_on_a_cpu_are_not_counted() -> None:
    step = step_of(Transformer(TransformerConfig(1, 1, d_model=8, d_ff=8, num_heads=2), JOINT))
    in_bf16 = Arithmetic(CPU.device, Precision.bf16)
    one, other = (flops_per_token(step, split_of(9, 7), place, seed=1) for place in (CPU, in_bf16))
    output_only = Arithmetic(CPU.device, Precision.bf16_output)
    output_only.prepare(step.model)
    assert one == other == flops_per_token(step, split_of(9, 7), output_only, seed=1)
    assert step.model.output.product_type is torch.bfloat16


def test_the_paper_says_what_its_gpus_sustain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla P100-SXM2-16GB")
    assert sustained_tflops(torch.device("cuda"), None) == 9.5
    assert sustained_tflops(torch.device("cuda"), 12.0) == 12.0
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla K40m")
    assert sustained_tflops(torch.device("cuda"), None) == 3.7
    for other in ("NVIDIA A1000", "NVIDIA A10G", "Quadro M4000", "Quadro K4000"):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=other: name)
        assert sustained_tflops(torch.device("cuda"), None) is None
    assert sustained_tflops(torch.device("cpu"), None) is None


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("Tesla T4", 8.1),
        ("NVIDIA A100-SXM4-80GB", 19.5),
        ("NVIDIA H100 80GB HBM3", 66.9),
        ("NVIDIA H100 PCIe", 51.2),
        ("NVIDIA L40S", 91.6),
        ("NVIDIA L4", 30.3),
        ("NVIDIA GeForce RTX 4090", 82.6),
        ("AMD Instinct MI300X", 163.4),
    ],
)
def test_later_devices_have_the_rates_of_their_data_sheets(
    name: str, rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
    assert sustained_tflops(torch.device("cuda"), None) == rate


def test_the_base_model_of_the_paper_costs_what_its_table_says() -> None:
    # Table 2 of "Attention Is All You Need": 3.3e18; 12 hours on 8 P100 (section 5.2)
    flops = Cost(device_tflops=9.5, devices=8).figures(tokens=0, parts=[({}, 12 * 3600)])
    assert flops == {"flops_estimated": pytest.approx(3.3e18, rel=0.01)}


def test_each_start_of_a_run_costs_what_its_own_devices_sustain() -> None:
    before = {"devices": 1, "device_tflops": 2.0}
    now = Cost(device_tflops=3.0, devices=4)
    assert now.figures(0, [(before, 90.0), (asdict(now), 10.0)]) == {"flops_estimated": 90 * 2e12 + 10 * 4 * 3e12}
    assert now.figures(0, [({"devices": 1, "device_tflops": None}, 90.0), (asdict(now), 10.0)]) == {}


def test_a_continuation_begins_at_the_seconds_of_its_checkpoint(
    tiny_run: Callable[..., TrainConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[float] = []
    start = Reporter.start

    def noting(reporter: Reporter, update: int, facts: Any = None, cost: Any = None, *counts: Any) -> None:
        begun.append(counts[0])
        start(reporter, update, facts, cost, *counts)

    monkeypatch.setattr(Reporter, "start", noting)
    train(tiny_run(training=TrainingConfig(max_update=4)))
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True).training
    train(tiny_run(training=TrainingConfig(max_update=6)))
    assert stored is not None and begun == [0.0, stored.values["run"]["seconds"]] and begun[1] > 0
