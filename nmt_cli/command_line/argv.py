"""Words of a command line become assignments ``key=value`` and Hydra's own flags. The result depends on ``argv`` only, and
on existing files if an argument may be an assignment or a path.

Flags (``--beam 4``) are aliases of keys, bare arguments are corpus folders, and any order works:

    data-bin/x --cfg job +model=transformer_tiny --lr 0.1
    data=['data-bin/x'] model=transformer_tiny optimizer.lr=0.1, and --cfg job
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from nmt.config.composing.assignments import quoted
from nmt.config.composing.help import TOPICS
from nmt.config.option import Flag, FlagKind
from nmt.errors import UsageError, closest, numbered
from nmt_cli.command_line.grammar import NAMES_OF_SAVE_DIR, Grammar

# Hydra's flags that take a value, with the values allowed if they are few. A test compares the tables with Hydra's parser.
# Left out on purpose: `--experimental-rerun` unpickles a file; `nmt completion` replaces `--shell-completion`.
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
HYDRA_VALUE_FLAGS: Mapping[str, tuple[str, ...]] = {
    "--cfg": ("job", "hydra", "all"),
    "--info": INFO,  # the value may be left out
    **dict.fromkeys(("--package", "--config-path", "--config-name", "--config-dir"), ()),
}
HYDRA_SWITCHES = frozenset("--version --hydra-help --run --multirun --resolve".split())
HYDRA_SHORT = {
    "-h": "--help",
    "-c": "--cfg",
    "-i": "--info",
    "-p": "--package",
    "-r": "--run",
    "-m": "--multirun",
    "-cp": "--config-path",
    "-cn": "--config-name",
    "-cd": "--config-dir",
}
# With one of these the command prints something, often into a pager or `head`, and ends.
PRINTING_FLAGS = frozenset({"--help", "--hydra-help", "--version", "--cfg", "--info"})
# Hydra's flags that say what a command does. They exclude each other.
_MODES = ("--run", "--multirun", "--cfg", "--info")

_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[A-Za-z_][\w./@:-]*)=(?P<value>.*)", re.DOTALL)
_LETTERS = re.compile(r"-[A-Za-z]{1,2}")
_DELETION = re.compile(r"~[A-Za-z_][\w./@:-]*")


@dataclass(frozen=True)
class CommandLine:
    """The words of a command line, sorted."""

    overrides: tuple[str, ...]  # assignments ``key=value``, those of Hydra's own options too
    hydra: Mapping[str, str]  # Hydra's flags by their long names; the value of a switch is empty
    notes: tuple[str, ...] = ()  # what flags of other toolkits were taken for, for the log

    def __post_init__(self) -> None:
        modes = [name for name in _MODES if name in self.hydra]
        if len(modes) > 1 and "--help" not in self.hydra:
            raise UsageError(f"{' and '.join(modes)} exclude each other; give one of them")
        if "--resolve" in self.hydra and not {"--cfg", "--help"} & self.hydra.keys():
            raise UsageError("--resolve belongs to --cfg; add --cfg job")

    @property
    def config_dirs(self) -> list[Path]:
        """Folders of presets that the user names."""
        return [Path(self.hydra["--config-dir"]).expanduser()] if "--config-dir" in self.hydra else []

    @property
    def only_prints(self) -> bool:
        return not PRINTING_FLAGS.isdisjoint(self.hydra)

    @property
    def is_sweep(self) -> bool:
        return "--multirun" in self.hydra or "hydra.mode=MULTIRUN" in self.overrides


def rewrite(argv: Sequence[str], grammar: Grammar) -> CommandLine:
    """Sort the words of a command line. Flags, aliases, bare arguments and ``+group=`` become assignments."""
    return _Rewriter(argv, grammar).rewrite()


def take_config(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the arguments without ``--config FILE``, and the file, which is read first because it may name a plugin."""
    rest, files, waiting = [], list[str](), iter(argv)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name != "--config":
            rest.append(argument)
        elif not equals and (value := next(waiting, "--")).startswith("--"):
            raise UsageError("--config needs a value: a run folder, its config.yaml, or what --cfg job printed")
        else:
            files.append(value)
    if len(files) > 1:
        raise UsageError(f"--config is given {len(files)} times; give one configuration")
    return rest, files[0] if files else None


def user_dir_in(argv: Sequence[str]) -> str | None:
    """Return the plugins that a command line names. ``rewrite`` needs them, because a plugin may add flags."""
    flags, key, waiting = list[str](), None, iter(argv)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name == "--user-dir":
            flags += [value] if equals else [next(waiting, "")]
        elif equals and name.lstrip("+~") == "user_dir":
            key = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    user_dir = ",".join(flags) if key is None else key  # as they are composed
    return user_dir if user_dir not in ("", "null") else None


def run_folder_in(argv: Sequence[str], default: str) -> str | None:
    """Return the run folder that a command line names, for errors of the command line itself. None: a file of ``--config``
    may name it."""
    folder, waiting = None, iter(argv)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name == "--config":
            default = ""
        elif name in NAMES_OF_SAVE_DIR:
            folder = value if equals else next(waiting, None)
        elif equals and name.lstrip("+") == "checkpoint.save_dir":
            folder = value
    return folder or default or None


class _Rewriter:
    """One pass over the arguments."""

    def __init__(self, argv: Sequence[str], grammar: Grammar) -> None:
        self._waiting = list(reversed(argv))
        self._grammar = grammar
        self._overrides: list[str] = []
        self._hydra: dict[str, str] = {}
        self._notes: list[str] = []
        self._wrong: list[str] = []  # complaints, reported together
        self._lists: dict[str, list[str]] = {}  # by key: values of flags and bare arguments
        self._joined: dict[str, list[str]] = {}  # by key: texts that commas will join
        self._whole: dict[str, str] = {}  # by key: the override that sets such a list

    def rewrite(self) -> CommandLine:
        while self._waiting:
            try:
                self._take(self._waiting.pop())
            except UsageError as error:
                self._wrong.append(str(error))
        for key, argument in self._whole.items():
            if key in self._lists:
                twice = f"a flag or a bare argument sets {key} too; set it once"
                self._wrong.append(f"{argument}: {twice}")
        if self._wrong:
            raise UsageError(numbered(list(dict.fromkeys(self._wrong))))
        lists = [f"{key}=[{','.join(map(quoted, items))}]" for key, items in self._lists.items()]
        joined = [f"{key}={quoted(','.join(items))}" for key, items in self._joined.items()]
        return CommandLine((*lists, *joined, *self._overrides), self._hydra, tuple(self._notes))

    def _take(self, argument: str) -> None:
        if argument.startswith("-") and argument != "-":
            self._flag(argument)
        elif self._is_override(argument):
            self._overrides.append(self._override(argument))
        elif self._grammar.bare is not None:
            self._lists.setdefault(self._grammar.bare, []).append(argument)
        else:
            advice = self._grammar.instead_of_bare(argument)
            raise UsageError(f"'{argument}' is neither a flag nor key=value; {advice}")

    def _flag(self, argument: str) -> None:
        name, equals, text = argument.partition("=")
        value, long = text if equals else None, HYDRA_SHORT.get(name, name)
        if name in self._grammar.aliases:
            self._waiting += [*([text] if equals else []), *reversed(self._grammar.aliases[name])]
        elif name in self._grammar.flags:
            flag = self._grammar.flags[name]
            if flag.kind is FlagKind.many:  # the first value may look like an override
                values = [text] if equals else [self._next(name), *self._following()]
                self._lists.setdefault(flag.key, []).extend(_split(values))
            elif flag.kind is FlagKind.joined:
                self._joined.setdefault(flag.key, []).append(text if equals else self._next(name))
            else:
                self._overrides.append(f"{flag.key}={self._value(flag, value)}")
        elif (key := self._negated(name)) is not None or long in HYDRA_SWITCHES:
            if equals:
                raise UsageError(f"{name} takes no value")
            if key is None:
                self._hydra[long] = ""
            else:
                self._overrides.append(f"{key}=false")
        elif long == "--help":
            self._hydra[long] = text if equals else self._topic()
        elif long in HYDRA_VALUE_FLAGS:
            self._hydra[long] = self._hydra_value(name, HYDRA_VALUE_FLAGS[long], value)
        elif name in self._grammar.foreign:
            self._foreign(name, value)
        else:
            values = [text] if equals else [*self._following()]
            option = self._grammar.keys().get(name.replace("_", "-"))  # it may exist without a flag
            written = f"write the option's key: {option}={values[0] if values else 'VALUE'}"
            self._wrong.append(self._unknown(name) if option is None else f"{name} is not a flag; {written}")

    def _foreign(self, name: str, text: str | None) -> None:
        """Replace a flag of another toolkit by the arguments that it stands for."""
        flag = self._grammar.foreign[name]
        if text is None and flag.takes_value:
            text = self._next(name)
        elif text is None and self._waiting and self._waiting[-1] in flag.optional:
            text = self._waiting.pop()
        elif text is not None and not flag.takes_value and not flag.optional:
            raise UsageError(f"{name} takes no value")
        words, note = flag.replacement(name, text)
        self._waiting.extend(reversed(words))
        self._notes.append(note)

    def _following(self) -> Iterator[str]:
        """Take the next arguments until a flag or an override: they may be values."""
        while self._waiting and not self._is_flag(self._waiting[-1]) and not self._is_override(self._waiting[-1]):
            yield self._waiting.pop()

    def _value(self, flag: Flag, text: str | None) -> str:
        if flag.kind is FlagKind.switch:
            return "true" if text is None else text
        if text is None and flag.implied is not None and not self._names_a_choice(flag.name, flag.implied):
            return flag.implied.name
        value = text if text is not None else self._next(flag.name)
        value = self._grammar.values.get((flag.name, value), value)
        if flag.kind is FlagKind.text:
            return quoted(value)
        if not value:
            raise UsageError(f"{flag.name} needs a value")
        return value

    def _names_a_choice(self, name: str, implied: Enum) -> bool:
        """Whether the next argument is the value of a flag that may stand alone, and not a corpus folder."""
        word, choices = self._waiting[-1] if self._waiting else "-", type(implied).__members__
        return set(word.split(",")) <= set(choices) or (name, word) in self._grammar.values

    def _next(self, name: str) -> str:
        if not self._waiting or self._is_flag(self._waiting[-1]):
            raise UsageError(f"{name} needs a value")
        return self._waiting.pop()

    def _hydra_value(self, name: str, choices: Sequence[str], text: str | None) -> str:
        if text is None and choices is INFO and (not self._waiting or self._waiting[-1] not in choices):
            text = "all"
        value = text if text is not None else self._next(name)
        if choices and value not in choices:
            raise UsageError(f"{name} {value}: choose one of {', '.join(choices)}")
        return value

    def _topic(self) -> str:
        """Take the next argument if it is a topic of --help: a section, a group or an option. A path is a
        topic only if it has the name of a section. A flag is a topic only if it is the last word."""
        word = self._waiting[-1] if self._waiting else ""
        is_flag, aliases = self._is_flag(word), self._grammar.aliases
        topic = aliases.get(word if is_flag else f"--{word}", (word,))[0]
        if is_flag:
            is_topic = len(self._waiting) == 1 and topic in {*self._grammar.flags, *self._grammar.keys()}
        elif self._is_override(word):
            is_topic = False
        else:
            is_path = "/" in word or word == "-" or os.path.exists(word)
            is_topic = not is_path or word in self._grammar.groups | self._grammar.names | TOPICS
        if not word or not is_topic:
            return ""
        self._waiting.pop()
        return topic

    def _is_flag(self, argument: str) -> bool:
        """Whether an argument is ``--x``, or a dash and one or two letters. Other dashes are numbers or stdin."""
        return argument.startswith("--") or _LETTERS.fullmatch(argument) is not None

    def _negated(self, name: str) -> str | None:
        """Return the key that ``--no-x`` turns off; None if ``x`` is not a switch or is off by default."""
        flag = self._grammar.flags.get("--" + name.removeprefix("--no-")) if name.startswith("--no-") else None
        return flag.key if flag is not None and flag.kind is FlagKind.switch and flag.default is not False else None

    def _is_override(self, argument: str) -> bool:
        """An argument with "=" is an override if it begins with a key or a group of this command. Otherwise it may be a
        path: a folder of a sweep was once named ``optimizer.lr=0.0005``. Only groups have keys with a slash, so
        ``runs/sweep/seed=1`` is a path although ``runs`` is a key of nmt-visualize."""
        if _DELETION.fullmatch(argument):
            return True
        override = _OVERRIDE.fullmatch(argument)
        if override is None:
            return False
        first, slash = re.split(r"[./@:]", override["key"])[0], "/" in override["key"]
        of_groups = self._grammar.groups | {"hydra"}
        if override["sign"] or first in (of_groups if slash else of_groups | self._grammar.names):
            return True
        return not slash and not os.path.exists(argument)

    def _override(self, argument: str) -> str:
        override = _OVERRIDE.fullmatch(argument)
        if argument.startswith("~") and not argument.startswith("~hydra"):
            raise UsageError(f"{argument}: options cannot be deleted; set another value with KEY=VALUE")
        if override is None:
            return argument
        key, value = override["key"], override["value"]
        if key.startswith(("hydra.", "hydra/")):
            return argument
        group, at, _ = key.partition("@")
        if group in self._grammar.groups and (
            at or value[:1] in ("[", "{")
        ):  # a group holds one choice, in one package
            raise UsageError(f"{argument}: give one name, {group}=NAME; -m {group}=A,B runs each of several")
        for flag in self._grammar.flags.values():
            if flag.kind is FlagKind.many and key.startswith(f"{flag.key}."):
                same = [
                    other.key
                    for other in self._grammar.flags.values()
                    if other.key.split(".")[-1] == key.split(".")[-1]
                ]
                meant = f" (did you mean '{same[0]}'?)" if same else f"; set the whole list, {flag.key}=[...]"
                raise UsageError(f"{argument}: {flag.key} is a list and has no options{meant}")
        if any(flag.key == key and flag.kind is FlagKind.many for flag in self._grammar.flags.values()):
            value = _as_list(value)
            self._whole[key] = argument
        if "=" in value and os.path.exists(value):  # Hydra's grammar reads no "=" in a value without quotes
            value = quoted(value)
        return f"{key}={value}"

    def _unknown(self, name: str) -> str:
        if name in self._grammar.advice:
            return f"{name} is not a flag here: {self._grammar.advice[name]}"
        negations = ["--no-" + known[2:] for known in self._grammar.flags if self._negated("--no-" + known[2:])]
        own = [*self._grammar.flags, *self._grammar.aliases, "--config", *negations]
        known = [*own, "--help", *HYDRA_SWITCHES, *HYDRA_VALUE_FLAGS]
        # Dashes would make short words look similar. One-letter flags are excluded: any two resemble each other.
        words = [flag[2:] for flag in known if flag.startswith("--")]
        meant = closest(name.replace("_", "-").lstrip("-"), words) if name.startswith("--") else None
        hint = "; --help all lists them" if meant is None else f" (did you mean '--{meant}'?)"
        return f"unknown flag {name}{hint}"


def _split(values: Sequence[str]) -> list[str]:
    """Split values at commas; they may have brackets, as in "(0.9, 0.98)" and "[a,b]"."""
    items: list[str] = []
    for value in values:
        inner = value[1:-1] if (value[:1], value[-1:]) in (("(", ")"), ("[", "]")) else value
        items.extend(item.strip() for item in inner.split(",") if item.strip())
    return items


def _as_list(value: str) -> str:
    """Turn a single item into a list of one; lists, sweeps and interpolations stay."""
    is_quoted = value[:1] in ("'", '"')
    if not value or value == "null" or value[0] in "[$" or (not is_quoted and re.search(r"[,(]", value)):
        return value
    return f"[{value}]"
