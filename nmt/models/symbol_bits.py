"""How many bits a symbol may have."""

from __future__ import annotations

from nmt.errors import UsageError

MOST_BITS = 32  # no vocabulary has more symbols


def check_symbol_bits(symbol_bits: int | None) -> None:
    """Refuse numbers of bits that no symbol has."""
    if symbol_bits is not None and not 1 <= symbol_bits <= MOST_BITS:
        raise UsageError(f"model.symbol_bits={symbol_bits} must be from 1 to {MOST_BITS}")
