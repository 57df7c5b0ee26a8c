"""Low-rank adapters: the formula, what is trained and stored, and a model with its adapters added to the weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from nmt.errors import DataError
from nmt.layers.low_rank import adapt, merged, start_pass
from nmt.storage.adapted import AdaptedArrays


class Model(nn.Module):
    """A recurrent layer, a convolution, and a matrix that two modules share and one reads without calling its owner."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.rnn = nn.LSTM(4, 4, batch_first=True)
        self.convolution = nn.Conv1d(4, 4, 3, padding=1)
        self.output = nn.Linear(4, 5)
        self.output.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states, _ = self.rnn(self.embedding(ids))
        return self.convolution(states.mT).mT @ self.output.weight.T + self.output.bias


MATRICES = (["embedding.weight", "output.weight"], ["rnn.weight_ih_l0"], ["rnn.weight_hh_l0"], ["convolution.weight"])
IDS = torch.tensor([[0, 3, 1], [2, 2, 4]])


def adapted(dropout: float = 0.0, seed: int = 1) -> Model:
    torch.manual_seed(seed)
    model = Model()
    model.requires_grad_(False)
    adapt(model, MATRICES, rank=2, alpha=6.0, dropout=dropout)
    return model


def moved(model: Model) -> Model:
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter))
    return model


def test_new_adapters_change_nothing() -> None:
    torch.manual_seed(1)
    plain = Model()
    torch.testing.assert_close(adapted()(IDS), plain(IDS), rtol=0, atol=0)


def test_a_weight_is_the_sum_of_the_paper() -> None:
    model = moved(adapted())
    state, weight = model.state_dict(), model.convolution.parametrizations.weight.original
    product = 3.0 * state["convolution.weight.lora_up"] @ state["convolution.weight.lora_down"]
    torch.testing.assert_close(model.convolution.weight, weight + product.view(4, 4, 3))


def test_every_adapter_has_an_effect_and_a_gradient() -> None:
    model, before = adapted(), adapted()(IDS)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("lora_up"):
                parameter.fill_(0.5)
                assert not torch.allclose(model(IDS), before), name
                parameter.zero_()
    moved(model)(IDS).sum().backward()
    for name, parameter in model.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == parameter.requires_grad, name


def test_only_adapters_and_buffers_are_stored() -> None:
    model = moved(adapted())
    sides = [f"{name}.lora_{side}" for names in MATRICES for name in names for side in ("up", "down")]
    assert model.state_dict().keys() == {*sides, "seen"}
    other = adapted(seed=1)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(IDS), model(IDS), rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="other"):
        other.load_state_dict({**model.state_dict(), "other": torch.zeros(1)})


def test_a_model_with_its_adapters_added_is_a_plain_one_that_computes_the_same() -> None:
    model = moved(adapted(dropout=0.5))
    model(IDS).sum().backward()
    plain = merged(model.eval())
    assert plain.state_dict().keys() == Model().state_dict().keys()
    assert plain.output.weight is plain.embedding.weight and type(plain.rnn) is nn.LSTM
    torch.testing.assert_close(plain(IDS), model(IDS), rtol=1e-5, atol=1e-5)
    assert model.state_dict().keys() == adapted().state_dict().keys()
    copy.deepcopy(model)


@pytest.mark.parametrize("trains_weights", [False, True])
def test_stored_adapters_give_the_same_weights_as_the_model(trains_weights: bool) -> None:
    model = adapted()
    model.convolution.requires_grad_(trains_weights)
    model.convolution.parametrizations.weight[0].requires_grad_(True)
    moved(model)
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    torch.manual_seed(1)
    base = {name: tensor.numpy() for name, tensor in Model().state_dict().items()}
    whole, expected = AdaptedArrays(base, arrays, 6.0, "the adapter"), merged(model).state_dict()
    assert list(whole) == list(base)
    for name, tensor in expected.items():
        np.testing.assert_allclose(whole[name], tensor.numpy(), rtol=1e-6, atol=1e-7)
    assert whole["output.bias"] is base["output.bias"] and ("convolution.weight" in arrays) == trains_weights


@pytest.mark.parametrize(
    "change",
    [
        {"unknown.lora_up": np.zeros((4, 2)), "unknown.lora_down": np.zeros((2, 4))},
        {"convolution.weight.lora_up": np.zeros((3, 2), dtype=np.float32)},
        {"output.bias": np.zeros(7, dtype=np.float32)},
        {"output.bias.lora_up": np.zeros((5, 1)), "output.bias.lora_down": np.zeros((1, 1))},
    ],
)
def test_adapters_of_another_model_are_refused(change: dict[str, np.ndarray]) -> None:
    base = {name: tensor.numpy() for name, tensor in Model().state_dict().items()}
    arrays = {name: tensor.numpy() for name, tensor in adapted().state_dict().items()} | change
    with pytest.raises(DataError, match="the adapter.*use the .* that it was trained on"):
        AdaptedArrays(base, arrays, 6.0, "the adapter")


def test_a_pass_has_one_dropout_mask_and_the_next_another() -> None:
    model = moved(adapted(dropout=0.5)).train()
    start_pass(model)
    first = model.convolution.weight
    assert model.convolution.weight is first
    start_pass(model)
    assert not torch.equal(model.convolution.weight, first)
    model.eval()
    assert torch.equal(model.convolution.weight, merged(model).convolution.weight)


def test_translations_within_a_pass_keep_its_sums_and_a_change_of_any_part_does_not() -> None:
    model = moved(adapted(dropout=0.5)).train()
    start_pass(model)
    first = model.convolution.weight
    with torch.no_grad():
        model.eval()(IDS)
    assert model.train().convolution.weight is first
    parts = model.convolution.parametrizations.weight
    for part in (parts.original, parts[0].lora_up, parts[0].lora_down):
        before = model.convolution.weight
        with torch.no_grad():
            part.add_(1.0)
        assert model.convolution.weight is not before


def test_dropout_zeroes_features_of_the_input_and_keeps_the_mean() -> None:
    model = moved(adapted(dropout=0.25)).train()
    base, state = model.convolution.parametrizations.weight.original, model.state_dict()
    product = 3.0 * state["convolution.weight.lora_up"] @ state["convolution.weight.lora_down"]
    start_pass(model)
    change = (model.convolution.weight - base).view(4, 12) / product
    for column in change.T:
        torch.testing.assert_close(
            column, torch.full_like(column, 0.0 if column[0].abs() < 1e-3 else 4 / 3), rtol=1e-3, atol=1e-3
        )
