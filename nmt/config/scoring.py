"""The options of nmt-score."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.choices import InvalidText, PieceMarks, ScoreFormat
from nmt.config.option import flag, user_dir_option
from nmt.config.roles import CommandConfig
from nmt.config.sections import MAX_LINE_BYTES


@dataclass
class ScoreConfig(CommandConfig):
    """nmt-score: hypotheses and references in, scores with their signatures out."""

    sys: str | None = flag(None, help="hypotheses, one a line; default standard input")
    ref: list[str] = flag([], help="references, one a line; several files with commas")
    metrics: list[str] = flag(["bleu"], help="bleu, chrf, ter, exact; several with commas")
    tokenize: str = flag("13a", help="sacreBLEU tokenizer: 13a, none, zh, char, intl, ...")
    remove_bpe: PieceMarks | None = flag(
        None,
        help="join pieces of hypotheses and references first: none, subword_nmt (the flag alone) or sentencepiece; null: "
        "none, with a warning where text looks cut",
        implied=PieceMarks.subword_nmt,
    )
    lowercase: bool = flag(False, help="score lower-cased")
    format: ScoreFormat = flag(ScoreFormat.text, help="text or json")
    on_invalid_utf8: InvalidText = flag(
        InvalidText.error, help="bytes that are not UTF-8: error, replace or skip (in all files)"
    )
    max_line_bytes: int = flag(MAX_LINE_BYTES, help="longest line read, in bytes")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", max_line_bytes=self.max_line_bytes)

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag that is to be given where standard input cannot be read; None if it is not read anyway."""
        return "--sys" if self.sys in (None, "-") else None
