"""Completion for bash, zsh and fish: ``complete.SHELL`` with a table of words for each command, made from the declarations.

The scripts start no program, so that they answer at once. A row of a table has three columns: a word (``--flag``, ``key=``,
another word, or FILES: the command takes paths), its values, and its meaning. Values are names, FILES or FREE (nothing to
complete), after LIST if there may be several; a flag without values is a switch.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable, Iterator
from importlib import resources

from nmt.config.composing.help import OTHER_FLAGS, TOPICS
from nmt.config.composing.presets import RECIPE, component_names, default_presets, preset_names
from nmt.config.composing.programs import program_of
from nmt.config.option import Flag, FlagKind, options_of
from nmt.plugins import load_plugins, preset_folders
from nmt.scoring import scorers
from nmt_cli.command_line.argv import HYDRA_VALUE_FLAGS
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.command_line.programs import COMMANDS, options_class, purpose_of, word_of

SHELLS = ("bash", "zsh", "fish")
FILES, FREE, LIST = "@", "-", "*"
MARK = "made by `nmt completion`"  # in the first lines of each script

Row = tuple[str, str, str]

# A help text that begins with the name of a file or a folder, or has it after a colon, a comma or a bracket.
_PATH = re.compile(
    r"(?:^|[:,(] ?|\bor )(?!used )(?:(?! of | for )[^:,(])*"
    r"\b(?:files?|folders?|checkpoints?|text|dictionary|vocabulary)\b",
    re.IGNORECASE,
)
_METRICS = ("metrics", "validation.metrics")  # keys whose values are names of scorers
_WITH_PATH = ("FILE", "FOLDER")


def script(shell: str) -> str:
    """Return the completion script of a shell for ``nmt`` and all other commands."""
    load_plugins()
    words = [(word_of(command), "", purpose_of(command)) for command in COMMANDS]
    helpers = [("help", "", "Help of a command"), ("completion", "", "Completion"), ("man", "", "Manual pages")]
    shells: list[Row] = [(name, "", "Print the script") for name in SHELLS]
    tables: dict[str, list[Row]] = {
        "nmt": [*words, *helpers, ("--help", "", "Help"), ("--version", "", OTHER_FLAGS["--version"])],
        "nmt-help": words,
        "nmt-completion": [("install", "", "Install completion"), *shells],
        "nmt-man": [*words, ("install", "", "Write all pages")],
    }
    programs = " ".join(["nmt", *map(program_of, COMMANDS)])
    tables |= {program_of(command): rows_of(command) for command in COMMANDS}
    text = (resources.files("nmt_cli.shell") / f"complete.{shell}").read_text(encoding="utf-8")
    cases = "\n".join(_case(shell, program, rows) for program, rows in tables.items())
    return text.replace("@MARK@", MARK).replace("@PROGRAMS@", programs).replace("@TABLES@", cases)


def rows_of(command: str) -> list[Row]:
    """Return the words of a command, each once, and what follows them."""
    importlib.import_module(f"nmt_cli.{command}")  # registers the components
    config_class = options_class(command)
    rows: dict[str, Row] = {}
    for word, values, meaning in _words(config_class):
        _, known, first_meaning = rows.get(word, (word, "", meaning))  # components share flags and keys
        several = LIST if values.startswith(LIST) else ""
        names = dict.fromkeys(f"{known} {values}".replace(LIST, "").split())
        rows[word] = word, several + " ".join(names), first_meaning
    return list(rows.values())


def _words(config_class: type) -> Iterator[Row]:
    groups = default_presets(config_class)
    presets = {group: " ".join([*preset_names(group, preset_folders()), *component_names(group)]) for group in groups}
    for flag in options_of(config_class):
        values, is_switch, has_flag = _values(flag), flag.kind is FlagKind.switch, flag.name.startswith("--")
        if has_flag:
            yield flag.name, "" if is_switch else presets.get(flag.key, values), flag.help
        if has_flag and is_switch and flag.default is not False:
            yield f"--no-{flag.name[2:]}", "", f"Turn off: {flag.help}"
        yield f"{flag.key}=", presets.get(flag.key, values), flag.help
    if RECIPE in groups:
        yield f"{RECIPE}=", presets[RECIPE], "Whole experiment"
    topics = {
        *TOPICS,
        *groups,
        *(field.name for field in dataclasses.fields(config_class) if "section" in field.metadata),
    }
    for usage, meaning in OTHER_FLAGS.items():
        word, _, value = usage.partition(" ")
        names = sorted(topics) if word == "--help" else HYDRA_VALUE_FLAGS.get(word, ())
        yield word, " ".join(names) or (FILES if value in _WITH_PATH else FREE if value else ""), meaning
    if grammar_of(config_class).bare is not None:
        yield FILES, "", ""


def _values(flag: Flag) -> str:
    """Return what may follow a flag or a key."""
    several = LIST if flag.kind is FlagKind.many else ""
    if flag.kind is FlagKind.switch:
        return "true false"
    if flag.key in _METRICS:
        return several + " ".join(scorers.names())
    if flag.choices:
        return several + " ".join(flag.choices)
    return several + (FILES if is_path(flag) else FREE)


def is_path(flag: Flag) -> bool:
    """Whether the value of an option is a path, by its help text."""
    is_text = flag.kind in (FlagKind.text, FlagKind.joined, FlagKind.many)
    return is_text and not flag.choices and _PATH.search(flag.help.partition(";")[0]) is not None


def _case(shell: str, program: str, rows: Iterable[Row]) -> str:
    """Return the branch of the script that sets the table of a program."""
    columns = 2 if shell == "bash" else 3  # bash shows no meanings
    texts = ["\t".join(row[:columns]) for row in rows]
    if shell == "fish":
        quoted = [text.replace("\\", "\\\\").replace("'", "\\'") for text in texts]
        return f"        case {program}\n            set rows" + "".join(f" \\\n'{text}'" for text in quoted)
    quoted = [text.replace("'", "'\\''") for text in texts]
    return f"    {program})\n        rows=(\n" + "".join(f"'{text}'\n" for text in quoted) + "        ) ;;"
