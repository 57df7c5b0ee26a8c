"""The options of commands that compare translations with references: which files, and how they are read and cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nmt.config.checks import refuse, require_positive
from nmt.config.choices import InvalidText, PairedTest, PieceMarks
from nmt.config.common_options import PluginOption, ReadingOptions, invalid_text_option
from nmt.config.option import flag
from nmt.config.roles import CommandConfig


def paired_option(default: PairedTest) -> Any:
    """Return the option ``paired``, whose default differs between commands."""
    text = "p-values of the differences to the first system: none, bootstrap or randomization"
    return flag(default, help=text, kw_only=True)


@dataclass
class ScoredTextConfig(PluginOption, ReadingOptions, CommandConfig):
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
    paired: PairedTest = paired_option(PairedTest.none)
    resamples: int | None = flag(
        None,
        help="resampled texts, or trials of --paired randomization; null: 1,000 texts, 10,000 trials",
    )
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "in all files")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", resamples=self.resamples)
        twice = next((name for name in self.sys if self.sys.count(name) > 1), "")
        refuse((twice, f"--sys names {twice} twice; leave one out"))

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag to give where standard input cannot be read; None: it is not read anyway."""
        return "--sys" if not self.sys or "-" in self.sys else None
