"""The options of every search that say how long a translation may become."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative
from nmt.config.option import option
from nmt.config.roles import SearchConfig
from nmt.errors import UsageError


@dataclass
class LengthConfig(SearchConfig):
    """The options of every search that say how long a translation may become."""

    max_len_a: float = option(
        1.0, help="longest translation in pieces: max_len_a * source length + max_len_b", flag="--max-len-a"
    )
    max_len_b: float = option(50, help="see max_len_a", flag="--max-len-b")
    min_len: int = option(1, help="shortest translation in pieces", flag="--min-len")

    def __post_init__(self) -> None:
        require_not_negative("search", max_len_a=self.max_len_a, max_len_b=self.max_len_b, min_len=self.min_len)
        if self.max_len_a == 0 and self.max_len_b < max(self.min_len, 1):
            raise UsageError(
                f"search.max_len_b={self.max_len_b} with search.max_len_a=0 leaves no room for "
                f"search.min_len={self.min_len} pieces; raise --max-len-b"
            )
