"""The first page of ``nmt``: the commands in the order of an experiment, and examples."""

from __future__ import annotations

import nmt
from nmt.config.composing.first_screens import FIRST_SCREENS
from nmt.config.composing.help import PageLayout, Row
from nmt_cli.command_line.programs import COMMANDS, purpose_of, word_of

ABOUT = "nmt: neural machine translation, from raw text to a self-contained model folder and translations"
OWN = {  # what only the umbrella does
    "completion install [SHELL]": "Install completion for bash, zsh or fish; default: the shell in $SHELL",
    "completion SHELL": "Print the completion script of a shell",
    "man install [FOLDER]": "Write all manual pages; default: to the Python environment, where man finds them",
}


def commands() -> list[Row]:
    """Return each command with its purpose."""
    return [(word_of(command), purpose_of(command)) for command in COMMANDS]


def examples() -> list[Row]:
    """Return a first experiment: purposes and command lines."""
    lines = [FIRST_SCREENS[command].examples[0] for command in ("preprocess", "train", "generate")]
    return [(purpose, line.replace("nmt-", "nmt ", 1)) for purpose, line in lines]


def overview(width: int | None = None) -> str:
    """Return the page. ``width``: in columns; None: that of the terminal."""
    layout = PageLayout(width)
    blocks = [
        layout.hanging("", ABOUT, "  "),
        "usage: nmt COMMAND [ARGUMENT ...]",
        layout.table("commands, in the order of an experiment", commands()),
        layout.table("completion and manual pages", OWN.items()),
        layout.examples(examples()),
        f"more\n  nmt train is the same as nmt-train, and so on\n  documentation: {nmt.DOCUMENTATION}",
    ]
    return "\n\n".join(blocks)
