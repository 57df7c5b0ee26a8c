"""What a command understands on its command line: data that ``flags.py`` makes and ``argv.py`` reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from nmt.config.option import Flag
from nmt.errors import UsageError

# Flags that name the run folder; all but the first come from other toolkits.
NAMES_OF_SAVE_DIR = ("--save-dir", "--output-dir", "--model-dir", "--run-dir")


@dataclass(frozen=True)
class ForeignFlag:
    """A flag of fairseq that is not declared here, and the arguments that replace it."""

    needs: str  # commands with this flag of ours understand it
    reason: str = ""  # why it has no effect, or this one
    takes_value: bool = False
    optional: frozenset[str] = frozenset()  # values that may follow, of a flag that also stands alone
    # Arguments of ours by value, or made from name and value; None: the flag has no effect.
    words: Mapping[str, tuple[str, ...]] | Callable[[str, str], Sequence[str]] | None = None
    advice: str = ""  # for a value that ``words`` does not have

    def replacement(self, name: str, value: str | None) -> tuple[tuple[str, ...], str]:
        """Our arguments, and a line for the log."""
        argument = name if value is None else f"{name} {value}"
        words: Sequence[str] | None = ()
        if self.words is not None:
            words = self.words(name, value or "") if callable(self.words) else self.words.get(value or "")
        if words is None:
            raise UsageError(f"{argument}: {self.advice}")
        if not words:
            return (), f"{argument} has no effect: {self.reason or 'it sets no option'}"
        return tuple(words), f"{argument} is read as {' '.join(words)}{f'; {self.reason}' if self.reason else ''}"


@dataclass(frozen=True)
class Grammar:
    """What one command understands in addition to Hydra's own flags."""

    flags: Mapping[str, Flag]  # by name: "--beam"
    groups: frozenset[str] = frozenset()  # "model", ...: both model=x and +model=x choose
    names: frozenset[str] = frozenset()  # first parts of all keys: tells an override from a path that contains "="
    bare: str | None = None  # the list that bare arguments fill ("data")
    instead_of_bare: Callable[[str], str] = "--help all lists the flags, not {}".format  # where there is no such list
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # other spellings: "--cpu" -> --device cpu
    values: Mapping[tuple[str, str], str] = field(default_factory=dict)  # other spellings of a flag's value
    foreign: Mapping[str, ForeignFlag] = field(default_factory=dict)  # flags of other toolkits that are understood
    advice: Mapping[str, str] = field(default_factory=dict)  # those that are not: what to do instead
    keys: Callable[[], Mapping[str, str]] = dict  # of options, by flags that one might expect; only messages need them
