"""Options from keyword arguments, presets of folders, and composing inside another composition."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hydra.core.config_store import ConfigStore

import nmt
from nmt.config.commands import AverageConfig
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import check, chosen_presets, compose, from_keywords, preset
from nmt.config.composing.hydra_bridge import HydraApplication
from nmt.config.composing.presets import Base
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.errors import UsageError
from nmt.models.transformer.config import TransformerConfig
from nmt.optim.config import AdamConfig


@pytest.mark.parametrize(
    "options",
    [
        {"model": "transformer_tiny", "save_dir": "runs/x", "max_update": 5, "lr": 0.1},
        {
            "model": "transformer_tiny",
            "checkpoint": {"save_dir": "runs/x"},
            "training": TrainingConfig(max_update=5),
            "optimizer": AdamConfig(lr=0.1),
        },
        {
            "arch": "transformer_tiny",
            "checkpoint.save_dir": Path("runs/x"),
            "training.max_update": 5,
            "optimizer.lr": 0.1,
        },
    ],
    ids=["flags", "dataclasses", "keys"],
)
def test_keyword_arguments_compose_like_a_command_line(options: dict[str, Any]) -> None:
    line = "data=[x] model=transformer_tiny checkpoint.save_dir=runs/x training.max_update=5 optimizer.lr=0.1"
    assert (
        from_keywords(TrainConfig, {"data": ["x"], **options}, "train")
        == compose(TrainConfig, read(line.split())).config
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"modle": "x"}, r"train has no option 'modle' \(did you mean 'model'\?\)$"),
        ({"model": "transformer_tinyy"}, r"unknown model 'transformer_tinyy' \(did you mean 'transformer_tiny'\?\)"),
        ({"max_update": "5"}, "train: training.max_update='5' is not a whole number"),
        ({"model.d_modle": 5}, r"unknown option model.d_modle \(did you mean 'model.d_model'\?\)"),
        ({"max_tokens": 0, "lr": -1}, r"^\(1\) optimizer.lr=-1.0 must be .*; \(2\) batching.max_tokens=0 must be "),
    ],
)
def test_wrong_keyword_arguments_are_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        from_keywords(TrainConfig, options, "train")


def test_functions_take_options_or_a_dataclass() -> None:
    calls: list[tuple[Any, Any]] = [
        (nmt.train, TrainConfig()),
        (nmt.preprocess, PreprocessConfig()),
        (nmt.average_checkpoints, AverageConfig()),
    ]
    for function, config in calls:
        for arguments, options in (((), {}), ((config,), {"user_dir": "x"})):
            if function is nmt.train and not arguments:
                continue  # it asks for data
            with pytest.raises(
                UsageError, match="takes a dataclass of options or keyword arguments; give one of the two"
            ):
                function(*arguments, **options)
    with pytest.raises(UsageError, match="dry_run=true does not train"):
        nmt.train(data=["x"], model="transformer_tiny", dry_run=True)
    with pytest.raises(UsageError, match="no folder for the average is given; set --output"):
        nmt.average_checkpoints(inputs=["x"])


def test_a_preset_states_its_component_and_its_values() -> None:
    assert preset("model", "transformer_big") == {
        "name": "transformer",
        "d_model": 1024,
        "d_ff": 4096,
        "num_heads": 16,
        "dropout": 0.3,
    }
    assert preset("model", "transformer") == {"name": "transformer"}


def test_a_wrong_preset_of_the_user_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("defaults: [transformer, _self_]\nd_modle: 7\n")
    with pytest.raises(UsageError, match="does not know the option model.d_modle .did you mean 'd_model'"):
        compose(TrainConfig, read(["model=mine"]), [tmp_path])


def test_a_primary_configuration_of_the_user_extends_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("defaults: [train, _self_]\nseed: 7\ntraining: {max_update: 9}\n")
    composition = compose(TrainConfig, read(["model=lstm_tiny"]), [tmp_path], Base(primary="mine"))
    assert (composition.config.seed, composition.config.training.max_update) == (7, 9)
    assert (composition.choices["model"], composition.choices["optimizer"]) == ("lstm_tiny", "adam")


def test_presets_are_composed_once_and_each_caller_has_its_own() -> None:
    first = chosen_presets(TrainConfig, read(["model=lstm_tiny"]))
    assert isinstance(first.tree, dict) and isinstance(first.choices, dict)
    expected = copy.deepcopy(first)
    first.tree["model"]["name"] = first.choices["model"] = "changed"
    assert chosen_presets(TrainConfig, read(["model=lstm_tiny"])) == expected


def test_a_job_of_hydra_composes_without_changing_what_hydra_has_stored() -> None:
    """Otherwise the next job of a sweep would not find its options."""
    application = HydraApplication(TrainConfig, (), Base())
    before = ConfigStore.instance().repo
    found: list[TransformerConfig] = []
    for _ in range(2):
        application.run(["seed=3"], lambda composed: found.append(compose(TrainConfig, read(["seed=3"])).config.model))
    assert found == [TransformerConfig()] * 2 and ConfigStore.instance().repo is before


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("optimizer.lr=0.1,abc", r"optimizer.lr=abc is not a number \(--lr\)"),
        ("seed=1,2.5", "seed=2.5 is not a whole number"),
        ("seed=1,2 training.max_update=x", "training.max_update=x is not a whole number"),
        ("model.d_modell=1,2", "unknown option model.d_modell"),
        ("model=lstm,transformer_tiny training.max_update=1,x", "training.max_update=x is not a whole number"),
    ],
)
def test_wrong_values_of_a_sweep_are_refused_before_its_first_job(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(TrainConfig, read(line.split()), (), Base())


@pytest.mark.parametrize(
    "line",
    [
        "optimizer.lr=0.1,0.2 seed=range(1,4) training.max_update=1,null",
        "optimizer.lr=interval(0.1,1) batching.max_tokens=auto,500 validation.metrics=[bleu],[chrf]",
        "model=transformer_tiny,lstm model.d_model=1,2 hydra.sweeper.x=1,2",
    ],
)
def test_a_sweep_whose_values_may_be_right_is_left_to_its_jobs(line: str) -> None:
    check(TrainConfig, read(line.split()), (), Base())
