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
    text = "Significance test against the first system (p-values): none, bootstrap or randomization"
    return flag(default, help=text, kw_only=True)


@dataclass
class ScoredTextConfig(PluginOption, ReadingOptions, CommandConfig):
    """Translations of systems, and their references."""

    sys: list[str] = flag(
        [], help="Files of hypotheses, one per line, of one or several systems; empty or -: standard input"
    )
    ref: list[str] = flag([], help="Files of references, one per line, comma-separated")
    metrics: list[str] = flag(
        ["bleu"],
        help="Metrics, comma-separated: bleu, chrf, chrf++, ter, rouge_l, exact, paper_bleu, brackets, "
        "aer, comet, metricx",
    )
    src: str | None = flag(None, help="File of source sentences, one per line; null: none")
    tokenize: str = flag("13a", help="sacreBLEU tokenizer: 13a, none, zh, char, intl, ...")
    language: str = flag("de", help="Language of hypotheses and references, for the Moses rules of paper_bleu")
    remove_bpe: PieceMarks | None = flag(
        None,
        help="Subword marks to remove before scoring: none, subword_nmt (flag without value) or "
        "sentencepiece; null: none, but warn about segmented text",
        implied=PieceMarks.subword_nmt,
    )
    lowercase: bool = flag(False, help="Score lowercased text")
    paired: PairedTest = paired_option(PairedTest.none)
    resamples: int | None = flag(
        None,
        help="Number of bootstrap samples, or trials of --paired randomization; null: 1,000 samples, 10,000 trials",
    )
    on_invalid_utf8: InvalidText = invalid_text_option(InvalidText.error, "in all files")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", resamples=self.resamples)
        twice = next((name for name in self.sys if self.sys.count(name) > 1), "")
        refuse((twice, f"--sys names {twice} twice; omit one"))

    @property
    def instead_of_standard_input(self) -> str | None:
        return "--sys" if not self.sys or "-" in self.sys else None
