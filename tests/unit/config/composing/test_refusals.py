"""Wrong options are refused in one line that lists or suggests the right ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hydra.errors import MissingConfigException

import nmt.conf
import nmt.criterions
import nmt.data.tokenizers
import nmt.models
import nmt.optim
import nmt.search  # importing a package registers its components
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.composing.hydra_bridge import HydraApplication, one_line
from nmt.config.composing.presets import Base
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.errors import UsageError

RECIPES = sorted(path.stem for path in Path(nmt.conf.__path__[0]).glob("recipe/*.yaml"))
CLASSES = {"train": TrainConfig, "preprocess": PreprocessConfig}

# of classes, of Hydra's and OmegaConf's machinery, and of Python's types: no user has to know them
INNER_NAMES = re.compile(
    r"omegaconf|DictConfig|ConfigStore|struct\b|Enum|[A-Z]\w+Config|LengthPenalty|full_key|object_type|reference_type|"
    r"Could not override|Optional|<class|'(str|int|float|bool|list|dict)'",
    re.IGNORECASE,
)

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
    (
        "a misspelt section",
        "train",
        ["batchin.max_tokens=1"],
        "unknown option batchin.max_tokens; it is called batching.max_tokens",
    ),
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
        "unknown option report.zzz; there are: report.callbacks, report.count_flops, report.device_tflops, report.html, ",
    ),
    (
        "a key of a component, similar only to a section",
        "train",
        ["model.nothing=1"],
        "unknown option model.nothing; --help model lists the options of the chosen model",
    ),
    (
        "an option of Hydra",
        "train",
        ["hydra.zzz=1"],
        "unknown option hydra.zzz; --cfg hydra shows Hydra's own",
    ),
    (
        "a misspelt preset",
        "preprocess",
        ["tokenizer=unigran"],
        "unknown tokenizer 'unigran' (did you mean 'unigram'?); there are: bpe, bpe_codes, char, sentencepiece_list, "
        "unigram, words; for a preset of a plugin, add --user-dir",
    ),
    (
        "a group of Hydra's",
        "train",
        ["hydra/launcher=basik"],
        "unknown hydra/launcher 'basik' (did you mean 'basic'?); there ",
    ),
    (
        "a group of another command",
        "train",
        ["tokenizer=bpe"],
        "unknown option tokenizer; it is an option of nmt-preprocess",
    ),
    (
        "a value of the wrong kind",
        "train",
        ["optimizer.lr=fast"],
        "optimizer.lr=fast is not a number (--lr)",
    ),
    (
        "a value that is no choice",
        "train",
        ["device.precision=fp17"],
        "device.precision=fp17 must be one of usual, auto, fp32, tf32, bf16, fp16, bf16_output (--precision); did you",
    ),
    (
        "an option of another component",
        "train",
        ["model=lstm_tiny", "model.num_heads=2"],
        "model.num_heads is an option of model 'lightconv' and model 'transformer' and model 'transformer_moe', which",
    ),
    ("several values in one run", "train", ["seed=1,2"], "seed=1,2 gives several values: add --multirun to run each"),
    (
        "a number for a kind",
        "train",
        ["search.length_penalty=0.6"],
        "search.length_penalty=0.6 must be one of gnmt, power (--length-penalty); for a number, use --lenpen 0.6",
    ),
    (
        "a word for a count",
        "train",
        ["training.max_update=many"],
        "training.max_update=many is not a whole number (--max-update)",
    ),
    ("a fraction for a count", "train", ["seed=1.5"], "seed=1.5 is not a whole number (--seed)"),
    ("a truth for a count", "train", ["seed=true"], "seed=true is not a whole number (--seed)"),
    ("a list for a count", "train", ["seed=[1]"], "seed=[1] is not a whole number (--seed)"),
    ("a mapping for a count", "train", ["seed={a:null}"], "seed={a:null} is not a whole number (--seed)"),
    ("nothing for a count", "train", ["seed="], "seed= is not a whole number (--seed)"),
    ("null for a count", "train", ["model.d_model=null"], "model.d_model=null is not a whole number"),
    ("null for a list", "train", ["data=null"], "data=null is not a list of words, [A,B] (--data)"),
    (
        "a word for a truth",
        "train",
        ["checkpoint.reset=maybe"],
        "checkpoint.reset=maybe is not true or false (--reset)",
    ),
    ("a list for text", "train", ["checkpoint.save_dir=[a]"], "checkpoint.save_dir=[a] is not text (--save-dir)"),
    (
        "a word in a list of numbers",
        "train",
        ["optimizer.betas=[a]"],
        "optimizer.betas[0]=a is not a number (--adam-betas)",
    ),
    (
        "a number for a mapping",
        "train",
        ["criterion.auxiliary_weights=3"],
        "criterion.auxiliary_weights=3 is not a mapping from names to numbers, {NAME:VALUE}",
    ),
    (
        "a word in a mapping of numbers",
        "train",
        ["criterion.auxiliary_weights={a:b}"],
        "criterion.auxiliary_weights.a=b is not a number",
    ),
    (
        "a value for a section",
        "train",
        ["batching=3"],
        "batching=3: batching is a section; set its options one by one, batching.OPTION=VALUE",
    ),
    ("null for a section", "train", ["batching=null"], "batching=null: batching is a section"),
    ("an option below an option", "train", ["seed.x=3"], "unknown option seed.x (did you mean 'seed'?)"),
    ("a number for a choice", "train", ["model.norm=3"], "model.norm=3 must be one of post, pre"),
    (
        "capitals for a choice",
        "train",
        ["report.progress=BAR"],
        "report.progress=BAR must be one of auto, bar, lines, none (--progress); did you mean bar?",
    ),
    (
        "an unknown preset of many",
        "train",
        ["model=transformer_huge"],
        "unknown model 'transformer_huge' (did you mean 'transformer_moe'?); --help presets lists all ",
    ),
    (
        "an unknown preset of few",
        "train",
        ["search=foo"],
        "unknown search 'foo'; there are: beam, diverse_beam, greedy, sampling; for a preset of a plugin",
    ),
    (
        "an unknown recipe",
        "train",
        ["recipe=foo"],
        f"unknown recipe 'foo'; there are: {', '.join(RECIPES)}; for a preset of a plugin",
    ),
    ("an empty preset", "train", ["model="], "model= has no value; give model=NAME (--help presets lists the names)"),
    ("an unknown launcher", "train", ["hydra/launcher=foo"], "unknown hydra/launcher 'foo'; there are: basic"),
    (
        "a group that Hydra does not have",
        "train",
        ["hydra/nope=1"],
        "unknown option hydra/nope; --cfg hydra shows",
    ),
    (
        "an option that many resemble",
        "train",
        ["model.x=1"],
        "unknown option model.x; --help model lists the options of the chosen model",
    ),
    ("two dots", "train", ["a..b=1"], "cannot read a..b=1 "),
    ("a bracket that does not end", "train", ["seed=[1"], "cannot read seed=[1 "),
    ("a bracket that does not begin", "train", ["seed=1)"], "cannot read seed=1) "),
    ("a function that nobody has", "train", ["seed=foo(1)"], "cannot read seed=foo(1) "),
    (
        "several values by a function",
        "train",
        ["seed=choice(1,2)"],
        "seed=choice(1,2) gives several values: add --multirun to run each of them",
    ),
    (
        "several presets in one run",
        "train",
        ["model=lstm,gnmt"],
        "model=lstm,gnmt gives several values: add --multirun to run each of them",
    ),
    (
        "a value of nothing",
        "train",
        ["seed=${nope}"],
        "seed=${nope} cannot be resolved: Interpolation key 'nope' not found",
    ),
    (
        "a variable that is not set",
        "train",
        ["seed=${oc.env:NOT_SET}"],
        'seed=${oc.env:NOT_SET} cannot be resolved: KeyError raised while resolving interpolation: "Environment variable',
    ),
    (
        "a function in a value",
        "train",
        ["seed=${nope:1}"],
        "seed=${nope:1} cannot be resolved: Unsupported interpolation type nope",
    ),
    ("a quote that does not end", "train", ["seed='a"], "cannot read seed='a "),
    ("an equals sign without quotes", "train", ["checkpoint.save_dir=r=2"], "cannot read checkpoint.save_dir=r=2 "),
    ("a brace that does not end", "train", ["checkpoint.save_dir={a"], "cannot read checkpoint.save_dir={a "),
]


@pytest.mark.parametrize(
    ("command", "overrides", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_wrong_configuration_is_explained_in_one_line(command: str, overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        composition = compose(CLASSES[command], read(overrides))
        assert composition.config and overrides[0].startswith("hydra")  # only Hydra knows its own options
        HydraApplication(CLASSES[command], (), Base()).run(overrides, lambda composed: None)
    line = str(caught.value)
    assert line.startswith(message)
    assert "\n" not in line
    assert not INNER_NAMES.search(line)


@pytest.mark.parametrize(
    ("overrides", "value"),
    [
        (["checkpoint.save_dir=7"], "7"),
        (["checkpoint.save_dir=true"], "true"),
        (["checkpoint.save_dir='a b'"], "a b"),
    ],
)
def test_text_may_look_like_another_value(overrides: list[str], value: str) -> None:
    assert compose(TrainConfig, read(overrides)).config.checkpoint.save_dir == value


@pytest.mark.parametrize("override", ["seed='7'", "+seed=7", "++seed=7", "seed=${oc.env:SEED_OF_TEST}"])
def test_a_number_may_be_quoted_added_or_come_from_the_environment(
    override: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEED_OF_TEST", "7")
    assert compose(TrainConfig, read([override])).config.seed == 7


@pytest.mark.parametrize(
    ("override", "weights"),
    [
        ("criterion.auxiliary_weights={a:1}", {"a": 1.0}),
        ("criterion.auxiliary_weights.a=1", {"a": 1.0}),
        ("++criterion.auxiliary_weights.a=1", {"a": 1.0}),
    ],
)
def test_a_mapping_takes_new_names(override: str, weights: dict[str, float]) -> None:
    assert compose(TrainConfig, read([override])).config.criterion.auxiliary_weights == weights


def test_a_section_takes_a_mapping() -> None:
    config = compose(TrainConfig, read(["batching={batch_size:3,max_tokens:null}"])).config
    assert (config.batching.batch_size, config.batching.max_tokens) == (3, None)


@pytest.mark.parametrize(
    ("file", "extra"),
    [
        ("hydra/launcher/joblib", "nmt-toolkit[sweep]"),
        ("hydra/launcher/submitit_local", "nmt-toolkit[sweep]"),
        ("hydra/launcher/submitit_slurm", "nmt-toolkit[sweep]"),
        ("hydra/sweeper/optuna", "nmt-toolkit[optuna]"),
    ],
)
def test_a_launcher_that_is_not_installed_is_said_with_what_to_install(file: str, extra: str) -> None:
    group, _, name = file.rpartition("/")
    error = MissingConfigException("not found", missing_cfg_file=file, options=["basic"])
    with pytest.raises(UsageError) as caught, one_line(TrainConfig, ()):
        raise error
    assert str(caught.value) == f"{group}={name} is not installed: pip install '{extra}'"
