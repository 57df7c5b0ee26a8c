"""Bare arguments that were not meant as corpus folders: what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from nmt.config.roles import CommandConfig
from nmt.errors import UsageError, did_you_mean
from nmt.storage.foreign import is_dictionary_of_fairseq

# Of commands whose bare arguments are corpus folders; {file} is what was given.
_FILES = {
    "generate": "a file to translate is given with --input {file}",
    "train": "nmt-preprocess --trainpref {prefix} ... makes a corpus folder of text",
    "shortlist": "a shortlist is learned from a corpus folder, which nmt-preprocess makes",
    "average_checkpoints": "checkpoints are given with --inputs",
}
_OF_DICTIONARY = "a corpus is made of text: nmt-preprocess --trainpref TEXT (--srcdict FILE takes a dictionary)"
# Of commands that take no bare argument, by a flag that they alone have.
_NOTHING = {
    "--sys": "hypotheses are given with --sys {file}",
    "--trainpref": "text is given without the suffix of its language: --trainpref {prefix}",
}


def instead_of_bare(flags: Collection[str], argument: str) -> str:
    """What to do with a bare argument of a command that takes none, and has these flags."""
    return next(
        (_filled(advice, argument) for flag, advice in _NOTHING.items() if flag in flags), "--help lists the flags"
    )


def refused_value(flag: str, word: str, choices: Collection[str], instead: Callable[[str], str]) -> str:
    """The complaint about a word after a flag that may stand alone, in a command that takes no bare argument."""
    wrong = next(part for part in word.split(",") if part not in choices)
    meant = did_you_mean(wrong, choices)
    advice = "" if meant else f"; {instead(word)}"
    return f"{flag} {word}: choose one of {', '.join(choices)}{meant}, or leave the value out{advice}"


def refuse_files(command: str, config: CommandConfig) -> None:
    """Refuse files among the corpus folders."""
    for name in config.data:
        if command in _FILES and Path(name).expanduser().is_file():
            if is_dictionary_of_fairseq(Path(name).expanduser()):
                raise UsageError(f"{name} is a dictionary of fairseq, no corpus folder; {_OF_DICTIONARY}")
            raise UsageError(f"{name} is a file, no corpus folder; {_filled(_FILES[command], name)}")


def _filled(advice: str, argument: str) -> str:
    prefix = argument.removesuffix(".gz").removesuffix(".xz").rpartition(".")[0] or argument
    return advice.format(file=argument, prefix=prefix)
