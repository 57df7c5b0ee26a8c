"""The tables of words in the completion scripts, made from the declarations."""

from __future__ import annotations

import pytest

from nmt.config.composing.presets import RECIPES, component_names, default_presets, preset_names
from nmt.config.option import FlagKind, options_of
from nmt_cli.command_line.programs import COMMANDS, options_class
from nmt_cli.shell.completion import FILES, FREE, LIST, rows_of


def table(command: str) -> dict[str, tuple[str, str]]:
    rows = rows_of(command)
    assert len({word for word, _, _ in rows}) == len(rows)
    return {word: (values, meaning) for word, values, meaning in rows}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_key_group_and_choice_of_a_command_is_a_word_with_its_meaning(command: str) -> None:
    words, groups = table(command), default_presets(options_class(command))
    for flag in options_of(options_class(command)):
        values, meaning = words[f"{flag.key}="]
        assert meaning and set(flag.choices) <= set(values.lstrip(LIST).split())
        if flag.name.startswith("--"):
            values, meaning = words[flag.name]
            assert meaning and (values == "") == (flag.kind is FlagKind.switch)
    for group in groups:
        names = set() if group in RECIPES else set(component_names(group))
        assert set(words[f"{group}="][0].split()) == names | set(preset_names(group))


def test_the_rows_of_training() -> None:
    words = table("train")
    assert words["--save-dir"] == (FILES, "Run folder")
    assert words["--lr"][0] == FREE
    assert words["--dry-run"][0] == "" and words["dry_run="][0] == "true false"
    assert words["--no-async-checkpoints"][1].startswith("Turn off: Write checkpoints in the background")
    assert words["--valid-metrics"][0].startswith(LIST) and "bleu" in words["--valid-metrics"][0].split()
    assert words["--cfg"][0] == "job hydra all" and "batching" in words["--help"][0].split()
    assert FILES in words and FILES not in table("export")
