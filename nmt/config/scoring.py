"""The options of nmt-score."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_positive
from nmt.config.choices import InvalidText, PieceMarks, ScoreFormat
from nmt.config.option import option, user_dir_option
from nmt.config.roles import CommandConfig
from nmt.config.sections import MAX_LINE_BYTES


@dataclass
class ScoreConfig(CommandConfig):
    """nmt-score: hypotheses and references in, scores with their signatures out."""

    sys: str | None = option(None, help="hypotheses, one a line; default standard input", flag="--sys")
    ref: list[str] = option([], help="references, one a line; several files with commas", flag="--ref")
    metrics: list[str] = option(["bleu"], help="bleu, chrf, ter, exact; several with commas", flag="--metrics")
    tokenize: str = option("13a", help="sacreBLEU tokenizer: 13a, none, zh, char, intl, ...", flag="--tokenize")
    remove_bpe: PieceMarks | None = option(
        None,
        help="join pieces of hypotheses and references first: none, subword_nmt (the flag alone) or sentencepiece; null: "
        "none, with a warning where text looks cut",
        flag="--remove-bpe",
        implied=PieceMarks.subword_nmt,
    )
    lowercase: bool = option(False, help="score lower-cased", flag="--lowercase")
    format: ScoreFormat = option(ScoreFormat.text, help="text or json", flag="--format")
    on_invalid_utf8: InvalidText = option(
        InvalidText.error,
        help="bytes that are not UTF-8: error, replace or skip (in all files)",
        flag="--on-invalid-utf8",
    )
    max_line_bytes: int = option(MAX_LINE_BYTES, help="longest line read, in bytes", flag="--max-line-bytes")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", max_line_bytes=self.max_line_bytes)

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag that is to be given where standard input cannot be read; None if it is not read anyway."""
        return "--sys" if self.sys in (None, "-") else None
