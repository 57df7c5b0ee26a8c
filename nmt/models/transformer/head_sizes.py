"""How wide the heads of an attention are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class HeadSizes:
    """The sizes of an attention; key and value widths are free of D / H."""

    d_model: int
    num_heads: int
    d_k: int
    d_v: int

    @property
    def keys(self) -> int:
        return self.num_heads * self.d_k

    @property
    def values(self) -> int:
        return self.num_heads * self.d_v
