"""Options of translating: Python keywords to options, and options to a search and a dictionary."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.composing.assignments import Assignment
from nmt.config.composing.composition import assigned, compose
from nmt.config.composing.presets import Base
from nmt.config.option import keyword_of
from nmt.config.plain import to_plain
from nmt.config.translation import TranslationOptions
from nmt.search import Search, searches
from nmt.search.config import BeamConfig, LengthPenalty
from nmt.search.validated_search import on_validated_search
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
    keywords = {name: value for name, value in keywords.items() if (name, value) != ("search", None)}
    keys = keys_of(*map(searches.config_class, searches.names()))
    assignments, search = on_validated_search(assigned(keywords, keys, "translate"), validated or {})
    base = Base({} if search is None else {"search": to_plain(search)})
    assignments += [Assignment(name, to_plain(value)) for name, value in fixed.items()]
    options: TranslationOptions = compose(TranslationOptions, assignments, base=base, origin="translate").config
    return options


def keys_of(*search_classes: type) -> dict[str, str]:
    """Return the keys of all options that ``translate`` takes, by keyword: those of searches under the names of flags and of
    fields."""
    fields = [field for field in dataclasses.fields(TranslationOptions) if field.metadata.get("keyword", True)]
    of_searches = [field for search_class in search_classes for field in dataclasses.fields(search_class)]
    return {
        **{name: f"search.{field.name}" for field in of_searches for name in (keyword_of(field), field.name)},
        **{field.name: field.name for field in fields},
    }
