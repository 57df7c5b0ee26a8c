"""nmt: all commands under one name. ``nmt train`` does what ``nmt-train`` does, in this process and under that name."""

from __future__ import annotations

import importlib
import signal
import sys

import nmt
from nmt.config.composing.programs import program_of
from nmt.errors import NMTError, UsageError, did_you_mean
from nmt_cli.command_line.programs import COMMANDS, word_of
from nmt_cli.process import say, use_utf8
from nmt_cli.shell.overview import PURPOSES, overview, own_page
from nmt_cli.shell.terminal import painted, show_page

HELP = ("--help", "-h")


def main() -> None:
    """Run the command that the first word names."""
    use_utf8()
    try:
        _run(sys.argv[1:])
        sys.stdout.flush()
    except NMTError as error:
        say(f"{painted('nmt:', 'error', sys.stderr)} {error}")
        sys.exit(error.exit_status)


def _run(words: list[str]) -> None:
    word, *rest = words or HELP
    commands = {word_of(command): command for command in COMMANDS}
    if word in commands:
        sys.argv = [program_of(commands[word]), *rest]  # messages name the command as if it was started directly
        importlib.import_module(f"nmt_cli.{commands[word]}").main()
        return
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `nmt | head` ends like any other filter
    if word in HELP:
        show_page(overview())
    elif word in PURPOSES and (not rest or {*HELP} & {*rest}):
        show_page(own_page(word))
    elif word == "--version":
        from nmt_cli.versions import versions

        print(f"nmt {nmt.__version__}\n{versions()}")
    elif word == "completion":
        from nmt_cli.shell.completion import complete

        complete(rest)
    elif word == "man":
        from nmt_cli.shell.manual import write_manual

        write_manual(rest)
    else:
        hint = did_you_mean(word, [*commands, *PURPOSES, *HELP, "--version"])
        raise UsageError(f"unknown command '{word}'{hint}; nmt --help lists the commands")
