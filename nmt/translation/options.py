"""Keyword arguments of ``Translator.translate``: the options of nmt-generate under their names as flags or as keys."""

from __future__ import annotations

import dataclasses
from typing import Any

from nmt.config.commands import GenerateConfig
from nmt.config.option import flags_of
from nmt.config.plain import from_plain, to_plain
from nmt.config.validated import ValidatedSearch
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.search import searches

# Options of GenerateConfig that `Translator.translate` takes too.
_OPTIONS = (
    "nbest",
    "batch_size",
    "max_tokens",
    "buffer_size",
    "max_source_length",
    "long_lines",
    "replace_unk",
    "unk_dictionary",
    "mbr",
    "choose_among",
    "remove_bpe",
)


def translation_options(options: dict[str, Any], validated: ValidatedSearch | None = None) -> GenerateConfig:
    """Keyword arguments of ``translate`` as a configuration; an unknown name is an error that lists the known ones.

    What they leave open is as the model was ``validated``, or as the search has it by default.
    """
    remaining = dict(options)
    chosen = remaining.pop("search", None)
    ours = {name: remaining.pop(name) for name in _OPTIONS if name in remaining}
    stored = None if validated is None else validated.unless(chosen, [_option_of(name) for name in remaining])
    search_class = searches.config_class(chosen or "beam") if stored is None else type(stored)
    aliases = _aliases(search_class)
    for name in remaining:
        if name not in aliases:
            known = sorted({*_OPTIONS, *aliases, "search"})
            raise UsageError(
                f"translate has no option '{name}'{did_you_mean(name, known)}; there are: {', '.join(known)}"
            )
    theirs = {} if stored is None else to_plain(stored)
    theirs.pop("name", None)
    theirs |= {aliases[name]: to_plain(value) for name, value in remaining.items()}
    try:
        search: Any = from_plain(search_class, theirs, origin="translate", where="search")
        return dataclasses.replace(from_plain(GenerateConfig, ours, origin="translate"), search=search)
    except DataError as error:
        raise UsageError(str(error)) from None


def _aliases(search_class: type) -> dict[str, str]:
    """Names of the options of a search, by those that ``translate`` knows them under."""
    flags = {flag.name.lstrip("-").replace("-", "_"): flag.key for flag in flags_of(search_class)}
    return flags | {field.name: field.name for field in dataclasses.fields(search_class)}


def _option_of(name: str) -> str:
    """The option that a keyword means in whichever search has it."""
    every = (_aliases(searches.config_class(search)) for search in searches.names())
    return next((aliases[name] for aliases in every if name in aliases), name)
