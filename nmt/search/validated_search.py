"""The search that a model was validated with, which is the default for translating with it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nmt.config.composing.assignments import Assignment
from nmt.config.option import default_of, not_for_scoring
from nmt.config.plain import component_from_plain, to_plain
from nmt.errors import DataError, UsageError
from nmt.registry import registered_name

logger = logging.getLogger("nmt.search")


def validated_search(trees: Mapping[str, Mapping[str, Any]], chosen: str | None, options: Collection[str]) -> Any:
    """Return the options of the search stored with a model, or with the first model of an ensemble.

    None: no search is stored, or the user chose another one, by its name (``chosen``) or by ``options`` that the stored one
    does not have. ``trees``: configurations as plain trees, by the file that each was read from. A search of a plugin that
    is not loaded is an error only if it is used."""
    origin, tree = next(iter(trees.items()), ("", {}))
    section = tree.get("search")
    if section is None or (chosen is not None and isinstance(section, dict) and chosen != section.get("name")):
        return None
    advice = "override the stored search (--search beam)"
    try:
        search = component_from_plain("search", section, origin=origin)
    except DataError as error:
        raise DataError(f"{error}; {advice}") from None
    except UsageError as error:
        raise UsageError(f"{origin}: {error}; or {advice}") from None
    if not {field.name for field in dataclasses.fields(search)}.issuperset(options):
        return None
    if any(other.get("search") != section for other in trees.values()):
        logger.info("the models of the ensemble were validated with different searches; using the search of %s", origin)
    return search


def on_validated_search(
    assignments: Sequence[Assignment], trees: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Assignment], Any]:
    """Return the stored search, and the assignments to compose on top of it.

    Assignments that choose the stored search by name are omitted. The search is None if the assignments choose another
    one or none is stored; all assignments are then returned."""
    chosen = next((str(assignment.value) for assignment in reversed(assignments) if assignment.key == "search"), None)
    options = {assignment.key.partition(".")[2] for assignment in assignments if assignment.key.startswith("search.")}
    search = validated_search(trees, chosen, options)
    return [assignment for assignment in assignments if search is None or assignment.key != "search"], search


def for_scoring(search: Any) -> Any:
    """Return the search, with defaults for the options that declare ``scoring=False``."""
    return dataclasses.replace(search, **{name: default_of(field) for name, field in not_for_scoring(search).items()})


def described(search: Any, omitted: Collection[str] = ()) -> str:
    """Return the name of a search and its options that differ from the defaults: ``beam, beam_size=4``. ``omitted``:
    options that are left out."""
    values = to_plain(search)
    unusual = [
        f"{field.name}={_shown(values[field.name])}"
        for field in dataclasses.fields(search)
        if field.name not in omitted and values[field.name] != to_plain(default_of(field))
    ]
    return ", ".join([str(registered_name(type(search))), *unusual])


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    return f"{value:g}" if isinstance(value, float) else str(value)
