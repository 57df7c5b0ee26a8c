"""Facts about a component's options that the program reads, by role, with their defaults.

The dataclass of a component extends the class of its role and states only what differs. One that does not extend it is
given the missing attributes when it is registered (``nmt.registry``), so everybody may read them without asking first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from nmt.short_repr import ShortRepr


class CriterionConfig(ShortRepr):
    """The options of a training objective."""

    needs_alignments: ClassVar[bool] = False  # of the words of the training split
    uses_weights: ClassVar[bool] = False  # multiplies losses and denominator by ``Batch.weights``
    teacher: str | None = None  # run folder or checkpoint to learn from; None: needs no teacher, "": not named yet


class OptimizerConfig(ShortRepr):
    """The options of an update rule. ``lr`` is None unless the user sets it; see ``base_rate``."""

    default_rate: ClassVar[float] = 1.0
    schedule_free: ClassVar[bool] = False  # averages the weights itself; replaces a schedule and --ema-decay
    whole_matrices: ClassVar[bool] = False  # a step needs all elements of a matrix: not for --distributed-strategy fsdp
    lr: float | None = None
    weight_decay: float = 0.0

    @property
    def base_rate(self) -> float:
        """The learning rate that a schedule's factor is applied to."""
        return self.default_rate if self.lr is None else self.lr

    def rule_of(self, name: str, shape: Sequence[int], maps_hidden_vectors: bool) -> str:
        """Return the update rule of a parameter; "" if the optimizer has only one rule."""
        return ""

    def resumed(self, stored: Mapping[str, Any]) -> Any:
        """Return these options for a run that began with the options ``stored``, a mapping from names to values."""
        return self


class SchedulerConfig(ShortRepr):
    """The options of a learning rate schedule."""

    sets_rate: ClassVar[bool] = False  # computes the rate itself: the base rate is 1, and --lr is refused
    uses_validation: ClassVar[bool] = False  # reads `Progress.validation`: a run must then keep how it validates
    warmup_updates: int | None = 0  # None: chosen by the length of the run

    def warmup_of_run(self, horizon: Any) -> int:
        """Return the number of warmup updates. ``horizon``: properties of the run (``nmt.optim.Horizon``).

        Builders, messages and the watch for divergence all call this method. Override it if another rule holds.
        """
        default: int = horizon.warmup_updates
        return default if self.warmup_updates is None else self.warmup_updates


class SearchConfig(ShortRepr):
    """The options of a search."""

    beam_size: int | None = None  # hypotheses kept side by side; None: this search has no beam
    no_repeat_ngram: int = 0  # length in pieces of what a translation must not repeat; 0: everything may repeat

    @property
    def finds_at_most(self) -> int | None:
        """Most hypotheses of a sentence; None: as many as it is asked for."""
        return None

    def finds(self, hypotheses: int) -> bool:
        """Whether the search can find this many hypotheses of a sentence."""
        return self.finds_at_most is None or hypotheses <= self.finds_at_most


class CommandConfig(ShortRepr):
    """The options of a command."""

    command: ClassVar[str] = ""  # the name of its module in nmt_cli
    recipes: ClassVar[str | None] = None  # group of presets that set options of all sections
    data: Sequence[str] = ()  # corpus folders

    @property
    def instead_of_standard_input(self) -> str | None:
        """The flag to give where standard input cannot be read; None: it is not read anyway."""
        return None


# The types of fields that hold a component: while the program runs any class, since those of plug-ins need not extend ours.
if TYPE_CHECKING:
    AnyCriterion = CriterionConfig
    AnyOptimizer = OptimizerConfig
    AnyScheduler = SchedulerConfig
    AnySearch = SearchConfig
else:
    AnyCriterion = AnyOptimizer = AnyScheduler = AnySearch = Any
