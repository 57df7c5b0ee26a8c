"""Options that several commands share: one declaration, one rule, and the end of the help page."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from nmt.config import common_options
from nmt.config.aligning import AlignConfig
from nmt.config.commands import AverageConfig, GenerateConfig, ScoreConfig, ShortlistConfig
from nmt.config.common_options import CommonOptions
from nmt.config.comparing import CompareConfig
from nmt.config.doctor import DoctorConfig
from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.config.monolingual import MonolingualConfig
from nmt.config.option import flags_of
from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.config.translation import BatchOptions, TranslationOptions
from nmt.config.visualizing import VisualizeConfig
from nmt.errors import UsageError
from nmt.serving.config import ServeConfig
from nmt_cli.command_line.programs import COMMANDS, options_class

FIRST = {
    AlignConfig: "path",
    AverageConfig: "inputs",
    CompareConfig: "sys",
    DoctorConfig: "full",
    ExportConfig: "path",
    GenerateConfig: "data",
    ImportConfig: "from_format",
    MonolingualConfig: "source_lang",
    PreprocessConfig: "source_lang",
    ScoreConfig: "sys",
    ServeConfig: "path",
    ShortlistConfig: "data",
    TrainConfig: "data",
    VisualizeConfig: "runs",
}


@pytest.mark.parametrize("command", [*map(options_class, COMMANDS)], ids=COMMANDS)
def test_the_options_of_a_command_come_before_those_that_it_shares(command: type) -> None:
    first = FIRST[command]
    assert next(flag.key for flag in flags_of(command)) == first, "in its help"
    assert next(iter(to_plain(command()))) == first, "in stored configurations"
    assert next(iter(inspect.signature(command).parameters)) == first, "among its arguments"


def test_a_shared_option_is_the_same_in_every_command_but_for_its_default() -> None:
    mixed_in = [
        one for one in vars(common_options).values() if isinstance(one, type) and issubclass(one, CommonOptions)
    ]
    for mixin in (*mixed_in, BatchOptions):
        declared = _help_texts(mixin)
        for command in FIRST:
            if issubclass(command, mixin):
                assert declared.items() <= _help_texts(command).items()


def test_no_option_is_declared_twice() -> None:
    """Several commands have the same option if its name and its help text are the same."""
    declared: dict[tuple[str, str], set[str]] = {}
    for config in {ancestor for command in FIRST for ancestor in command.__mro__ if dataclasses.is_dataclass(ancestor)}:
        for field in dataclasses.fields(config):
            if field.name in vars(config)["__annotations__"]:
                option = (field.name, field.metadata["help"])
                declared.setdefault(option, set()).add(config.__name__)
    declared = {
        option: configs
        for option, configs in declared.items()
        if option[0]
        not in (
            "on_invalid_utf8",
            "paired",  # declared by a function, because their defaults differ
        )
    }
    assert {option: configs for option, configs in declared.items() if len(configs) > 1} == {}


def test_no_command_declares_an_option_that_others_share() -> None:
    mixed_in = [config for config in vars(common_options).values() if isinstance(config, type)]
    shared = {field: mixin for mixin in mixed_in for field in vars(mixin).get("__annotations__", {})}
    del shared["workers"]  # those of nmt-preprocess encode text
    del shared["output"]  # others write a folder or a page
    for name in ("source_lang", "target_lang", "tag"):
        del shared[name]  # nmt-preprocess and nmt-import store them
    redeclared = [
        (command.__name__, field)
        for command in FIRST
        for field in shared.keys() & {flag.key for flag in flags_of(command)}
        if not issubclass(command, shared[field])
    ]
    assert redeclared == []


def _help_texts(config_class: type) -> dict[str, str]:
    """By flag; commands differ only in what becomes of skipped lines."""
    return {
        flag.name: flag.help.partition("(")[0] if flag.name == "--on-invalid-utf8" else flag.help
        for flag in flags_of(config_class)
    }


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        (AlignConfig, {"max_line_bytes": 0}, "max_line_bytes=0"),
        (PreprocessConfig, {"max_line_bytes": 0}, "max_line_bytes=0"),
        (CompareConfig, {"max_line_bytes": 0}, "max_line_bytes=0"),
        (ExportConfig, {"threads": 0}, "threads=0"),
        (VisualizeConfig, {"device": "gpu"}, "device.name=gpu"),
        (AverageConfig, {"threads": 0}, "threads=0"),
        (ServeConfig, {"max_tokens": 0}, "max_tokens=0"),
        (GenerateConfig, {"workers": 0}, "workers=0"),
        (TranslationOptions, {"nbest": 0}, "nbest=0"),
    ],
)
def test_every_command_obeys_the_rules_of_what_it_mixes_in(command: type, options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        command(**options)


def test_scoring_keeps_the_search_and_the_batches_and_nothing_else() -> None:
    options = GenerateConfig(rerank="x", nbest=2, max_tokens=7, buffer_size=3, replace_unk=True, choose_among=4)
    scoring = options.scoring()
    expected = TranslationOptions(max_tokens=7, buffer_size=3, score_reference=True)
    assert {**vars(scoring), "long_lines": expected.long_lines} == vars(expected)
