"""The first page of ``nmt``: the commands in the order of an experiment, and examples. The pages of its own commands."""

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
PURPOSES = {  # of the words of OWN, with an example of the first arguments
    "completion": ("complete commands, flags, keys and values with the Tab key", "nmt completion install bash"),
    "man": ("write manual pages with the text of --help all", "nmt man install && man nmt-train"),
}


def commands() -> list[Row]:
    """Return each command with its purpose."""
    return [(word_of(command), purpose_of(command)) for command in COMMANDS]


def examples() -> list[Row]:
    """Return a first experiment: purposes and command lines."""
    lines = [FIRST_SCREENS[command].examples[0] for command in ("preprocess", "train", "generate")]
    return [(purpose, line.replace("nmt-", "nmt ", 1)) for purpose, line in lines]


def overview(width: int | None = None) -> str:
    """Return the first page. ``width``: in columns; None: that of the terminal."""
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


def own_page(word: str) -> str:
    """Return the help of ``nmt completion`` or ``nmt man``."""
    layout, (purpose, example) = PageLayout(), PURPOSES[word]
    rows = [(usage.removeprefix(f"{word} "), text) for usage, text in OWN.items() if usage.startswith(word)]
    blocks = [
        layout.hanging("", f"nmt {word}: {purpose}", "  "),
        f"usage: nmt {word} {' | '.join(usage for usage, _ in rows)}",
        layout.table("arguments", rows),
        layout.examples([(rows[0][1].partition(";")[0], example)]),
        f"more\n  documentation: {nmt.DOCUMENTATION}/how-to/shell/",
    ]
    return "\n\n".join(blocks)
