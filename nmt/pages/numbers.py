"""Format numbers for readers."""

from __future__ import annotations


def short(value: float) -> str:
    """Return a number in few letters: 0.00071, 3.14, 1,500, 45k, 2.1M."""
    if 1000 <= abs(value) < 10_000:
        return f"{value:,.0f}"
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if unit <= abs(value) < 1e12:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def figure(value: float) -> str:
    """Return a number with about four digits."""
    return f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}"


def duration(seconds: float) -> str:
    """Return seconds as h:mm:ss."""
    minutes, whole = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{whole:02}"


def megabytes(value: float) -> str:
    return f"{value / 1000:.1f} GB" if value >= 1000 else f"{value:.0f} MB"


def scientific(value: float) -> str:
    """Return a number as 1.234 x 10^15."""
    mantissa, exponent = f"{value:.3e}".split("e")
    return f"{mantissa}\u00a0\u00d7\u00a010^{int(exponent)}"
