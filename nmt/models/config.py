"""Options shared by models of several families, and checks of options."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from nmt.config.checks import require_at_most, require_positive, require_share
from nmt.config.option import FlagKind, option
from nmt.errors import UsageError

# Bounds for stored configurations, which determine memory and time: of counts (layers, heads, experts), and of widths.
MOST_PARTS, LARGEST_SIZE = 10_000, 2**20
LARGEST_FACTOR = 100  # of a length, relative to the source length
_COUNT = re.compile(r"num_\w+|\w+_(?:layers|sets|heads)")


def check_sizes(config: Any, declared: type, except_for: Collection[str] = ()) -> None:
    """Refuse sizes and counts that are not positive or exceed a limit, and dropouts that are not shares.

    Only options that the class ``declared`` adds to those it inherits are checked, except ``except_for``.
    """
    own = vars(declared)["__annotations__"].keys() - set(except_for)
    values = {field.name: (field.type, getattr(config, field.name)) for field in fields(declared) if field.name in own}
    sizes = {name: value for name, (kind, value) in values.items() if kind in ("int", "int | None")}
    require_positive("model", **sizes)
    require_at_most("model", MOST_PARTS, **{name: value for name, value in sizes.items() if _COUNT.fullmatch(name)})
    require_at_most("model", LARGEST_SIZE, **sizes)
    for name, (kind, sizes_of_layers) in values.items():
        if kind == "list[int]":
            require_at_most("model", LARGEST_SIZE, **{name: max(sizes_of_layers, default=0)})
    require_share("model", **{name: value for name, (_, value) in values.items() if "dropout" in name})


def at_most(config: Any, **limits: int) -> dict[str, Any]:
    """Return options of ``config``, reduced to their limits; null stays null."""
    return {name: getattr(config, name) and min(getattr(config, name), limit) for name, limit in limits.items()}


def share_all_option(default: bool | None) -> Any:
    """Declare the option ``share_all_embeddings``."""
    text = "Share one matrix between source, target and output; null: if the vocabulary is joint"
    return option(default, help=text, flag="--share-all-embeddings", kind=FlagKind.switch)


def shares_embeddings(option_value: bool | None, joint: bool, name: str = "share_all_embeddings") -> bool:
    """Return the effect of ``model.share_all_embeddings``; null shares if the vocabulary is joint."""
    if option_value and not joint:
        raise UsageError(
            f"model.{name} needs one vocabulary for both languages; preprocess with --joined-dictionary, or omit it"
        )
    return joint if option_value is None else option_value


MOST_BITS = 32  # more than any vocabulary needs


def check_symbol_bits(symbol_bits: int | None) -> None:
    """Refuse an invalid number of bits."""
    if symbol_bits is not None and not 1 <= symbol_bits <= MOST_BITS:
        raise UsageError(f"model.symbol_bits={symbol_bits} must be from 1 to {MOST_BITS}")
