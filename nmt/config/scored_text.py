"""The options of commands that compare translations with references: which files, and how they are read and cut."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import refuse, require_positive
from nmt.config.choices import InvalidText, PieceMarks
from nmt.config.option import flag, user_dir_option
from nmt.config.roles import CommandConfig
from nmt.config.sections import MAX_LINE_BYTES


@dataclass
class ScoredTextConfig(CommandConfig):
    """Translations of systems, and their references."""

    sys: list[str] = flag(
        [], help="hypotheses, one a line, of one system or of several; default, and -: standard input"
    )
    ref: list[str] = flag([], help="references, one a line; several files with commas")
    metrics: list[str] = flag(
        ["bleu"],
        help="bleu, chrf, chrf++, ter, rouge_l, exact, paper_bleu, brackets, aer, comet, metricx; several with commas",
    )
    src: str | None = flag(None, help="sources, one a line")
    tokenize: str = flag("13a", help="sacreBLEU tokenizer: 13a, none, zh, char, intl, ...")
    language: str = flag("de", help="of hypotheses and references, for paper_bleu: whose Moses rules cut their words")
    remove_bpe: PieceMarks | None = flag(
        None,
        help="join pieces of hypotheses and references first: none, subword_nmt (the flag alone) or sentencepiece; null: "
        "none, with a warning where text looks cut",
        implied=PieceMarks.subword_nmt,
    )
    lowercase: bool = flag(False, help="score lower-cased")
    on_invalid_utf8: InvalidText = flag(
        InvalidText.error, help="bytes that are not UTF-8: error, replace or skip (in all files)"
    )
    max_line_bytes: int = flag(MAX_LINE_BYTES, help="longest line read, in bytes")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", max_line_bytes=self.max_line_bytes)
        twice = next((name for name in self.sys if self.sys.count(name) > 1), "")
        refuse((twice, f"--sys names {twice} twice; leave one out"))

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag that is to be given where standard input cannot be read; None if it is not read anyway."""
        return "--sys" if not self.sys or "-" in self.sys else None
