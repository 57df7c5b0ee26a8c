"""Check the command lines that a pipeline will start."""

from __future__ import annotations

import importlib
from typing import Any

from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.composing.programs import program_of
from nmt.errors import UsageError
from nmt.pipelines.commands import Command
from nmt.plugins import load_plugins, preset_folders
from nmt_cli.command_line.argv import rewrite, take_config, user_dir_in
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.programs import COMMANDS, options_class


def check_command(command: Command) -> Any:
    """Compose and check the options of a command of nmt without running it. Raise ``NMTError`` if they are wrong.

    Return the options; None for other commands.
    """
    programs = {program_of(name): name for name in COMMANDS}
    program, *words = command.words
    if program in programs:
        module = importlib.import_module(f"nmt_cli.{programs[program]}")  # registers the components
        load_plugins(user_dir_in(words))
        config_class = options_class(programs[program])
        grammar = grammar_of(config_class)
        words, file = take_config(words)
        options, _ = take_config(command.options)
        line = rewrite(words, grammar)
        own = read(rewrite(words[: len(words) - len(options)], grammar).overrides)
        reserved = {*command.reserved, *(assignment.key for assignment in own)}
        keys = [assignment.key for assignment in read(rewrite(options, grammar).overrides)]
        for name in (*(["--config"] if file else []), *line.hydra, *(key for key in keys if key in reserved)):
            raise UsageError(f"the pipeline sets {name} itself or does not support it; omit it from this section")
        config = compose(config_class, read(line.overrides), preset_folders()).config
        if hasattr(module, "check"):
            module.check(config)
        return config
    return None
