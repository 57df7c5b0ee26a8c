"""Check the command lines that a pipeline will start."""

from __future__ import annotations

import importlib

from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.composing.programs import program_of
from nmt.pipelines.commands import Command
from nmt.plugins import load_plugins, preset_folders
from nmt_cli.command_line.argv import rewrite, user_dir_in
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.programs import COMMANDS, options_class


def check_command(command: Command) -> None:
    """Compose the options of a command of nmt without running it. Raise ``UsageError`` if they are wrong."""
    programs = {program_of(name): name for name in COMMANDS}
    program, *words = command.words
    if program in programs:
        importlib.import_module(f"nmt_cli.{programs[program]}")  # registers the components
        load_plugins(user_dir_in(words))
        config_class = options_class(programs[program])
        compose(config_class, read(rewrite(words, grammar_of(config_class)).overrides), preset_folders())
