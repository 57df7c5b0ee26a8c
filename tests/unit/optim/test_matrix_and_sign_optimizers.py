"""Lion, Adafactor, Muon and schedule-free AdamW against the formulas of their papers, computed here independently."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import Parameter

from nmt.config.sections import ParametersConfig
from nmt.errors import UsageError
from nmt.interface import VocabularySizes
from nmt.models.output_layers import LinearOutput
from nmt.models.transformer.attention_kinds import Additive
from nmt.models.transformer.config import HeadSizes
from nmt.models.transformer.lightconv import LearnedKernels
from nmt.optim import optimizers
from nmt.optim.config import (
    NAMES_OF_EARLIER_RUNS,
    AdafactorConfig,
    AdamWConfig,
    LionConfig,
    MuonConfig,
    ScheduleFreeAdamWConfig,
)
from nmt.optim.parameter_groups import parameter_groups
from nmt.testing.subjects import Subject
from nmt.training.loop.optimizer_state import training_mode
from tests.kinds import KINDS

Array = NDArray[np.float64]
needs_schedulefree = pytest.mark.skipif(
    importlib.util.find_spec("schedulefree") is None, reason="the extra schedulefree is not installed"
)


def drawn(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def stepped(config: Any, start: Array, gradients: list[Array], rates: list[float] | None = None) -> Tensor:
    """A parameter after one update for each gradient, in the middle of training."""
    parameter = Parameter(torch.tensor(start))
    optimizer = optimizers.build(config, [{"params": [("model.encoder.weight", parameter)]}])
    training_mode(optimizer)
    for number, gradient in enumerate(gradients):
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates[number]
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
    return parameter.detach()


def assert_equal(found: Tensor, expected: Array, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_lion_is_algorithm_2_of_its_paper(decay: float) -> None:
    value, momentum, first, second = drawn(3, 2, seed=1), np.zeros((3, 2)), 0.8, 0.95
    gradients = [drawn(3, 2, seed=seed) for seed in range(2, 7)]
    found = stepped(LionConfig(lr=0.1, betas=[first, second], weight_decay=decay), value, gradients)
    for gradient in gradients:
        update = np.sign(first * momentum + (1 - first) * gradient)
        value = value - 0.1 * (update + decay * value)
        momentum = second * momentum + (1 - second) * gradient
    assert_equal(found, value)


def adafactor(value: Array, gradients: list[Array], rate: float, power: float, threshold: float, scale: float) -> Array:
    """Algorithms 4 and 5 of the paper; the epsilon of the squares is too small to matter here."""
    rows, columns, squares = np.zeros((len(value), 1)), np.zeros((1, value.shape[-1])), np.zeros_like(value)
    for step, gradient in enumerate(gradients, 1):
        decay = 1.0 - step**power
        alpha = max(scale, np.sqrt((value**2).mean())) * min(rate, step**-0.5)
        if value.ndim == 2:
            rows = decay * rows + (1 - decay) * (gradient**2).sum(1, keepdims=True)
            columns = decay * columns + (1 - decay) * (gradient**2).sum(0, keepdims=True)
            second = rows @ columns / rows.sum()
        else:
            second = squares = decay * squares + (1 - decay) * gradient**2
        update = gradient / np.sqrt(second)
        value = value - alpha * update / max(1.0, np.sqrt((update**2).mean()) / threshold)
    return value


@pytest.mark.parametrize("shape", [(4, 3), (5,)])
@pytest.mark.parametrize("rate", [0.01, 0.6])
def test_adafactor_follows_its_paper(shape: tuple[int, ...], rate: float) -> None:
    value, gradients = drawn(*shape, seed=1), [drawn(*shape, seed=seed) * seed**3 for seed in range(2, 8)]
    config = AdafactorConfig(lr=rate, decay_rate=-0.7, clip_threshold=1.1, min_scale=0.01)
    assert_equal(stepped(config, value, gradients), adafactor(value, gradients, rate, -0.7, 1.1, 0.01))


def test_adafactor_moves_parameters_of_zero_by_the_least_scale() -> None:
    value, gradients = np.zeros((2, 3)), [drawn(2, 3, seed=1)]
    found = stepped(AdafactorConfig(min_scale=0.5), value, gradients)
    assert_equal(found, adafactor(value, gradients, 0.01, -0.8, 1.0, 0.5))


def test_the_defaults_of_adafactor_are_those_of_its_paper() -> None:
    value, gradients = drawn(4, 3, seed=1), [drawn(4, 3, seed=seed) for seed in (2, 3)]
    assert_equal(stepped(AdafactorConfig(), value, gradients), adafactor(value, gradients, 0.01, -0.8, 1.0, 1e-3))


def test_adafactor_keeps_a_row_and_a_column_of_a_matrix() -> None:
    parameter = Parameter(torch.randn(7, 5))
    optimizer = optimizers.build(AdafactorConfig(), [{"params": [("weight", parameter)]}])
    parameter.grad = torch.randn(7, 5)
    optimizer.step()
    assert sum(tensor.numel() for tensor in optimizer.state[parameter].values()) == 7 + 5 + 1


def orthogonalised(matrix: Array, iterations: int) -> Array:
    """Newton and Schulz with the coefficients of Jordan's post, in double precision."""
    current = matrix / np.linalg.norm(matrix)
    for _ in range(iterations):
        gram = current @ current.T
        current = 3.4445 * current + (-4.7750 * gram + 2.0315 * gram @ gram) @ current
    return current


@pytest.mark.parametrize("shape", [(6, 10), (10, 6)])
def test_muon_moves_matrices_along_the_orthogonalised_momentum(shape: tuple[int, int]) -> None:
    start = value = drawn(*shape, seed=1)
    momentum, gradients = np.zeros(shape), [drawn(*shape, seed=seed) for seed in (2, 3, 4)]
    found = stepped(MuonConfig(lr=0.1, momentum=0.9, weight_decay=0.3), value, gradients)
    for gradient in gradients:
        momentum = 0.9 * momentum + 0.1 * gradient
        update = orthogonalised(0.1 * gradient + 0.9 * momentum, 5)
        value = (1 - 0.1 * 0.3) * value - 0.1 * 0.2 * max(shape) ** 0.5 * update
    error = np.linalg.norm(found.numpy() - value) / np.linalg.norm(value - start)
    assert error < 0.02  # torch iterates in bfloat16, with three digits


def test_muon_leaves_vectors_and_named_matrices_to_adamw() -> None:
    shapes = {
        "model.output.weight": (4, 3),
        "model.encoder.bias": (4,),
        "model.encoder.gain": (4, 1),
        "model.encoder.score": (1, 4),
        "model.encoder.experts": (4, 3, 2),
    }

    def trained(config: Any, **others: tuple[int, ...]) -> dict[str, Parameter]:
        named = {name: Parameter(torch.ones(shape)) for name, shape in (shapes | others).items()}
        optimizer = optimizers.build(config, [{"params": list(named.items())}])
        for update in range(3):
            for parameter in named.values():
                parameter.grad = torch.sin(torch.arange(float(parameter.numel())) + update).view_as(parameter)
            optimizer.step()
        return named

    config = MuonConfig(lr=0.1, adamw_names=["output.*"])
    mixed, alone = trained(config, matrix=(4, 3)), trained(AdamWConfig(lr=0.1), matrix=(4, 3))
    for name in shapes:
        torch.testing.assert_close(mixed[name], alone[name], msg=name)
    assert not torch.allclose(mixed["matrix"], alone["matrix"])


def for_muon(module: nn.Module, config: MuonConfig) -> set[str]:
    groups = parameter_groups(module, ParametersConfig(), config)
    return {name for group in groups if group["rule"] == "muon" for name, _ in group["params"]}


@pytest.mark.parametrize("subject", KINDS, ids=str)
def test_muon_takes_what_maps_hidden_vectors_in_every_architecture(subject: Subject) -> None:
    """Names chose the same matrices in earlier versions, except for those that a module declares."""
    sizes = VocabularySizes(41, 43, shared=False)
    step = nn.ModuleDict({"model": subject.model(sizes=sizes), "criterion": nn.Linear(3, 2)})
    chosen, by_names = (for_muon(step, MuonConfig(adamw_names=names)) for names in (None, NAMES_OF_EARLIER_RUNS))
    kinds = (LearnedKernels, Additive)
    paths = {path for path, module in step.named_modules() if isinstance(module, kinds)}
    assert by_names - chosen == {name for name in by_names if name.rpartition(".")[0] in paths}
    assert chosen <= by_names
    assert not any({41, 43} & set(dict(step.named_parameters())[name].shape) for name in chosen)


class Declaring(nn.Module):
    """A parameter of each kind, all with the shape of a matrix."""

    undecayed, not_maps = ("start",), ("kernels",)

    def __init__(self) -> None:
        super().__init__()
        for name in ("weight", "start", "kernels", "inner_bias"):
            self.register_parameter(name, Parameter(torch.ones(4, 3)))
        self.table = nn.Embedding(4, 3)
        self.norm = nn.LayerNorm((4, 3))
        self.output = LinearOutput(torch.ones(4, 3))
        self.tied = nn.Linear(3, 4, bias=False)
        self.tied.weight = self.table.weight


def test_a_parameter_is_for_muon_by_what_its_modules_say_of_it() -> None:
    step = nn.ModuleDict({"model": Declaring(), "criterion": nn.Linear(3, 4)})
    assert for_muon(step, MuonConfig()) == {"model.weight"}
    patterns = MuonConfig(adamw_names=["weight", "t*", "norm.*"])
    assert for_muon(step, patterns) == {
        *("model.start", "model.kernels", "model.inner_bias", "model.output.weight", "criterion.weight"),
    }


def test_additive_attention_declares_its_score_vectors() -> None:
    attention = Additive(HeadSizes(6, 2, 3, 3), dropout=0.0)
    assert for_muon(attention, MuonConfig()) == set()
    assert for_muon(attention, MuonConfig(adamw_names=[])) == {"vector"}


def test_a_run_that_began_by_names_keeps_them_unless_others_are_given() -> None:
    stored = {"name": "muon", "adamw_names": list(NAMES_OF_EARLIER_RUNS)}
    assert MuonConfig(lr=0.5).resumed(stored) == MuonConfig(lr=0.5, adamw_names=NAMES_OF_EARLIER_RUNS)
    assert MuonConfig(adamw_names=["a"]).resumed(stored).adamw_names == ["a"]
    for other in ({"name": "muon", "adamw_names": None}, {"name": "muon", "adamw_names": ["b"]}, {"name": "adam"}):
        assert MuonConfig().resumed(other).adamw_names is None


@needs_schedulefree
@pytest.mark.parametrize("rates", [[0.1] * 5, [0.02, 0.04, 0.06, 0.08, 0.1]], ids=["constant", "warmup"])
def test_schedule_free_adamw_follows_its_paper(rates: list[float]) -> None:
    first, second, eps, decay = 0.8, 0.95, 1e-3, 0.2
    plain = average = evaluated = drawn(3, 2, seed=1)
    squares, weights, gradients = np.zeros((3, 2)), 0.0, [drawn(3, 2, seed=seed) for seed in range(2, 7)]
    config = ScheduleFreeAdamWConfig(lr=0.1, betas=[first, second], eps=eps, weight_decay=decay)
    found = stepped(config, plain, gradients, rates)
    for step, (gradient, rate) in enumerate(zip(gradients, rates), 1):
        squares = second * squares + (1 - second) * gradient**2
        direction = gradient / (np.sqrt(squares / (1 - second**step)) + eps) + decay * evaluated
        plain = plain - rate * direction
        weights += rate**2
        average = average + rate**2 / weights * (plain - average)
        evaluated = (1 - first) * plain + first * average
    assert_equal(found, evaluated)


def test_without_its_package_schedule_free_adamw_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "schedulefree", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-toolkit\[schedulefree\]'"):
        stepped(ScheduleFreeAdamWConfig(), np.ones(2), [])


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (LionConfig, {"betas": [0.9]}),
        (LionConfig, {"lr": 0.0}),
        (AdafactorConfig, {"decay_rate": 0.1}),
        (AdafactorConfig, {"clip_threshold": 0.5}),
        (AdafactorConfig, {"clip_threshold": float("inf")}),
        (AdafactorConfig, {"min_scale": -1.0}),
        (AdafactorConfig, {"weight_decay": -1.0}),
        (MuonConfig, {"momentum": 1.0}),
        (MuonConfig, {"iterations": 0}),
        (MuonConfig, {"iterations": 100}),
        (ScheduleFreeAdamWConfig, {"betas": [0.0, 0.9]}),
        (ScheduleFreeAdamWConfig, {"eps": -1.0}),
    ],
)
def test_impossible_options_are_refused_by_name(config: type, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"optimizer.{next(iter(options))}="):
        config(**options)


def test_the_first_group_of_muon_has_the_rate_that_is_told() -> None:
    """AdamW's groups may all have another one."""
    matrix, norm, bias = Parameter(torch.ones(3, 2)), Parameter(torch.ones(2)), Parameter(torch.ones(2))
    groups = [
        {"params": [("layers.weight", matrix)]},
        {"params": [("norm.weight", norm)], "lr": 0.5},
        {"params": [("layers.bias", bias)], "lr": 0.2},
    ]
    optimizer = optimizers.build(MuonConfig(lr=0.1), groups)
    assert optimizer.param_groups[0]["lr"] == 0.1 and optimizer.param_groups[0]["rule"] == "muon"
    for parameter in (matrix, norm, bias):
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert all(not torch.equal(parameter, torch.ones_like(parameter)) for parameter in (matrix, norm, bias))
