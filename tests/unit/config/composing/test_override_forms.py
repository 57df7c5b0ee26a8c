"""The forms of options that documents, examples and tests use: words of a command line, and the value that they set."""

from __future__ import annotations

from typing import Any

import pytest

import nmt.criterions
import nmt.models
import nmt.optim
import nmt.search  # noqa: F401 - importing a package registers its components
from nmt.config.composing.assignments import read
from nmt.config.composing.composition import Composition, compose
from nmt.config.plain import to_plain
from nmt.errors import UsageError
from nmt_cli.command_line.argv import rewrite
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.programs import options_class

COMPONENT = "model=transformer"  # with components alone, composing takes a tenth of the time that presets take

CHOICES = [  # words of nmt-train; a group; the component that they choose
    (["model=lstm"], "model", "lstm"),
    (["+model=lstm"], "model", "lstm"),
    (["--model", "lstm"], "model", "lstm"),
    (["--arch", "lstm"], "model", "lstm"),
    (["-a", "lstm"], "model", "lstm"),
    (["model=transformer_tiny"], "model", "transformer"),
    (["recipe=vaswani_big"], "model", "transformer"),
    (["--recipe", "vaswani_big", "model=lstm"], "model", "lstm"),
    (["model=lstm", "model=transformer_tiny"], "model", "transformer"),
    (["--search=greedy"], "search", "greedy"),
    (["--lr-scheduler", "noam"], "scheduler", "noam"),
]

VALUES = [  # words of nmt-train; a key; its value
    (["optimizer.lr=0.1"], "optimizer.lr", 0.1),
    (["+optimizer.lr=0.1"], "optimizer.lr", 0.1),
    (["++optimizer.lr=0.1"], "optimizer.lr", 0.1),
    (["--lr", "0.1"], "optimizer.lr", 0.1),
    (["--lr=1e-3"], "optimizer.lr", 0.001),
    (["--lr", "1"], "optimizer.lr", 1.0),
    (["--lr", "0.1", "optimizer.lr=0.2"], "optimizer.lr", 0.2),
    (["optimizer.lr=0.2", "--lr", "0.1"], "optimizer.lr", 0.1),
    (["--learning-rate", "0.1"], "optimizer.lr", 0.1),
    (["model=transformer_tiny", "model.d_model=64"], "model.d_model", 64),
    (["model.d_model=64", "model=transformer_tiny"], "model.d_model", 64),
    (["recipe=vaswani_big", "--dropout", "0.2"], "model.dropout", 0.2),
    (["validation.interval=null"], "validation.interval", None),
    (["--validate-interval", "null"], "validation.interval", None),
    (["validation.metrics=[bleu,chrf]"], "validation.metrics", ["bleu", "chrf"]),
    (["validation.metrics=bleu"], "validation.metrics", ["bleu"]),
    (["validation.metrics=[]"], "validation.metrics", []),
    (["--valid-metrics", "bleu,chrf"], "validation.metrics", ["bleu", "chrf"]),
    (["--valid-metrics", "bleu", "chrf", "--valid-metrics", "ter"], "validation.metrics", ["bleu", "chrf", "ter"]),
    (["--adam-betas", "(0.9, 0.98)"], "optimizer.betas", [0.9, 0.98]),
    (["optimizer.betas=[0.9,0.98]"], "optimizer.betas", [0.9, 0.98]),
    (["optimizer.betas=['0.9','0.98']"], "optimizer.betas", [0.9, 0.98]),
    (["bin/a", "bin/b"], "data", ["bin/a", "bin/b"]),
    (["--data", "bin/a", "bin/b"], "data", ["bin/a", "bin/b"]),
    (["data=[bin/a,bin/b]"], "data", ["bin/a", "bin/b"]),
    (["data=bin/a"], "data", ["bin/a"]),
    (["--save-dir", "a b=c"], "checkpoint.save_dir", "a b=c"),
    (["--save-dir", "it's"], "checkpoint.save_dir", "it's"),
    (["--save-dir=5"], "checkpoint.save_dir", "5"),
    (["--save-dir", "true"], "checkpoint.save_dir", "true"),
    (["checkpoint.save_dir=5"], "checkpoint.save_dir", "5"),
    (["checkpoint.save_dir=a b"], "checkpoint.save_dir", "a b"),
    (["checkpoint.save_dir='a,b'"], "checkpoint.save_dir", "a,b"),
    (['checkpoint.save_dir="a,b"'], "checkpoint.save_dir", "a,b"),
    (["--seed", "'7'"], "seed", 7),
    (["--skip-long"], "batching.skip_long", True),
    (["--skip-long=false"], "batching.skip_long", False),
    (["--no-html"], "report.html", False),
    (["report.html=False"], "report.html", False),
    (["--max-tokens", "auto"], "batching.max_tokens", "auto"),
    (["training={max_update:5}"], "training.max_update", 5),
    (["training.max_update=${seed}"], "training.max_update", 1),
    (["--sampling-stages", "update 9: 1 0,epoch 9: all"], "sampling.stages", ["update 9: 1 0", "epoch 9: all"]),
    (["parameters.lr_scales=['encoder.*=0.1']"], "parameters.lr_scales", ["encoder.*=0.1"]),
    (["--fp16"], "device.precision", "fp16"),
    (["--cpu"], "device.name", "cpu"),
    (["--eval-bleu-args", '{"beam": 3, "lenpen": 1}'], "search.beam_size", 3),
    (["--log-format", "simple"], "report.progress", "lines"),
    (["--user-dir", "a", "--user-dir", "b"], "user_dir", "a,b"),
]

REFUSED = [  # words of nmt-train, and a part of the message
    (["--lr", "abc"], "optimizer.lr=abc is not a number (--lr)"),
    (["--seed", "1.5"], "seed=1.5 is not a whole number (--seed)"),
    (["--seed", "true"], "seed=true is not a whole number (--seed)"),
    (["--seed", "null"], "seed=null is not a whole number (--seed)"),
    (["--seed"], "--seed needs a value"),
    (["--seed="], "--seed needs a value"),
    (["checkpoint.save_dir=a,b"], "gives several values: add --multirun"),
    (["--lr", "0.1,0.2"], "gives several values: add --multirun"),
    (["~model"], "options cannot be deleted"),
    (["~optimizer.lr=1"], "options cannot be deleted"),
    (["model=[a,b]"], "give one name, model=NAME"),
    (["model={a:1}"], "give one name, model=NAME"),
    (["model="], "model= has no value; give model=NAME"),
    (["model=null"], "model= has no value; give model=NAME"),
    (["model=lstn"], "unknown model 'lstn' (did you mean 'lstm'?)"),
    (["recipe=nope"], "unknown recipe 'nope'"),
    (["--lr-scheduler", "fixed"], "use constant"),
    (["model.d_modl=5"], "(did you mean 'model.d_model'?)"),
    (["lr=0.1"], "it is called optimizer.lr"),
    (["search=greedy", "--beam", "4"], "search.beam_size is an option of"),
    (["training=5"], "training is a section"),
    (["training.max_update.x=5"], "(did you mean 'training.max_update'?)"),
    (["training.max_update=${nope}"], "cannot be resolved"),
    (["checkpoint.save_dir=???"], "no value for checkpoint.save_dir"),
    (["--dropuot", "0.1"], "unknown flag --dropuot (did you mean '--dropout'?)"),
    (["--d-model", "64"], "write the option's key: model.d_model=64"),
    (["--no-skip-long"], "unknown flag --no-skip-long"),
    (["--skip-long=maybe"], "batching.skip_long=maybe is not true or false"),
    (["--encoder-embed-dim", "512"], "use model.d_model=N"),
    (["--task", "language_modeling"], "translation is the only task"),
    (["--precision", "BF16"], "did you mean bf16?"),
    (["data.x=1"], "data is a list and has no options"),
]


def composed(words: list[str]) -> Composition:
    config_class = options_class("train")
    return compose(config_class, read(rewrite(words, grammar_of(config_class)).overrides))


@pytest.mark.parametrize(("words", "group", "component"), CHOICES, ids=str)
def test_a_group_is_chosen(words: list[str], group: str, component: str) -> None:
    assert to_plain(composed(words).config)[group]["name"] == component


@pytest.mark.parametrize(("words", "key", "value"), VALUES, ids=str)
def test_an_option_is_set_to_a_value_of_its_type(words: list[str], key: str, value: Any) -> None:
    found: Any = to_plain(composed([COMPONENT, *words]).config)
    for name in key.split("."):
        found = found[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=str)
def test_a_form_without_meaning_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        composed([COMPONENT, *words])
    assert message in str(refusal.value)
