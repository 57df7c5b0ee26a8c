"""The pages that ``--help`` shows, generated from the declarations: flags, keys, defaults, presets.

``--help`` fits one screen: purpose, usage, examples and the options that most runs need. ``--help all`` and ``--help TOPIC``
show the rest, in the same order for every command. Options of components are those of the presets that the command line
chooses.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from nmt import DOCUMENTATION
from nmt.config.composing.assignments import Assignment
from nmt.config.composing.composition import Presets, chosen_presets
from nmt.config.composing.first_screens import FIRST_SCREENS
from nmt.config.composing.presets import component_names, default_presets, preset_names
from nmt.config.composing.programs import command_of, program_of
from nmt.config.option import Flag, FlagKind, groups_of, options_of
from nmt.config.translation import TranslationOptions
from nmt.errors import UsageError, closest
from nmt.registry import registry_for

NARROWEST, WIDEST = 60, 120  # columns
WIDEST_FLAG = 36
OTHER_FLAGS = {  # of every command, in addition to its options
    "--help [TOPIC]": "the options of most runs, or those of a topic",
    "--config FILE": "options from a run's config.yaml or from the output of --cfg job",
    "--multirun": "run one job for each value of key=1,2; also -m",
    "--cfg job": "print the composed configuration; hydra: that of Hydra; all: both",
    "--config-dir FOLDER": "your own presets, in FOLDER/GROUP/NAME.yaml",
    "--config-name NAME": "your own primary configuration, whose defaults list names that of the command",
    "--config-path FOLDER": "the folder of the primary configuration",
    "--info [SUBJECT]": "print how the configuration is composed",
    "--resolve": "with --cfg: resolve ${...}",
    "--package SECTION": "with --cfg: print this section only",
    "--version": "versions of nmt, Python, torch and Hydra; whether the C part is in use",
}
SYNTAX = (
    "Every option has a key, and most have a flag. The key is the section, a dot and the flag's name with underscores "
    "(--save-dir: checkpoint.save_dir), without a section under `options`. If a line shows another key, use that one. "
    "Flags and keys can be mixed. Hydra composes presets and runs sweeps; its options are hydra.KEY=VALUE (https://hydra.cc)."
)
ALL, OPTIONS, PRESETS, SYNTAX_TOPIC = "all", "options", "presets", "syntax"
TOPICS = frozenset({ALL, OPTIONS, PRESETS, SYNTAX_TOPIC})  # with sections, groups and options

# Placeholders of bare arguments, by the flag that they replace.
BARE = {"--data": "[CORPUS FOLDER ...] ", "--runs": "[RUN FOLDER ...] ", "--sys": "[SYSTEM ...] "}

Row = tuple[str, str]  # a flag, or another text of the first column, and its meaning


def help_page(
    config_class: type,
    folders: Sequence[Path] = (),
    assignments: Sequence[Assignment] = (),
    topic: str = "",
    width: int | None = None,
) -> str:
    """Return a page as text: the first screen, or the page of a topic. ``assignments``: the other words of the command line,
    which choose presets. ``width``: in columns; None: that of the terminal."""
    chosen = chosen_presets(config_class, assignments, folders)
    return _Pages(config_class, folders, chosen, PageLayout(width)).page(topic)


@dataclass(frozen=True)
class _Section:
    topic: str
    title: str
    flags: list[Flag]


class _Pages:
    """The pages of one command line."""

    def __init__(self, config_class: type, folders: Sequence[Path], presets: Presets, layout: PageLayout) -> None:
        command = command_of(config_class)
        self._program = program_of(command)
        self._config_class = config_class
        self._folders = folders
        self._chosen = presets
        self._first = FIRST_SCREENS[command]
        self._defaults = default_presets(config_class)
        self._groups = groups_of(config_class)
        self._stored_group = "search" if issubclass(config_class, TranslationOptions) else None  # set by the model
        self._sections = list(self._all_sections())
        self._layout = layout

    def page(self, topic: str) -> str:
        if topic in ("", ALL):
            examples = self._first.examples[: None if topic else 2]
            blocks = [self._purpose(), self._usage(), self._layout.examples(examples)]
            blocks += self._everything() if topic else [self._everyday(), self._more()]
        else:
            blocks = self._topic(topic)
        return "\n\n".join(block for block in blocks if block)

    def _purpose(self) -> str:
        return self._layout.hanging("", (self._config_class.__doc__ or self._program).strip(), "  ")

    def _usage(self) -> str:
        flags = {flag.name for section in self._sections for flag in section.flags}
        bare = "".join(words for flag, words in BARE.items() if flag in flags)
        usage = f"{bare}[--flag value] [key=value]{' [group=preset]' if self._defaults else ''}, in any order"
        return self._layout.hanging(f"usage: {self._program} ", usage)

    def _everyday(self) -> str:
        flags = {flag.name: flag for section in self._sections for flag in section.flags}
        names = [name for name in self._first.everyday.split() if name in flags]  # a schedule may have no warmup
        rows = [self._row(flags[name], with_key=False) for name in names]
        return self._layout.table("options of most runs", rows)

    def _more(self) -> str:
        topics = ", ".join(topic for topic in self._topics() if topic != ALL)
        rows = [
            (f"{self._program} --help all", "all options, presets and examples"),
            (f"{self._program} --help TOPIC", f"{topics}; or a flag: {self._a_flag()}"),
        ]
        if self._groups:
            group = next(iter(self._groups))
            rows += [(f"{self._program} {group}=NAME --help {group}", f"options of another {group}")]
        return self._layout.table("more", rows) + f"\n  documentation: {DOCUMENTATION}"

    def _a_flag(self) -> str:
        return self._first.everyday.split()[0][2:]

    def _everything(self) -> list[str]:
        tables = [self._layout.table(section.title, map(self._row, section.flags)) for section in self._sections]
        return [*tables, *self._presets(self._defaults), *self._syntax()]

    def _topics(self) -> list[str]:
        presets = [PRESETS] if self._defaults else []
        return [ALL, *(section.topic for section in self._sections), *presets, SYNTAX_TOPIC]

    def _topic(self, topic: str) -> list[str]:
        if topic == SYNTAX_TOPIC:
            return self._syntax()
        if topic == PRESETS and self._defaults:
            return self._presets(self._defaults)
        sections = [section for section in self._sections if section.topic == topic]
        options = [] if sections or topic in self._defaults else self._named(topic)
        for _, flag in options:
            if flag.key in self._groups:  # --arch: options and presets of the model
                return self._topic(flag.key)
        tables = [(section.title, section.flags) for section in sections] or [
            (section.title, [flag]) for section, flag in options
        ]
        presets = self._presets([topic] if topic in self._defaults else [])
        return [*(self._layout.table(title, map(self._row, flags)) for title, flags in tables), *presets]

    def _named(self, name: str) -> list[tuple[_Section, Flag]]:
        """Return the options that a flag or a key names, with or without its dashes or its section: those of this command
        line, or else that of another component."""
        spelled = name.lstrip("-").replace("_", "-")
        for sections in (self._sections, *([other] for other in self._other_components())):
            named = [(section, flag) for section in sections for flag in section.flags if spelled in _spellings(flag)]
            if named:
                return named
        spellings = {spelling for section in self._sections for flag in section.flags for spelling in _spellings(flag)}
        meant = closest(spelled, [*self._topics(), *sorted(spellings)])
        hint = f" (did you mean '{meant}'?)" if meant else ""
        raise UsageError(f"--help {name}: unknown topic{hint}; topics are {', '.join(self._topics())}, and options")

    def _all_sections(self) -> Iterator[_Section]:
        """Yield the options: of the command, of its sections, then of the chosen components."""
        own = [flag for flag in options_of(self._config_class) if "." not in flag.key]
        yield _Section(OPTIONS, "options", own)
        for field in dataclasses.fields(self._config_class):
            if "section" in field.metadata:
                options = options_of(field.metadata["section"], f"{field.name}.")
                yield _Section(field.name, f"{field.name}: {field.metadata['help']}", options)
        for group in self._groups:
            if (component := self._chosen.component(group)) is not None:
                yield self._of_component(group, self._chosen.choices[group] or component, component)

    def _other_components(self) -> Iterator[_Section]:
        for group, role in self._groups.items():
            for component in registry_for(role).names():
                yield self._of_component(group, component, component)

    def _of_component(self, group: str, name: str, component: str) -> _Section:
        preset = "" if name == component else f", a preset of {component}"
        title = f"{group}={name}{preset} (options of another: {self._program} {group}=NAME --help {group})"
        if group == self._stored_group:
            title += "; defaults of a model without a stored search, other models use their validation search"
        config_class = registry_for(self._groups[group]).config_class(component)
        return _Section(group, title, options_of(config_class, f"{group}."))

    def _row(self, flag: Flag, with_key: bool = True) -> Row:
        """Return the line of a flag. The value of a chosen preset replaces the default."""
        flag = dataclasses.replace(flag, default=self._chosen.value(flag.key, flag.default))
        notes = []
        default = _shown(flag.default)
        if flag.name.endswith("="):  # a key without a flag
            name = f"{flag.name}{_placeholder(flag)}"
        elif flag.key in self._groups:
            name, default = f"{flag.name} PRESET", str(self._defaults[flag.key])
        elif flag.kind is FlagKind.switch:
            name = flag.name if flag.default is False else f"--[no-]{flag.name[2:]}"
            default = "" if flag.default is False else default
        else:
            name = f"{flag.name} {_placeholder(flag)}"
        is_stored = self._stored_group is not None and flag.key.partition(".")[0] == self._stored_group
        if is_stored and (flag.key == self._stored_group or not with_key):
            default = "as in validation"
        if with_key and flag.name not in (f"{flag.key}=", f"--{flag.key.rpartition('.')[2].replace('_', '-')}"):
            notes.append(f"key: {flag.key}")
        if default:
            notes.append(f"default: {default}")
        return name, f"{flag.help} ({'; '.join(notes)})" if notes else flag.help

    def _presets(self, groups: Iterable[str]) -> list[str]:
        """Return the choices of groups; a star marks the default."""
        lines = []
        for group in groups:
            default = self._defaults[group]
            names = [*preset_names(group, self._folders), *component_names(group)]
            marked = [f"{name}*" if name == default else name for name in names]
            lines.append(self._layout.hanging(f"  {group:<12}", ", ".join(marked) or "none"))
        return ["\n".join(["presets (group=preset; * is the default)", *lines])] if lines else []

    def _syntax(self) -> list[str]:
        return [f"syntax\n{self._layout.hanging('  ', SYNTAX)}", self._layout.table("other flags", OTHER_FLAGS.items())]


class PageLayout:
    """Text of a width, or as wide as the terminal behind the standard streams."""

    def __init__(self, width: int | None = None) -> None:
        self._width = width or min(max(_columns(), NARROWEST), WIDEST)
        self._flag_width = min(self._width // 3, WIDEST_FLAG)

    def examples(self, examples: Iterable[Row]) -> str:
        """Return purposes and command lines, which may be copied with their line breaks."""
        lines = ["examples"]
        for purpose, command in examples:
            unbroken = re.sub(r"(--\S+) (?!-)", "\\1\N{NO-BREAK SPACE}", command)  # a flag and its value
            wrapped = textwrap.wrap(unbroken, self._width - 8, break_on_hyphens=False)
            lines.append(self.hanging("  # ", purpose, "  # "))
            lines.append("  " + " \\\n      ".join(wrapped).replace("\N{NO-BREAK SPACE}", " "))
        return "\n".join(lines)

    def table(self, title: str, rows: Iterable[Row]) -> str:
        """Return a title and a line for each row."""
        lines = [self.hanging("", title, "  ")]
        for flag, text in list(rows) or [("it has no options", "")]:
            if len(flag) > self._flag_width:  # a separate line keeps the columns aligned
                lines.append(f"  {flag}")
                flag = ""
            lines.append(self.hanging(f"  {flag:<{self._flag_width}}  ", text))
        return "\n".join(lines)

    def hanging(self, start: str, text: str, following: str | None = None) -> str:
        """Wrap ``text`` after ``start``. Further lines are indented like the first, or begin with ``following``."""
        indent = " " * len(start) if following is None else following
        wrapped = textwrap.wrap(
            text, self._width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
        )
        return "\n".join(wrapped) or start.rstrip()


def _columns() -> int:
    """Return the width of the terminal behind any standard stream (`--help all | less`); 80 if none is a terminal."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__, sys.__stdin__)):
        with contextlib.suppress(OSError, ValueError):  # no terminal, or closed
            return shutil.get_terminal_size(os.get_terminal_size(stream.fileno())).columns
    return shutil.get_terminal_size().columns


def _spellings(flag: Flag) -> set[str]:
    """Return the words that name an option, without dashes."""
    names = (flag.name.rstrip("="), flag.key, flag.key.rpartition(".")[2])
    return {name.lstrip("-").replace("_", "-") for name in names}


def _placeholder(flag: Flag) -> str:
    if flag.kind is FlagKind.many:
        return "A,B"
    if flag.kind is FlagKind.optional:
        return "[X]"
    if flag.kind is FlagKind.switch:
        return "true|false"
    if isinstance(flag.default, dict):
        return "{KEY:VALUE}"
    return "X" if flag.kind in (FlagKind.text, FlagKind.joined) or flag.choices else "N"


def _shown(value: Any) -> str:
    """Return a default as text; empty for None."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (list, tuple)):
        return ",".join(_shown(item) for item in value)
    if isinstance(value, dict):
        return ",".join(f"{name}:{_shown(item)}" for name, item in value.items())
    return "" if value is None else str(value)
