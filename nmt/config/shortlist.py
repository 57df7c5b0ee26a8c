"""The options of nmt-shortlist."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import flag, user_dir_option
from nmt.config.roles import CommandConfig


@dataclass
class ShortlistConfig(CommandConfig):
    """nmt-shortlist: a corpus folder in, a list of the target pieces that each source piece may become out."""

    data: list[str] = flag([], help="corpus folder")
    output: str = flag("", help="file to write")
    per_piece: int = flag(50, help="target pieces for each source piece")
    frequent: int = flag(100, help="the most frequent target pieces, which any sentence may need")
    max_pairs: int = flag(100_000, help="learn from the first so many sentence pairs")
    overwrite: bool = flag(False, help="replace an existing file")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", per_piece=self.per_piece, max_pairs=self.max_pairs)
        require_not_negative("", frequent=self.frequent)
