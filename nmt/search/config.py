"""The options of each search, and the enums in them. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from nmt.config.checks import refuse, require_at_most, require_not_negative, require_positive
from nmt.config.option import flag, option
from nmt.config.roles import SearchConfig
from nmt.errors import UsageError
from nmt.search import searches

if TYPE_CHECKING:
    from nmt.data.vocabulary import Floats


Length = TypeVar("Length", float, "Floats")
_LARGEST_LENPEN = 20.0  # larger values overflow the scores of long translations
MOST_PIECES = 10_000  # of a translation, as a limit or a minimum: each costs a search step
# Time and memory grow with these options, which a stored search may name.
WIDEST_BEAM, LARGEST_FACTOR = 1000, 100
_COLDEST = 1e-6  # below it quotients overflow single precision


class LengthPenalty(Enum):
    """Divisor of the log-probability of a hypothesis; the quotient is its score."""

    gnmt = "gnmt"  # ((5 + length) / 6) ^ alpha: Wu et al. 2016, equation 14; the Transformer paper's
    power = "power"  # length ^ alpha: fairseq's

    def __call__(self, length: Length, alpha: float) -> Length:
        """The divisor of a hypothesis of ``length`` tokens, eos included; alpha 0 divides by one."""
        divisor: Any = ((5 + length) / 6) ** alpha if self is LengthPenalty.gnmt else length**alpha
        return divisor  # type: ignore[no-any-return]


class StopRule(Enum):
    """When the search of a sentence ends."""

    first = "first"  # when patience * K hypotheses are finished, rounded and at least nbest (K: fairseq's rule)
    bound = "bound"  # when no unfinished hypothesis can still beat those that would be returned
    estimate = "estimate"  # when K are finished, and none would be beaten if the others ended here (transformers' rule)
    all = "all"  # when no unfinished hypothesis is left, at the latest at the length limit
    shrink = "shrink"  # as ``all``, but each finished hypothesis takes a slot of the beam (Marian's rule)


@dataclass
class CommonSearchConfig(SearchConfig):
    """Options of every search: limits on the length and the content of translations."""

    max_len_a: float = flag(
        1.0, help="Factor in the maximum translation length in tokens: max_len_a * source length + max_len_b"
    )
    max_len_b: float = flag(
        50, help="Constant in the maximum translation length, in tokens; 0: max_len_a * source length"
    )
    min_len: int = flag(1, help="Minimum translation length in tokens", scoring=False)
    no_repeat_ngram: int = option(
        0,
        help="Length in tokens of n-grams that must not repeat; 0: no restriction",
        flag="--no-repeat-ngram-size",
        http=True,
        scoring=False,
    )
    repetition_penalty: float = flag(
        1.0,
        help="Factor on log-probabilities of tokens already in the translation; above 1: fewer repetitions",
        scoring=False,
    )
    forbid_unknown: bool = option(
        False, help="Exclude the unknown token from translations", flag="--forbid-unk", scoring=False
    )

    def __post_init__(self) -> None:
        require_not_negative("search", max_len_a=self.max_len_a, max_len_b=self.max_len_b, min_len=self.min_len)
        require_at_most("search", LARGEST_FACTOR, max_len_a=self.max_len_a)
        require_at_most("search", MOST_PIECES, max_len_b=self.max_len_b, min_len=self.min_len)
        if self.max_len_a == 0 and self.max_len_b < max(self.min_len, 1):
            raise UsageError(
                f"search.max_len_b={self.max_len_b} with search.max_len_a=0 leaves no room for "
                f"search.min_len={self.min_len} tokens; raise --max-len-b"
            )
        require_not_negative("search", no_repeat_ngram=self.no_repeat_ngram)
        require_positive("search", repetition_penalty=self.repetition_penalty)


@searches.declare("greedy", "greedy")
@dataclass
class GreedyConfig(CommonSearchConfig):
    """Greedy search: one hypothesis, extended by its most probable token."""

    @property
    def finds_at_most(self) -> int:
        return 1


@searches.declare("beam", "beam")
@dataclass
class BeamConfig(CommonSearchConfig):
    """Beam search: the K best unfinished hypotheses are extended together."""

    beam_size: int = option(5, help="Beam width: number of hypotheses kept per sentence", flag="--beam", http=True)
    length_penalty: LengthPenalty = flag(
        LengthPenalty.gnmt,
        help="Length penalty, a divisor of log-probabilities: gnmt ((5+length)/6)^lenpen or power "
        "length^lenpen (fairseq)",
        http=True,
    )
    lenpen: float = flag(
        0.6, help="Exponent of the length penalty; 0: no penalty; higher: longer translations", http=True
    )
    coverage_penalty: float = flag(
        0.0,
        help="Weight of the coverage penalty: sum over source tokens of log(min(total attention, 1)), for "
        "finished hypotheses; needs attention",
        scoring=False,
    )
    stop: StopRule = flag(
        StopRule.first,
        help="Stopping rule: first (enough finished hypotheses), bound (no better one possible), estimate (no better one "
        "likely; Hugging Face), all (all at their end or the length limit), shrink (all, in a shrinking beam; Marian)",
    )
    patience: float = option(
        1.0,
        help="Finished hypotheses needed by --stop first, as a multiple of --beam, rounded; at least --nbest",
        flag="--beam-patience",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("search", beam_size=self.beam_size, patience=self.patience)
        require_at_most("search", WIDEST_BEAM, beam_size=self.beam_size, patience=self.patience)
        require_not_negative("search", lenpen=self.lenpen, coverage_penalty=self.coverage_penalty)
        if self.lenpen > _LARGEST_LENPEN:
            raise UsageError(
                f"search.lenpen={self.lenpen:g} is more than the maximum of {_LARGEST_LENPEN:g}; usual values are "
                "0.6 to 1 (--lenpen)"
            )

    @property
    def finds_at_most(self) -> int:
        return self.beam_size

    def require_slots(self, nbest: int) -> None:
        """Refuse an n-best list that is longer than the beam is wide."""
        if not self.finds(nbest):
            raise UsageError(
                f"nbest={nbest} is more than search.beam_size={self.beam_size}; lower --nbest or raise the beam width "
                f"(--beam {nbest})"
            )


@searches.declare("diverse_beam", "beam")
@dataclass
class DiverseBeamConfig(BeamConfig):
    """Diverse beam search: groups of hypotheses; each group avoids the tokens that earlier groups chose."""

    groups: int = option(5, help="Number of groups that --beam is divided into", flag="--diverse-beam-groups")
    strength: float = option(
        0.5,
        help="Penalty on a token for each earlier group that chose it at the same position",
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
                f"search.beam_size={self.beam_size} is not divisible by search.groups={self.groups}; choose a "
                f"multiple (--beam {multiple})",
            ),
            (
                self.coverage_penalty,
                "diverse beam search does not support search.coverage_penalty; omit --coverage-penalty",
            ),
        )


@searches.declare("sampling", "sampling")
@dataclass
class SamplingConfig(CommonSearchConfig):
    """Sampling: each of --nbest translations is drawn token by token."""

    temperature: float = flag(1.0, help="Softmax temperature, a divisor of the scores; below 1: sharper distribution")
    topk: int | None = option(
        None, help="Number of most probable tokens to sample from; null: all", flag="--sampling-topk"
    )
    topp: float | None = option(
        None,
        help="Probability mass of the most probable tokens to sample from; null: all tokens",
        flag="--sampling-topp",
    )
    minp: float = option(
        0.0,
        help="Minimum probability of a token to sample, relative to the most probable one; 0: all tokens",
        flag="--sampling-minp",
    )
    epsilon: float = option(
        0.0, help="Minimum probability of a token to sample; 0: all tokens", flag="--sampling-epsilon"
    )
    seed: int = option(1, help="Random seed of sampling", flag="--sampling-seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("search", temperature=self.temperature, topk=self.topk)
        if self.temperature < _COLDEST:
            raise UsageError(
                f"search.temperature={self.temperature} is too low for sampling; give at least {_COLDEST} "
                f"(--temperature), or use --search greedy"
            )
        if self.topp is not None and not 0.0 < self.topp <= 1.0:
            raise UsageError(f"search.topp={self.topp} must be greater than 0 and at most 1 (--sampling-topp)")
        for name, value in (("minp", self.minp), ("epsilon", self.epsilon)):
            if not 0.0 <= value <= 1.0:
                raise UsageError(f"search.{name}={value} must be from 0 to 1 (--sampling-{name})")
