"""Which parameters are trained, and in which group each stands."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from nmt.config.sections import Decayed, ParametersConfig
from nmt.errors import UsageError
from nmt.optim import ParameterGroups
from nmt.optim.config import AdamWConfig, SgdConfig
from nmt.optim.parameter_groups import choose_trained, displayed_name, parameter_groups
from nmt.testing.subjects import Subject
from tests.kinds import KINDS


class Model(nn.Module):
    undecayed = ("gain",)

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.encoder = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
        self.decoder = nn.Linear(3, 3)
        self.gain = nn.Parameter(torch.ones(5, 1))
        self.output = nn.Linear(3, 5, bias=False)
        self.output.weight = self.embedding.weight


def step() -> nn.ModuleDict:
    """As the trainer's: a model, and a criterion that learns something itself."""
    return nn.ModuleDict({"model": Model(), "criterion": nn.Linear(2, 2, bias=False)})


def names(groups: ParameterGroups) -> list[list[str]]:
    return [[name for name, _ in group["params"]] for group in groups]


def trained(module: nn.Module) -> set[str]:
    return {name for name, parameter in module.named_parameters() if parameter.requires_grad}


def test_without_options_there_is_one_group_of_all_that_is_trained() -> None:
    module = step()
    module.model.decoder.requires_grad_(False)
    (group,) = parameter_groups(module, ParametersConfig(), AdamWConfig())
    assert group.keys() == {"params"}
    assert group["params"] == [(name, p) for name, p in module.named_parameters() if p.requires_grad]


def test_frozen_parameters_are_those_that_any_pattern_matches(caplog: pytest.LogCaptureFixture) -> None:
    module = step()
    everything = trained(module)
    caplog.set_level(logging.INFO, "nmt.training")
    choose_trained(module, ParametersConfig(freeze=["encoder.*", "decoder.bia?"]))
    assert everything - trained(module) == {
        *("model.encoder.0.weight", "model.encoder.0.bias", "model.encoder.1.weight", "model.encoder.1.bias"),
        "model.decoder.bias",
    }
    assert "33 parameters are trained; the model has 54" in caplog.text
    choose_trained(module, ParametersConfig(freeze=[]))
    assert len(trained(module)) == len(everything) - 5


def test_only_the_parameters_that_are_named_are_trained() -> None:
    module = step()
    choose_trained(module, ParametersConfig(train_only=["*bias"], freeze=["decoder.*"]))
    assert trained(module) == {"model.encoder.0.bias", "model.encoder.1.bias"}


def test_adapters_replace_all_maps_between_hidden_vectors_or_the_matrices_that_are_named() -> None:
    usual, chosen, more = step(), step(), step()
    choose_trained(usual, ParametersConfig(lora_rank=2))
    choose_trained(chosen, ParametersConfig(lora_rank=2, lora_on=["output.*"]))
    choose_trained(more, ParametersConfig(lora_rank=2, lora_on=["decoder.weight"], train_only=["*bias"]))
    named = [
        {name for group in parameter_groups(module, ParametersConfig(), SgdConfig()) for name, _ in group["params"]}
        for module in (usual, chosen, more)
    ]
    assert {displayed_name(name) for name in named[0]} == {
        f"{name}.weight.lora_{side}" for name in ("encoder.0", "decoder") for side in ("up", "down")
    }
    assert {displayed_name(name) for name in named[1]} == {"embedding.weight.lora_up", "embedding.weight.lora_down"}
    assert chosen.model.output.weight is not chosen.model.output.parametrizations.weight.original
    biases = {"encoder.0.bias", "encoder.1.bias", "decoder.bias"}
    assert {displayed_name(name) for name in named[2]} == biases | {
        "decoder.weight.lora_up",
        "decoder.weight.lora_down",
    }


def test_frozen_matrices_get_no_adapters() -> None:
    module = step()
    choose_trained(module, ParametersConfig(lora_rank=2, freeze=["encoder.*"]))
    assert {displayed_name(name) for name in trained(module)} == {
        "decoder.weight.lora_up",
        "decoder.weight.lora_down",
    }
    with pytest.raises(UsageError, match="leave no parameter of the model to train"):
        choose_trained(step(), ParametersConfig(lora_rank=2, freeze=["*"]))


def test_a_shared_parameter_answers_to_each_of_its_names() -> None:
    module = step()
    choose_trained(module, ParametersConfig(freeze=["output.*"]))
    assert not module.model.embedding.weight.requires_grad


def test_the_parameters_of_a_criterion_have_its_name_first() -> None:
    module = step()
    choose_trained(module, ParametersConfig(freeze=["criterion.*"]))
    assert not module.criterion.weight.requires_grad


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"freeze": ["encodr.*"]},
            r"parameters.freeze: encodr.\* matches none of these.*embedding.weight, encoder.\*.weight, .*--freeze",
        ),
        ({"freeze": ["encoder"]}, "matches none of these parameters"),
        (
            {"train_only": ["*biases"]},
            r"parameters.train_only: \*biases matches none of these parameters.*decoder.bias.*--train-only",
        ),
        ({"train_only": ["criterion.*"]}, "leave no parameter of the model to train"),
        ({"lora_rank": 2, "lora_on": ["*bias"]}, r"parameters.lora_on: \*bias matches no.*decoder.weight.*--lora-on"),
        ({"lr_scales": ["model.encoder.*=2"]}, r"parameters.lr_scales: model.encoder.\* matches no.*--lr-scales"),
        ({"freeze": ["encoder.*"], "lr_scales": ["encoder.*=2"]}, "matches none of these parameters"),
        ({"freeze": ["*"]}, "leave no parameter of the model to train"),
        ({"freeze": ["*e*", "gain"]}, "leave no parameter of the model to train"),
    ],
)
def test_patterns_without_effect_or_with_too_much_are_refused(options: dict[str, Any], message: str) -> None:
    config, module = ParametersConfig(**options), step()
    with pytest.raises(UsageError, match=message):
        choose_trained(module, config)
        parameter_groups(module, config, SgdConfig())


def test_rates_are_scaled_by_the_last_pattern_that_matches_and_the_unscaled_group_is_the_first() -> None:
    options = ParametersConfig(lr_scales=["em*=0.5", "encoder.*=0.5", "encoder.1.*=2"])
    groups = parameter_groups(step(), options, SgdConfig(lr=0.4))
    assert [group.get("lr") for group in groups] == [None, 0.2, 0.8]
    assert names(groups)[1:] == [
        ["model.embedding.weight", "model.encoder.0.weight", "model.encoder.0.bias"],
        ["model.encoder.1.weight", "model.encoder.1.bias"],
    ]


def test_weight_decay_of_matrices_spares_norms_biases_and_other_vectors_but_not_embeddings() -> None:
    options = ParametersConfig(decay=Decayed.matrices)
    decayed, spared = parameter_groups(step(), options, AdamWConfig(weight_decay=0.1))
    assert "weight_decay" not in decayed and spared["weight_decay"] == 0.0
    assert names([decayed]) == [
        ["model.embedding.weight", "model.encoder.0.weight", "model.decoder.weight", "criterion.weight"]
    ]
    assert len(spared["params"]) == 5 and "model.gain" in names([spared])[0]


# What weight decay spares in the models of this package, by the last part of its name and the class that has it.
SPARED = {
    ("LayerNorm", "weight"),
    ("RMSNorm", "weight"),
    ("NormalizedLinear", "length"),
    ("ProductAttention", "scale"),
    ("LSTMController", "first_cell"),
    ("LSTMController", "first_hidden"),
    ("MemoryMachine", "first_reads"),
    ("MemoryMachine", "first_weights"),
    ("StartingMemory", "slots"),
}


@pytest.mark.parametrize("subject", KINDS, ids=str)
def test_weight_decay_of_matrices_knows_the_biases_and_norms_of_every_model(subject: Subject) -> None:
    """Their shapes do not tell: experts have a bias each, [E, 1, F], and a weight may be a single row."""
    model = subject.model()
    wrapped = nn.ModuleDict({"model": model})
    groups = parameter_groups(wrapped, ParametersConfig(decay=Decayed.matrices), AdamWConfig(weight_decay=0.1))
    spared = {name for group in groups if group.get("weight_decay") == 0.0 for name, _ in group["params"]}
    expected = {
        f"model.{path}.{name}".replace("..", ".")
        for path, module in model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
        if "bias" in name or (type(module).__name__, name) in SPARED
    }
    assert spared == expected


@pytest.mark.parametrize("shape", [(), (7,), (4, 1, 6), (3, 5)])
def test_a_bias_is_one_whatever_its_shape(shape: tuple[int, ...]) -> None:
    module = nn.Module()
    module.inner_bias = nn.Parameter(torch.zeros(shape))
    (group,) = parameter_groups(module, ParametersConfig(decay=Decayed.matrices), AdamWConfig(weight_decay=0.1))
    assert group["weight_decay"] == 0.0


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (2, 3, 4)])
def test_a_weight_is_one_whatever_its_shape(shape: tuple[int, ...]) -> None:
    """That of a linear map to one number has one row."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(shape))
    (group,) = parameter_groups(module, ParametersConfig(decay=Decayed.matrices), AdamWConfig(weight_decay=0.1))
    assert "weight_decay" not in group


def test_a_matrix_that_a_module_shares_is_decayed_if_another_module_multiplies_with_it() -> None:
    module = step()
    module.model.decoder.bias = module.model.encoder[0].weight  # the same matrix under a bias' name
    decayed, _ = parameter_groups(module, ParametersConfig(decay=Decayed.matrices), AdamWConfig(weight_decay=0.1))
    assert "model.encoder.0.weight" in names([decayed])[0]


def test_without_weight_decay_nothing_is_spared_it() -> None:
    assert len(parameter_groups(step(), ParametersConfig(decay=Decayed.matrices), SgdConfig())) == 1


def test_scales_and_sparing_combine() -> None:
    options = ParametersConfig(lr_scales=["encoder.*=2"], decay=Decayed.matrices)
    groups = parameter_groups(step(), options, AdamWConfig(lr=0.1, weight_decay=0.1))
    assert [(group.get("lr"), group.get("weight_decay")) for group in groups] == [
        *((None, None), (None, 0.0)),
        *((0.2, None), (0.2, 0.0)),
    ]


@pytest.mark.parametrize("item", ["encoder.*", "encoder.*=", "=1", "encoder.*=0", "a=-1", "a=nan", "a=inf", "a=1e5"])
def test_a_scale_that_is_no_pattern_and_factor_is_refused(item: str) -> None:
    with pytest.raises(UsageError, match=r"parameters\.lr_scales=.* must be a pattern, '=' and a factor"):
        ParametersConfig(lr_scales=[item])
