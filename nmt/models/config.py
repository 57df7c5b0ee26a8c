"""Checks of options that models of several families have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

from nmt.config.checks import require_positive, require_share
from nmt.config.option import FlagKind, option
from nmt.errors import UsageError


def check_sizes(config: Any, declared: type, besides: Collection[str] = ()) -> None:
    """Refuse whole numbers among the options that ``declared`` adds to those it inherits if they are not positive (but for
    those ``besides`` they are all sizes or counts), and dropouts that are no shares of a whole."""
    own = vars(declared)["__annotations__"].keys() - set(besides)
    values = {one.name: (one.type, getattr(config, one.name)) for one in fields(declared) if one.name in own}
    require_positive(
        "model", **{name: value for name, (kind, value) in values.items() if kind in ("int", "int | None")}
    )
    require_share("model", **{name: value for name, (_, value) in values.items() if "dropout" in name})


def at_most(config: Any, **limits: int) -> dict[str, Any]:
    """These options of ``config``, none above its limit, for ``shrink``; null stays null."""
    return {name: getattr(config, name) and min(getattr(config, name), limit) for name, limit in limits.items()}


def share_all_option(default: bool | None) -> Any:
    """Whether there is one matrix for source, target and output: see ``shares_embeddings``."""
    text = "one matrix for source, target and output; null: if the vocabulary is joint"
    return option(default, help=text, flag="--share-all-embeddings", kind=FlagKind.switch)


def shares_embeddings(wanted: bool | None, joint: bool) -> bool:
    """What ``model.share_all_embeddings`` comes to; null shares if the vocabulary is joint."""
    if wanted and not joint:
        raise UsageError(
            "model.share_all_embeddings needs one vocabulary for both languages; preprocess with --joined-dictionary, "
            "or leave it out"
        )
    return joint if wanted is None else wanted


MOST_BITS = 32  # no vocabulary has more symbols


def check_symbol_bits(symbol_bits: int | None) -> None:
    """Refuse numbers of bits that no symbol has."""
    if symbol_bits is not None and not 1 <= symbol_bits <= MOST_BITS:
        raise UsageError(f"model.symbol_bits={symbol_bits} must be from 1 to {MOST_BITS}")
