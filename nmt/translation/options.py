"""Options of translating: Python keywords to options, and options to a search and a dictionary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.option import keyword_of
from nmt.config.plain import from_plain, to_plain
from nmt.config.translation import TranslationOptions
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.search import Search, searches
from nmt.search.config import BeamConfig, LengthPenalty
from nmt.search.stored import validated_search
from nmt.translation.lines import read_dictionary

StoredConfigs = Mapping[str, Mapping[str, Any]]  # configurations as plain trees, by model


@dataclass(frozen=True)
class TranslationMethod:
    """Options, and the search and the dictionary built from them; built once, used for any lines."""

    options: TranslationOptions  # with a search
    search: Search
    dictionary: Mapping[str, str] | None  # None: unknown words are not replaced

    @classmethod
    def of(cls, options: TranslationOptions | TranslationMethod) -> TranslationMethod:
        """Build the search and read the dictionary, so that their errors come before the first line. A method is returned
        as is."""
        if isinstance(options, TranslationMethod):
            return options
        if options.search is None:
            options = dataclasses.replace(options, search=BeamConfig())
        dictionary = None
        if options.replace_unk:
            dictionary = {} if options.unk_dictionary is None else read_dictionary(Path(options.unk_dictionary))
        return cls(options, _search_of(options), dictionary)


def _search_of(options: TranslationOptions) -> Search:
    if not options.score_reference:
        return searches.build(options.search, options.candidates())
    from nmt.search.forced import ForcedSearch

    search = options.search
    if isinstance(search, BeamConfig):
        return ForcedSearch(search.length_penalty, search.lenpen)
    return ForcedSearch(LengthPenalty.power, 0.0)


def translation_options(
    keywords: Mapping[str, Any], validated: StoredConfigs | None = None, **fixed: Any
) -> TranslationOptions:
    """Return options from keyword arguments of ``translate``. Other options are those of ``validated``, or the defaults.

    ``fixed``: fields of ``TranslationOptions`` that the caller sets itself.
    """
    of_search = dict(keywords)
    chosen = of_search.pop("search", None)
    values = {name: of_search.pop(name) for name in _KEYWORDS if name in of_search}
    stored = validated_search(validated or {}, chosen, [_field_in_any_search(name) for name in of_search])
    search_class = searches.config_class(chosen or "beam") if stored is None else type(stored)
    fields = _search_keywords(search_class)
    for name in of_search:
        if name not in fields:
            known = sorted(keywords_of(search_class))
            raise UsageError(
                f"translate has no option '{name}'{did_you_mean(name, known)}; there are: {', '.join(known)}"
            )
    tree = {} if stored is None else to_plain(stored)
    tree.pop("name", None)
    tree |= {fields[name]: to_plain(value) for name, value in of_search.items()}
    try:
        search: Any = from_plain(search_class, tree, origin="translate", where="search")
        tree = to_plain({**values, **fixed, "search": search})
        return from_plain(TranslationOptions, tree, origin="translate")
    except DataError as error:
        raise UsageError(str(error)) from None


# Keywords of ``translate`` that are not options of a search.
_KEYWORDS = tuple(
    field.name
    for field in dataclasses.fields(TranslationOptions)
    if field.metadata.get("keyword", True) and "group" not in field.metadata
)


def keywords_of(search_class: type) -> set[str]:
    """Return the names of all options that ``translate`` takes for a search of this class."""
    return {*_KEYWORDS, *_search_keywords(search_class), "search"}


def _search_keywords(search_class: type) -> dict[str, str]:
    """Return the fields of the options of a search by keyword: the name of the flag, and that of the field."""
    fields = dataclasses.fields(search_class)
    return {keyword_of(field): field.name for field in fields} | {field.name: field.name for field in fields}


def _field_in_any_search(keyword: str) -> str:
    """Return the field of a keyword in the first search that has it."""
    every = (_search_keywords(searches.config_class(search)) for search in searches.names())
    return next((fields[keyword] for fields in every if keyword in fields), keyword)
