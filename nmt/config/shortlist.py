"""The options of nmt-shortlist."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option, user_dir_option
from nmt.config.roles import CommandConfig


@dataclass
class ShortlistConfig(CommandConfig):
    """nmt-shortlist: a corpus folder in, a list of the target pieces that each source piece may become out."""

    data: list[str] = option([], help="corpus folder", flag="--data")
    output: str = option("", help="file to write", flag="--output")
    per_piece: int = option(50, help="target pieces for each source piece", flag="--per-piece")
    frequent: int = option(100, help="the most frequent target pieces, which any sentence may need", flag="--frequent")
    max_pairs: int = option(100_000, help="learn from the first so many sentence pairs", flag="--max-pairs")
    overwrite: bool = option(False, help="replace an existing file", flag="--overwrite")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", per_piece=self.per_piece, max_pairs=self.max_pairs)
        require_not_negative("", frequent=self.frequent)
