"""Manual pages, made from the declarations that ``--help`` shows."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import nmt
from nmt.config.composing.first_screens import FIRST_SCREENS
from nmt.config.composing.help import OTHER_FLAGS, SYNTAX, Row, tables, usage
from nmt.config.composing.presets import component_names, default_presets, preset_names
from nmt.config.composing.programs import program_of
from nmt.errors import UsageError, did_you_mean
from nmt.plugins import load_plugins, preset_folders
from nmt.storage.files import atomic_write
from nmt_cli.command_line.programs import COMMANDS, options_class, purpose_of, word_of
from nmt_cli.shell.overview import ABOUT, OWN, commands, examples

UMBRELLA = "nmt"  # its page lists the commands
STATUS = "0: success; 2: wrong command line; others: see the documentation."


def show_manual(words: Sequence[str]) -> None:
    """Run ``nmt man WORDS``: show a page, or write all of them."""
    load_plugins()
    programs = {word_of(command): command for command in COMMANDS}
    if words[:1] == ["install"] and len(words) <= 2:
        folder = Path(words[1]).expanduser() if words[1:] else Path(sys.prefix, "share", "man")
        print(f"{_write_pages(folder / 'man1')}: {len(COMMANDS) + 1} pages written")
    elif len(words) > 1 or (words and words[0] not in programs):
        hint = did_you_mean(words[0], [*programs, "install"])
        raise UsageError(f"nmt man {' '.join(words)}: give the name of a command, or install [FOLDER]{hint}")
    else:
        _show(programs[words[0]] if words else UMBRELLA)


def manual_page(command: str) -> str:
    """Return the page of a command, or of ``nmt``, in the language of man."""
    if command == UMBRELLA:
        parts = [*_start("nmt", ABOUT.partition(": ")[2], "COMMAND [ARGUMENT ...]"), ".SH COMMANDS", _rows(commands())]
        parts += [_rows(OWN.items()), *_examples(examples())]
        others = [program_of(command) for command in COMMANDS]
    else:
        importlib.import_module(f"nmt_cli.{command}")  # registers the components
        config_class, program, others = options_class(command), program_of(command), ["nmt"]
        parts = [*_start(program, purpose_of(command), usage(config_class)), ".SH DESCRIPTION", _roff(SYNTAX)]
        parts += [*_examples(FIRST_SCREENS[command].examples), ".SH OPTIONS"]
        for title, rows in [*tables(config_class, preset_folders()), ("other flags", OTHER_FLAGS.items())]:
            parts += [f'.SS "{_roff(title)}"', _rows(rows)]
        groups = default_presets(config_class)
        names = {group: [*preset_names(group, preset_folders()), *component_names(group)] for group in groups}
        parts += [".SH PRESETS", _rows((f"{group}=", ", ".join(names[group])) for group in groups)] if groups else []
    also = ", ".join(f"\\fB{_roff(name)}\\fR(1)" for name in others)
    parts += [".SH EXIT STATUS", _roff(STATUS), ".SH SEE ALSO", also]
    return "\n".join([*parts, ".PP", _roff(nmt.DOCUMENTATION), ""])


def _show(command: str) -> None:
    if shutil.which("man") is None:
        raise UsageError("the program man is not installed; nmt help COMMAND all shows the same")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, f"{_name(command)}.1")
        file.write_text(manual_page(command), encoding="utf-8")
        status = subprocess.run(["man", str(file)], check=False).returncode
    sys.exit(status)


def _write_pages(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for command in (UMBRELLA, *COMMANDS):
        with atomic_write(folder / f"{_name(command)}.1") as file:
            file.write(manual_page(command).encode())
    return folder


def _name(command: str) -> str:
    return command if command == UMBRELLA else program_of(command)


def _start(program: str, purpose: str, arguments: str) -> list[str]:
    name = _roff(program)
    head = f'.TH {name.upper()} 1 "" "nmt {nmt.__version__}" "nmt"'
    return [head, ".SH NAME", f"{name} \\- {_roff(purpose)}", ".SH SYNOPSIS", f"\\fB{name}\\fR {_roff(arguments)}"]


def _rows(rows: Iterable[Row]) -> str:
    return "\n".join(f".TP\n\\fB{_roff(flag)}\\fR\n{_roff(text)}" for flag, text in rows)


def _examples(rows: Iterable[Row]) -> list[str]:
    return [".SH EXAMPLES", *(f".TP\n{_roff(purpose)}\n.nf\n{_roff(line)}\n.fi" for purpose, line in rows)]


def _roff(text: str) -> str:
    """Return text without what the language of man would take for a request."""
    return re.sub(r"^(?=[.'])", r"\\&", text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq"))
