"""Hydra's complaints become one line that lists or suggests what is right."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module
from hydra.errors import MissingConfigException

import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.publish import publish
from nmt.config.sections import PreprocessConfig, TrainConfig
from nmt_cli.explain import CONFIGURATION_ERRORS, explain

CLASSES = {"train": TrainConfig, "preprocess": PreprocessConfig}

CASES: list[tuple[str, str, list[str], str]] = [
    (
        "a misspelt key",
        "train",
        ["batching.max_tokns=1"],
        "unknown option batching.max_tokns (did you mean 'batching.max_tokens'?)",
    ),
    (
        "a misspelt key of a component",
        "train",
        ["model.d_modl=1"],
        "unknown option model.d_modl (did you mean 'model.d_model'?)",
    ),
    ("a misspelt section", "train", ["batchin.max_tokens=1"], "unknown option batchin (did you mean 'batching'?)"),
    (
        "a key without its section",
        "train",
        ["max_update=1"],
        "unknown option max_update; it is called training.max_update",
    ),
    (
        "a misspelt key without its section",
        "train",
        ["lrr=3"],
        "unknown option lrr (did you mean 'optimizer.lr'?)",
    ),
    (
        "nothing like it",
        "train",
        ["report.zzz=1"],
        "unknown option report.zzz; there are: report.count_flops, report.device_tflops, report.html, report.log_",
    ),
    (
        "an option of Hydra",
        "train",
        ["hydra.zzz=1"],
        "unknown option hydra.zzz; --hydra-help and --cfg hydra show Hydra's own",
    ),
    (
        "a misspelt preset",
        "preprocess",
        ["tokenizer=unigran"],
        "unknown tokenizer 'unigran' (did you mean 'unigram'?); there are: bpe, char, unigram, words. A plugin's presets",
    ),
    (
        "a group of Hydra's",
        "train",
        ["hydra/launcher=basik"],
        "unknown hydra/launcher 'basik' (did you mean 'basic'?); there ",
    ),
    ("a group of another command", "train", ["tokenizer=bpe"], "unknown option tokenizer"),
    (
        "a value of the wrong kind",
        "train",
        ["optimizer.lr=fast"],
        "optimizer.lr=fast: Value 'fast' of type 'str' could not be converted to Float",
    ),
    (
        "a value that is no choice",
        "train",
        ["device.precision=fp17"],
        "device.precision=fp17: Invalid value 'fp17', expected one of [auto, fp32, bf16, fp16, bf16_output]",
    ),
    (
        "an option of another component",
        "train",
        ["model=lstm_tiny", "model.num_heads=2"],
        "model.num_heads is an option of model 'transformer' and model 'transformer_moe', which this configuration",
    ),
    ("a plus before what exists", "train", ["+seed=3"], "seed exists already; leave out the plus sign: seed=VALUE"),
    ("several values in one run", "train", ["seed=1,2"], "seed=1,2 gives several values: add --multirun to run each"),
    ("a quote that does not end", "train", ["seed='a"], "cannot read seed='a "),
    ("an equals sign without quotes", "train", ["checkpoint.save_dir=r=2"], "cannot read checkpoint.save_dir=r=2 "),
    ("a brace that does not end", "train", ["checkpoint.save_dir={a"], "cannot read checkpoint.save_dir={a "),
]


@pytest.mark.parametrize(
    ("command", "overrides", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_wrong_configuration_is_explained_in_one_line(command: str, overrides: list[str], message: str) -> None:
    publish(command, CLASSES[command])
    with initialize_config_module("nmt.conf", version_base="1.3"), pytest.raises(CONFIGURATION_ERRORS) as caught:
        compose(command, overrides=overrides)
    line = explain(caught.value, command, CLASSES[command])
    assert line.startswith(message)
    assert "\n" not in line


@pytest.mark.parametrize(
    ("file", "extra"),
    [
        ("hydra/launcher/joblib", "nmt[sweep]"),
        ("hydra/launcher/submitit_local", "nmt[sweep]"),
        ("hydra/launcher/submitit_slurm", "nmt[sweep]"),
        ("hydra/sweeper/optuna", "nmt[optuna]"),
    ],
)
def test_a_launcher_that_is_not_installed_is_said_with_what_to_install(file: str, extra: str) -> None:
    group, _, name = file.rpartition("/")
    error = MissingConfigException("not found", missing_cfg_file=file, options=["basic"])
    assert explain(error, "train", TrainConfig) == f"{group}={name} is not installed: pip install '{extra}'"
