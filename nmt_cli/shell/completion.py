"""``nmt completion``: completion for bash, zsh and fish, with tables of words that are made from the declarations.

A script passes its tables and the typed words to ``answer.py``. A row has a program, a word (``--flag``, ``key=``, another
word, or FILES: the command takes paths), its values, and its meaning. Values are names, FILES or FREE (nothing to complete),
after LIST if there may be several; a flag without values is a switch.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from nmt.config.composing.help import OTHER_FLAGS, TOPICS
from nmt.config.composing.presets import RECIPES, component_names, default_presets, preset_names
from nmt.config.composing.programs import program_of
from nmt.config.option import Flag, FlagKind, options_of
from nmt.errors import OutputError, UsageError, did_you_mean
from nmt.plugins import load_plugins, preset_folders
from nmt.scoring import scorers
from nmt.storage.files import atomic_write
from nmt_cli.command_line.argv import HYDRA_VALUE_FLAGS
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.programs import COMMANDS, options_class, purpose_of, word_of
from nmt_cli.shell.answer import FILES, FREE, LIST
from nmt_cli.shell.overview import PURPOSES

# By shell: the variable of its folder of data or configurations, the default, and the name of the script below.
PLACES = {
    "bash": ("XDG_DATA_HOME", ".local/share", "bash-completion/completions/nmt"),
    "zsh": ("XDG_DATA_HOME", ".local/share", "zsh/site-functions/_nmt"),
    "fish": ("XDG_CONFIG_HOME", ".config", "fish/completions/nmt.fish"),
}
# What loads the script in shells that do not look there.
LINES = {"bash": "source {file}", "zsh": "fpath=({folder} $fpath); autoload -U compinit && compinit"}
MARK = "made by `nmt completion`"  # in the first lines of each script

Row = tuple[str, str, str]

_METRICS = ("metrics", "validation.metrics")  # keys whose values are names of scorers


def complete(words: Sequence[str]) -> None:
    """Run ``nmt completion WORDS``."""
    if len(words) == 1 and words[0] in PLACES:
        print(script(words[0]), end="")
    elif words[:1] == ["install"] and len(words) <= 2:
        _install(words[1] if words[1:] else Path(os.environ.get("SHELL", "")).name)
    else:
        hint = did_you_mean(words[0], ["install", *PLACES]) if words else ""
        raise UsageError(f"{' '.join(['nmt completion', *words])}: give install [SHELL] or {', '.join(PLACES)}{hint}")


def _install(shell: str) -> None:
    """Write the script where the shell looks for it."""
    if shell not in PLACES:
        raise UsageError(
            f"completion is for {', '.join(PLACES)}, not for '{shell}'; name one: nmt completion install bash"
        )
    variable, default, name = PLACES[shell]
    file = Path(os.environ.get(variable) or Path.home() / default, name)
    # Bash and fish look for a file with the name of the command, zsh for those that a file names in its first line.
    links = [] if shell == "zsh" else [file.with_name(program_of(command) + file.suffix) for command in COMMANDS]
    for path in (file, *links):
        if os.path.lexists(path) and not (path.is_file() and MARK.encode() in path.read_bytes()[:1000]):
            raise OutputError(f"{path} is not a file of nmt; remove it, or load the output of nmt completion {shell}")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as output:
        output.write(script(shell).encode())
    for link in links:
        link.unlink(missing_ok=True)
        link.symlink_to(file.name)
    print(f"{file}: written; start a new shell to use it")
    if shell in LINES:
        print(f"If the Tab key does not complete there, add to ~/.{shell}rc:")
        print(LINES[shell].format(file=file, folder=file.parent))


def script(shell: str) -> str:
    """Return the completion script of a shell for ``nmt`` and all other commands."""
    load_plugins()
    rows = [("nmt", "--help", "", "Help"), ("nmt", "--version", "", OTHER_FLAGS["--version"])]
    rows += [("nmt", word, "", purpose[0].upper() + purpose[1:]) for word, (purpose, _) in PURPOSES.items()]
    for command in COMMANDS:
        rows += [("nmt", word_of(command), "", purpose_of(command))]
        rows += [(program_of(command), *row) for row in rows_of(command)]
    rows += [("nmt-completion", word, "", "") for word in ("install", *PLACES)] + [("nmt-man", "install", "", "")]
    folder = resources.files("nmt_cli.shell")
    parts = {"TABLES": "\n".join(map("\t".join, rows)), "ANSWER": (folder / "answer.py").read_text("utf-8")}
    quoted = {name: _quoted(shell, text) for name, text in (parts | {"PYTHON": sys.executable}).items()}
    text = (folder / f"complete.{shell}").read_text("utf-8")
    for name, part in ({"MARK": MARK, "PROGRAMS": " ".join(["nmt", *map(program_of, COMMANDS)])} | quoted).items():
        text = text.replace(f"@{name}@", part)
    return text


def _quoted(shell: str, text: str) -> str:
    if shell == "fish":
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return shlex.quote(text)


def rows_of(command: str) -> list[Row]:
    """Return the words of a command, each once, and what follows them."""
    importlib.import_module(f"nmt_cli.{command}")  # registers the components
    rows: dict[str, Row] = {}
    for word, values, meaning in _words(options_class(command)):
        _, known, first_meaning = rows.get(word, (word, "", meaning))  # components share flags and keys
        several = LIST if values.startswith(LIST) else ""
        names = dict.fromkeys(f"{known} {values}".replace(LIST, "").split())
        rows[word] = word, several + " ".join(names), first_meaning
    return list(rows.values())


def _words(config_class: type) -> Iterator[Row]:
    groups = default_presets(config_class)
    presets = {group: " ".join([*preset_names(group, preset_folders()), *component_names(group)]) for group in groups}
    for flag in options_of(config_class):
        values, is_switch = presets.get(flag.key, _values(flag)), flag.kind is FlagKind.switch
        if flag.name.startswith("--"):
            yield flag.name, "" if is_switch else values, flag.help
            if is_switch and flag.default is not False:
                yield f"--no-{flag.name[2:]}", "", f"Turn off: {flag.help}"
        yield f"{flag.key}=", values, flag.help
    for group in groups.keys() & RECIPES:  # at most one
        yield f"{group}=", presets[group], "Whole experiment"
    sections = [field.name for field in dataclasses.fields(config_class) if "section" in field.metadata]
    for usage, meaning in OTHER_FLAGS.items():
        word, _, value = usage.partition(" ")
        names = sorted({*TOPICS, *groups, *sections}) if word == "--help" else HYDRA_VALUE_FLAGS.get(word, ())
        yield word, " ".join(names) or (FILES if value in ("FILE", "FOLDER") else FREE if value else ""), meaning
    if grammar_of(config_class).bare is not None:
        yield FILES, "", ""


def _values(flag: Flag) -> str:
    """Return what may follow a flag or a key. Any text may be a path."""
    several = LIST if flag.kind is FlagKind.many else ""
    if flag.kind is FlagKind.switch:
        return "true false"
    if flag.key in _METRICS:
        return several + " ".join(scorers.names())
    is_text = flag.kind in (FlagKind.text, FlagKind.joined, FlagKind.many)
    return several + (" ".join(flag.choices) or (FILES if is_text else FREE))
