"""The options of nmt-compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nmt.config.checks import refuse, require_positive
from nmt.config.choices import PairedTest
from nmt.config.common_options import OverwriteOption
from nmt.config.option import flag
from nmt.config.scored_text import ScoredTextConfig, paired_option
from nmt.errors import quantity


@dataclass
class CompareConfig(OverwriteOption, ScoredTextConfig):
    """nmt-compare: show on a page where the translations of several systems differ."""

    command: ClassVar[str] = "compare"
    sys: list[str] = flag(
        [], help="Files of hypotheses, one per line, of at least two systems, also as bare arguments; -: standard input"
    )
    names: list[str] = flag([], help="Displayed names of the systems, in order; empty: file names")
    metrics: list[str] = flag(
        ["bleu", "chrf"],
        help="Metrics as in nmt-score, comma-separated; the first one sorts the sentences",
    )
    src: str | None = flag(
        None,
        help="File of source sentences, one per line, shown and grouped by length; null: lengths of the references",
    )
    train: str | None = flag(
        None,
        help="Training text in the target language for counting word frequencies; null: counted in the references",
    )
    output: str = flag("", help="Output file: .html (page) or .json (same data)")
    paired: PairedTest = paired_option(PairedTest.bootstrap)
    count: int = flag(
        100, help="Number of sentences with gains, and of sentences with losses, shown per pair of systems"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", count=self.count)
        twice = next((name for name in self.names if self.names.count(name) > 1), "")
        refuse(
            (twice, f"--names contains {twice} twice; give each system a different name"),
            (
                self.names and self.sys and len(self.names) != len(self.sys),
                f"--names has {quantity(len(self.names), 'name')} for {quantity(len(self.sys), 'system')}; give one for "
                f"each",
            ),
        )

    @property
    def instead_of_standard_input(self) -> str | None:
        return "--sys" if "-" in self.sys else None
