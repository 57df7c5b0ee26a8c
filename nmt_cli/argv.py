"""Command lines as users type them, rewritten into what Hydra's parser accepts. Pure functions of ``argv``.

Hydra 1.3 reads ``key=value`` overrides and its own flags only, and refuses overrides on both sides of a flag. Here
flags (``--beam 4``) are aliases of configuration keys, bare arguments are corpus folders, and any order will do:

    data-bin/x --cfg job +model=transformer_tiny --lr 0.1
    data=['data-bin/x'] model=transformer_tiny optimizer.lr=0.1 --cfg job
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException

from nmt.config.option import Flag, FlagKind
from nmt.errors import UsageError, closest, numbered

if TYPE_CHECKING:
    from nmt_cli.flags import ForeignFlag

# Hydra's flags that take a value, with the values allowed where they are few. A test compares both tables with Hydra's
# parser. `--experimental-rerun` is left out on purpose: it unpickles a file.
HYDRA_VALUE_FLAGS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("--cfg", "-c"), ("job", "hydra", "all")),
    **dict.fromkeys(("--package", "-p", "--config-path", "-cp", "--config-name", "-cn", "--config-dir", "-cd"), ()),
}
INFO_CHOICES = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
INFO_FLAGS = frozenset({"--info", "-i"})  # their value may be left out
_OTHER_COMMANDS = frozenset("--run -r --multirun -m --shell-completion -sc --hydra-help".split())
HYDRA_SWITCHES = _OTHER_COMMANDS | {"--help", "-h", "--version", "--resolve"}
# With one of these nothing is run: something is printed, often into a pager or `head`.
PRINTING_FLAGS = frozenset({"--help", "-h", "--hydra-help", "--version", "--cfg", "-c", "--info", "-i"})

_OVERRIDE = re.compile(r"(?P<sign>\+\+|\+|~)?(?P<key>[A-Za-z_][\w./@:-]*)=(?P<value>.*)", re.DOTALL)
_LETTERS = re.compile(r"-[A-Za-z]{1,2}")
_DELETION = re.compile(r"~[A-Za-z_][\w./@:-]*")


@dataclass(frozen=True)
class Grammar:
    """What one command understands beside Hydra's own flags."""

    flags: Mapping[str, Flag]  # by name: "--beam"
    groups: frozenset[str] = frozenset()  # "model", ...: both model=x and +model=x choose
    names: frozenset[str] = frozenset()  # first parts of all keys: tells an override from a path that contains "="
    bare: str | None = None  # the list that bare arguments fill ("data")
    instead_of_bare: Callable[[str], str] = "--help lists the flags, not {}".format  # where there is no such list
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # other spellings: "--cpu" -> --device cpu
    values: Mapping[tuple[str, str], str] = field(default_factory=dict)  # other spellings of a flag's value
    foreign: Mapping[str, ForeignFlag] = field(default_factory=dict)  # flags of other toolkits that are understood
    advice: Mapping[str, str] = field(default_factory=dict)  # those that are not: what to do instead
    keys: Callable[[], Mapping[str, str]] = dict  # of options, by flags that one might expect; only messages need them


@dataclass(frozen=True)
class CommandLine:
    """A rewritten command line."""

    overrides: tuple[str, ...]
    hydra: tuple[str, ...]  # Hydra's flags with their values
    notes: tuple[str, ...] = ()  # what became of flags of other toolkits, for the log

    @property
    def argv(self) -> list[str]:
        if "--hydra-help" in self.hydra:  # it knows Hydra's own options alone
            return [*self.hydra]
        return [*self.overrides, *self.hydra]

    @property
    def asks_for_help(self) -> bool:
        return "--help" in self.hydra or "-h" in self.hydra

    @property
    def config_dirs(self) -> list[Path]:
        """Folders of presets that the user names."""
        return [Path(value).expanduser() for value in self._values_of("--config-dir", "-cd")]

    @property
    def prints_job(self) -> bool:
        """Whether the composed configuration is asked for, and nothing that does not go with it."""
        return "job" in self._values_of("--cfg", "-c") and (_OTHER_COMMANDS | INFO_FLAGS).isdisjoint(self.hydra)

    @property
    def only_prints(self) -> bool:
        return not PRINTING_FLAGS.isdisjoint(self.hydra)

    @property
    def is_sweep(self) -> bool:
        return not self.only_prints and not {"--multirun", "-m"}.isdisjoint(self.hydra)

    def value_of(self, *names: str) -> str | None:
        """What one of Hydra's flags is given, under either of its names."""
        return next(iter(self._values_of(*names)), None)

    def _values_of(self, *names: str) -> list[str]:
        return [value for name, value in zip(self.hydra, self.hydra[1:]) if name in names]

    def without(self, *names: str) -> list[str]:
        """Hydra's flags without these, and without their values."""
        waiting = iter(self.hydra)
        given = [[name, next(waiting)] if name in HYDRA_VALUE_FLAGS else [name] for name in waiting]
        return [word for words in given if words[0] not in names for word in words]


def rewrite(argv: Sequence[str], grammar: Grammar) -> CommandLine:
    """Overrides first, Hydra's own flags last; flags, aliases, bare arguments and ``+group=`` made canonical."""
    return _Rewriter(argv, grammar).rewrite()


def quoted(text: str) -> str:
    """``text`` as a value that Hydra's grammar reads back unchanged (interpolations ``${...}`` stay alive)."""
    return str(QuotedString(text, Quote.single).with_quotes())


def by_key(overrides: Sequence[str]) -> dict[str, Override]:
    """As Hydra reads them; nothing where it cannot, which it will say itself."""
    try:
        read = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException:
        return {}
    return {override.get_key_element().lstrip("+~"): override for override in read if not override.is_delete()}


def take_config(argv: Sequence[str]) -> tuple[list[str], str | None]:
    """The arguments without ``--config FILE``, and the file; needed before all else, because it may name a plugin."""
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
        raise UsageError(f"--config is given {len(files)} times; one configuration can be the start of another")
    return rest, files[0] if files else None


def user_dir_in(argv: Sequence[str]) -> str | None:
    """The plugins that a command line names; needed before ``rewrite``, because a plugin may add flags."""
    flags, key, waiting = list[str](), None, iter(argv)
    for argument in waiting:
        name, equals, value = argument.partition("=")
        if name == "--user-dir":
            flags += [value] if equals else [next(waiting, "")]
        elif equals and name.lstrip("+~") == "user_dir":
            key = value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
    found = ",".join(flags) if key is None else key  # as they are composed
    return found if found not in ("", "null") else None


class _Rewriter:
    """One pass over the arguments."""

    def __init__(self, argv: Sequence[str], grammar: Grammar) -> None:
        self._waiting = list(reversed(argv))
        self._grammar = grammar
        self._overrides: list[str] = []
        self._hydra: list[str] = []
        self._notes: list[str] = []
        self._wrong: list[str] = []  # complaints: whoever brings a long line from elsewhere hears of all flags at once
        self._lists: dict[str, list[str]] = {}  # by key: what flags and bare arguments give, one after the other
        self._joined: dict[str, list[str]] = {}  # by key: texts that become one
        self._whole: dict[str, str] = {}  # by key: the override that gives such a list as a whole

    def rewrite(self) -> CommandLine:
        while self._waiting:
            try:
                self._take(self._waiting.pop())
            except UsageError as error:
                self._wrong.append(str(error))
        for key, argument in self._whole.items():
            if key in self._lists:
                twice = f"a flag or a bare argument gives {key} too; write it in one of these ways"
                self._wrong.append(f"{argument}: {twice}")
        if self._wrong:
            raise UsageError(numbered(list(dict.fromkeys(self._wrong))))
        lists = [f"{key}=[{','.join(map(quoted, items))}]" for key, items in self._lists.items()]
        joined = [f"{key}={quoted(','.join(items))}" for key, items in self._joined.items()]
        return CommandLine((*lists, *joined, *self._overrides), tuple(self._hydra), tuple(self._notes))

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
        given = text if equals else None
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
                self._overrides.append(f"{flag.key}={self._value(flag, given)}")
        elif (key := self._negated(name)) is not None or name in HYDRA_SWITCHES:
            if equals:
                raise UsageError(f"{name} takes no value")
            if key is None:
                self._hydra.append(name)
            else:
                self._overrides.append(f"{key}=false")
        elif name in HYDRA_VALUE_FLAGS or name in INFO_FLAGS:
            self._hydra.extend(self._hydra_value(name, given))
        elif name in self._grammar.foreign:
            self._foreign(name, given)
        else:
            values = [text] if equals else [*self._following()]
            option = self._grammar.keys().get(name.replace("_", "-"))  # it may exist without a flag
            written = f"write the option's key: {option}={values[0] if values else 'VALUE'}"
            self._wrong.append(self._unknown(name) if option is None else f"{name} is not a flag; {written}")

    def _foreign(self, name: str, given: str | None) -> None:
        """What a flag of another toolkit stands for is read in its place."""
        flag = self._grammar.foreign[name]
        if given is None and flag.takes_value:
            given = self._next(name)
        elif given is None and self._waiting and self._waiting[-1] in flag.optional:
            given = self._waiting.pop()
        elif given is not None and not flag.takes_value and not flag.optional:
            raise UsageError(f"{name} takes no value")
        words, note = flag.becomes(name, given)
        self._waiting.extend(reversed(words))
        self._notes.append(note)

    def _following(self) -> Iterator[str]:
        """All that is neither a flag nor an override: it may be a value."""
        while self._waiting and not self._is_flag(self._waiting[-1]) and not self._is_override(self._waiting[-1]):
            yield self._waiting.pop()

    def _value(self, flag: Flag, given: str | None) -> str:
        if flag.kind is FlagKind.switch:
            return "true" if given is None else given
        if given is None and flag.implied is not None and not self._names_a_choice(flag.name, flag.implied):
            return flag.implied.name
        value = given if given is not None else self._next(flag.name)
        value = self._grammar.values.get((flag.name, value), value)
        if flag.kind is FlagKind.text:
            return quoted(value)
        if not value:
            raise UsageError(f"{flag.name} needs a value")
        return value

    def _names_a_choice(self, name: str, implied: Enum) -> bool:
        """Whether the next argument is the value of a flag that needs none, and not the next corpus folder."""
        word, choices = self._waiting[-1] if self._waiting else "-", type(implied).__members__
        return set(word.split(",")) <= set(choices) or (name, word) in self._grammar.values

    def _next(self, name: str) -> str:
        if not self._waiting or self._is_flag(self._waiting[-1]):
            raise UsageError(f"{name} needs a value")
        return self._waiting.pop()

    def _hydra_value(self, name: str, given: str | None) -> list[str]:
        choices = INFO_CHOICES if name in INFO_FLAGS else HYDRA_VALUE_FLAGS[name]
        if given is None and name in INFO_FLAGS and (not self._waiting or self._waiting[-1] not in choices):
            given = "all"
        value = given if given is not None else self._next(name)
        if choices and value not in choices:
            raise UsageError(f"{name} {value}: choose one of {', '.join(choices)}")
        return [name, value]

    def _is_flag(self, argument: str) -> bool:
        """``--x`` is, and a dash with a letter or two; other dashes begin a number, or stand for standard input."""
        return argument.startswith("--") or _LETTERS.fullmatch(argument) is not None

    def _negated(self, name: str) -> str | None:
        """The key of a switch that may be on without its flag, for ``--no-x``."""
        flag = self._grammar.flags.get("--" + name.removeprefix("--no-")) if name.startswith("--no-") else None
        return flag.key if flag is not None and flag.kind is FlagKind.switch and flag.default is not False else None

    def _is_override(self, argument: str) -> bool:
        if _DELETION.fullmatch(argument):
            return True
        override = _OVERRIDE.fullmatch(argument)
        if override is None:
            return False
        if override["sign"] or "/" not in override["key"]:
            return True
        return re.split(r"[./@:]", override["key"])[0] in self._grammar.names | self._grammar.groups | {"hydra"}

    def _override(self, argument: str) -> str:
        override = _OVERRIDE.fullmatch(argument)
        if argument.startswith("~") and not argument.startswith("~hydra"):
            raise UsageError(f"{argument}: no option can be taken away; give it another value with KEY=VALUE")
        if override is None:
            return argument
        sign, key, value = override["sign"] or "", override["key"], override["value"]
        group, at, _ = key.partition("@")
        if group in self._grammar.groups and (at or value[:1] in ("[", "{")):  # it holds one choice, and has one place
            raise UsageError(f"{argument}: choose one by its name, {group}=NAME; with -m {group}=A,B runs each of them")
        if sign == "+" and key in self._grammar.groups:
            sign = ""  # Hydra alone accepts just one of model=x and +model=x
        for flag in self._grammar.flags.values():
            if flag.kind is FlagKind.many and key.startswith(f"{flag.key}."):
                same = [
                    other.key
                    for other in self._grammar.flags.values()
                    if other.key.split(".")[-1] == key.split(".")[-1]
                ]
                meant = f" (did you mean '{same[0]}'?)" if same else f"; give it as a whole, {flag.key}=[...]"
                raise UsageError(f"{argument}: {flag.key} is a list and has no options of its own{meant}")
        if any(flag.key == key and flag.kind is FlagKind.many for flag in self._grammar.flags.values()):
            value = _as_list(value)
            self._whole[key] = argument
        return f"{sign}{key}={value}"

    def _unknown(self, name: str) -> str:
        if name in self._grammar.advice:
            return f"{name} is not a flag here: {self._grammar.advice[name]}"
        negations = ["--no-" + known[2:] for known in self._grammar.flags if self._negated("--no-" + known[2:])]
        own = [*self._grammar.flags, *self._grammar.aliases, "--config", *negations]
        known = [*own, *HYDRA_SWITCHES, *HYDRA_VALUE_FLAGS]
        # Without the dashes, which make short words alike; a letter resembles any other.
        words = [flag[2:] for flag in known if flag.startswith("--")]
        meant = closest(name.replace("_", "-").lstrip("-"), words) if name.startswith("--") else None
        hint = "; --help lists them" if meant is None else f" (did you mean '--{meant}'?)"
        return f"unknown flag {name}{hint}"


def _split(values: Sequence[str]) -> list[str]:
    """Comma-separated items of one or several values; "(0.9, 0.98)" and "[a,b]" as well."""
    items: list[str] = []
    for value in values:
        inner = value[1:-1] if (value[:1], value[-1:]) in (("(", ")"), ("[", "]")) else value
        items.extend(item.strip() for item in inner.split(",") if item.strip())
    return items


def _as_list(value: str) -> str:
    """One item where a list is wanted becomes a list of one; lists, sweeps and interpolations stay."""
    is_quoted = value[:1] in ("'", '"')
    if not value or value == "null" or value[0] in "[$" or (not is_quoted and re.search(r"[,(]", value)):
        return value
    return f"[{value}]"
