"""The options of every search that say what a translation may contain."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.checks import require_not_negative, require_positive
from nmt.config.option import option
from nmt.search.limits_config import LengthConfig


@dataclass
class RuleConfig(LengthConfig):
    """The options of every search that say what a translation may contain."""

    no_repeat_ngram: int = option(
        0, help="no n-gram of this many pieces stands twice in a translation; 0: any may", flag="--no-repeat-ngram-size"
    )
    repetition_penalty: float = option(
        1.0,
        help="log-probabilities of pieces that the translation has already are multiplied by it; above 1: fewer",
        flag="--repetition-penalty",
    )
    forbid_unknown: bool = option(False, help="no translation contains the unknown piece", flag="--forbid-unk")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_not_negative("search", no_repeat_ngram=self.no_repeat_ngram)
        require_positive("search", repetition_penalty=self.repetition_penalty)
