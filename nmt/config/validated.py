"""The search that a model was validated with: what it translates with unless the user says otherwise."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping
from typing import Any

from nmt.config.option import default_of
from nmt.config.plain import component_from_plain, to_plain
from nmt.errors import DataError, UsageError
from nmt.registry import registered_name

logger = logging.getLogger("nmt.search")

# Options that do not change the score of a given translation: key, flag, and the value that does nothing.
WITHOUT_MEANING_FOR_SCORING: tuple[tuple[str, str, Any], ...] = (
    ("coverage_penalty", "--coverage-penalty", 0.0),
    ("repetition_penalty", "--repetition-penalty", 1.0),
    ("no_repeat_ngram", "--no-repeat-ngram-size", 0),
    ("forbid_unknown", "--forbid-unk", False),
    ("min_len", "--min-len", 1),
)


class ValidatedSearch:
    """The search stored with a model, or with the models of an ensemble, of which the first decides."""

    def __init__(self, trees: Mapping[str, Mapping[str, Any]]) -> None:
        """``trees``: configurations as plain trees, by the file that each was read from. Nothing is rebuilt yet, so a
        search of a plugin that is not loaded is an error only where it is used."""
        self._origin = next(iter(trees), "")
        self._sections = [tree.get("search") for tree in trees.values()]

    def unless(self, chosen: str | None, options: Collection[str]) -> Any:
        """The options of this search. None: none is stored, or the user wants another one, says its name (``chosen``) or
        options that the stored one does not have."""
        section = self._sections[0] if self._sections else None
        if section is None or (chosen is not None and isinstance(section, dict) and chosen != section.get("name")):
            return None
        another = "choose a search to translate without the stored one (--search beam)"
        try:
            search = component_from_plain("search", section, origin=self._origin)
        except DataError as error:
            raise DataError(f"{error}; {another}") from None
        except UsageError as error:
            raise UsageError(f"{self._origin}: {error}; or {another}") from None
        if not {field.name for field in dataclasses.fields(search)}.issuperset(options):
            return None
        if any(other != section for other in self._sections[1:]):
            logger.info(
                "the models of the ensemble were validated with different searches; that of %s counts", self._origin
            )
        return search


def for_scoring(search: Any) -> Any:
    """The search with neutral values of the options that do not change the score of a given translation."""
    fields = {field.name for field in dataclasses.fields(search)}
    return dataclasses.replace(search, **{key: usual for key, _, usual in WITHOUT_MEANING_FOR_SCORING if key in fields})


def described(search: Any, besides: Collection[str] = ()) -> str:
    """The name of a search and its options that are not at their defaults: ``beam, beam_size=4``. ``besides``: left out."""
    values = to_plain(search)
    unusual = [
        f"{field.name}={_shown(values[field.name])}"
        for field in dataclasses.fields(search)
        if field.name not in besides and values[field.name] != to_plain(default_of(field))
    ]
    return ", ".join([str(registered_name(type(search))), *unusual])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return f"{value:g}" if isinstance(value, float) else str(value)
