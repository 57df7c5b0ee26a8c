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
    """nmt-compare: translations of several systems and references in, a page that shows where they differ out."""

    command: ClassVar[str] = "compare"
    sys: list[str] = flag(
        [], help="translations of two systems or more, one a line; a bare argument is one; -: standard input"
    )
    names: list[str] = flag([], help="what the page calls them, in their order; default: their files")
    metrics: list[str] = flag(
        ["bleu", "chrf"],
        help="those of nmt-score; several with commas; sentences are sorted by the first",
    )
    src: str | None = flag(None, help="sources, one a line: shown, and what lengths are counted in")
    train: str | None = flag(
        None,
        help="training text in the language of the references: how often a word stands there; null: in the references",
    )
    output: str = flag("", help="file to write: .html (the page) or .json (the same as data)")
    paired: PairedTest = paired_option(PairedTest.bootstrap)
    count: int = flag(100, help="sentences shown of each pair of systems: so many gains, and so many losses")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", count=self.count)
        twice = next((name for name in self.names if self.names.count(name) > 1), "")
        refuse(
            (twice, f"--names calls two systems {twice}; give each a name of its own"),
            (
                self.names and self.sys and len(self.names) != len(self.sys),
                f"--names has {quantity(len(self.names), 'name')} for {quantity(len(self.sys), 'system')}; give one for "
                f"each",
            ),
        )

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag to give where standard input cannot be read; None: it is not read anyway."""
        return "--sys" if "-" in self.sys else None
