"""How sentence pairs form batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nmt.config.checks import refuse, require_positive, require_share
from nmt.config.option import ShortRepr, flag
from nmt.errors import UsageError

AUTO = "auto"  # the value of numeric options that the program chooses


@dataclass
class BatchingConfig(ShortRepr):
    """How sentence pairs form batches."""

    max_tokens: int | str | None = flag(
        4096,
        help="Maximum padded micro-batch size, tokens per side; auto: fills memory; null: no limit",
    )
    count_padding: bool = flag(True, help="Count padding towards the micro-batch limits; otherwise only real tokens")
    max_source_tokens: int | None = flag(None, help="Maximum micro-batch size in source tokens; null: --max-tokens")
    max_target_tokens: int | None = flag(None, help="Maximum micro-batch size in target tokens; null: --max-tokens")
    max_padding: float | None = flag(
        None, help="Maximum fraction of padding, such as 0.05; a micro-batch with more is split; null: no splitting"
    )
    batch_size: int | None = flag(None, help="Maximum micro-batch size in sentence pairs; null: no limit")
    update_freq: int = flag(1, help="Micro-batches per process and update")
    tokens_per_update: int | None = flag(
        None,
        help="Approximate batch size in tokens per side over all processes; sets the number of "
        "micro-batches; null: set by --update-freq",
    )
    sort_window: int | None = flag(
        None, help="Number of sentence pairs sorted by length together; null: all (least padding)"
    )
    skip_long: bool = flag(False, help="Drop pairs that exceed the micro-batch limits; otherwise exit with an error")

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, str) and self.max_tokens != AUTO:
            raise UsageError(f"batching.max_tokens={self.max_tokens} is neither a number nor {AUTO} (--max-tokens)")
        require_positive("batching", max_tokens=None if self.max_tokens == AUTO else self.token_limit)
        require_positive("batching", batch_size=self.batch_size)
        require_positive("batching", max_source_tokens=self.max_source_tokens, max_target_tokens=self.max_target_tokens)
        require_positive("batching", update_freq=self.update_freq, sort_window=self.sort_window)
        require_positive("batching", tokens_per_update=self.tokens_per_update)
        require_share("batching", max_padding=self.max_padding or 0.0)
        budgets = (self.max_source_tokens, self.max_target_tokens)
        if self.max_tokens == AUTO and budgets != (None, None):
            raise UsageError(
                "batching.max_tokens=auto finds one number for both sides; omit --max-source-tokens and "
                "--max-target-tokens, or give --max-tokens a number"
            )
        if (self.max_tokens, *budgets, self.batch_size) == (None, None, None, None):
            raise UsageError("set batching.max_tokens (--max-tokens) or batching.batch_size (--batch-size)")
        self._check_update()

    def _check_update(self) -> None:
        budget = self.tokens_per_update
        refuse(
            (
                budget is not None and self.update_freq != 1,
                f"batching.tokens_per_update={budget} sets the number of micro-batches per update; omit --update-freq "
                f"{self.update_freq}, or set batching.tokens_per_update=null",
            ),
            (
                budget is not None
                and (self.max_tokens, self.max_source_tokens, self.max_target_tokens) == (None, None, None),
                f"batching.tokens_per_update={budget} needs a limit of micro-batches in tokens; set --max-tokens",
            ),
        )

    @property
    def token_limit(self) -> int | None:
        """``max_tokens`` as a number; ``auto`` must be resolved before."""
        assert not isinstance(self.max_tokens, str), "--max-tokens auto is decided before batches are made"
        return self.max_tokens

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Maximum numbers of source tokens and target tokens of a batch."""
        source, target = self.max_source_tokens, self.max_target_tokens
        return (self.token_limit if source is None else source), (self.token_limit if target is None else target)

    @property
    def largest(self) -> int | None:
        """The larger of both limits; None: no limit."""
        return max((limit for limit in self.limits if limit is not None), default=None)

    def accumulation(self, processes: int) -> int:
        """Return the batches of each process in an update; with ``tokens_per_update`` the nearest number."""
        if self.tokens_per_update is None:
            return self.update_freq
        assert self.largest is not None, "such batches are refused"
        return max(1, round(self.tokens_per_update / (processes * self.largest)))

    def exceeded(self, longest: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Return exceeded limits by option: the limit, and the value that the longest sentences need."""
        exceeded_limits: dict[str, tuple[int, int]] = {}
        for option, limit, length in zip(("max_source_tokens", "max_target_tokens"), self.limits, longest):
            name = option if getattr(self, option) is not None else "max_tokens"
            if limit is not None and length > limit:
                exceeded_limits[name] = (limit, max(length, exceeded_limits.get(name, (0, 0))[1]))
        return exceeded_limits
