"""The options of diverse beam search."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import refuse, require_not_negative, require_positive
from nmt.config.option import option
from nmt.search import searches
from nmt.search.beam_config import BeamConfig


@searches.declare("diverse_beam")
@dataclass
class DiverseBeamConfig(BeamConfig):
    """Diverse beam search: groups of hypotheses, each of which avoids what the groups before it chose."""

    groups: int = option(5, help="groups that --beam is divided into", flag="--diverse-beam-groups")
    strength: float = option(
        0.5,
        help="what a token costs for each choice of it by an earlier group at the same position",
        flag="--diverse-beam-strength",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("search", groups=self.groups)
        require_not_negative("search", strength=self.strength)
        multiple = -(-self.beam_size // self.groups) * self.groups
        refuse(
            (
                self.beam_size % self.groups,
                f"search.beam_size={self.beam_size} cannot be divided into search.groups={self.groups} equal groups; choose "
                f"a multiple (--beam {multiple})",
            ),
            (self.coverage_penalty, "search.coverage_penalty is not for diverse beams; leave out --coverage-penalty"),
        )
