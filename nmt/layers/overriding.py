"""A check for pairs of methods that compute the same: a subclass must override both."""

from __future__ import annotations

from collections.abc import Collection


def require_together(cls: type, changed: str, others: Collection[str], why: str) -> None:
    """Refuse a subclass that overrides ``changed``, but inherits any of ``others``. Call it in ``__init_subclass__``."""
    inherited = [
        name
        for name in others
        if name not in vars(cls) and not getattr(getattr(cls, name), "__isabstractmethod__", False)
    ]
    if changed in vars(cls) and inherited:
        raise TypeError(f"{cls.__name__} overrides {changed}, but not {' and '.join(inherited)}, {why}")
