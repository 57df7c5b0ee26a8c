"""How long a translation may become: a rule over each sentence's own length, never over its batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config.option import option
from nmt.config.sections import require_not_negative
from nmt.errors import UsageError
from nmt.interface import Decodable

_UNLIMITED = 2.0**31  # pieces: nobody waits for more


@dataclass
class LengthConfig:
    """The options of every search that say how long a translation may become."""

    max_len_a: float = option(
        1.0, help="longest translation in pieces: max_len_a * source length + max_len_b", flag="--max-len-a"
    )
    max_len_b: float = option(50, help="see max_len_a", flag="--max-len-b")
    min_len: int = option(1, help="shortest translation in pieces", flag="--min-len")

    def __post_init__(self) -> None:
        require_not_negative("search", max_len_a=self.max_len_a, max_len_b=self.max_len_b, min_len=self.min_len)
        if self.max_len_a == 0 and self.max_len_b < max(self.min_len, 1):
            raise UsageError(
                f"search.max_len_b={self.max_len_b} with search.max_len_a=0 leaves no room for "
                f"search.min_len={self.min_len} pieces; raise --max-len-b"
            )


def length_limits(
    model: Decodable,
    source_lengths: Tensor,
    config: LengthConfig,
    own: Tensor | None = None,
    least: Tensor | None = None,
) -> Tensor:
    """[B] the most tokens, eos included, of each translation: a * source length + b pieces, then eos.

    ``source_lengths`` [B] count the eos; the rule does not. Where ``own`` [B] is not 0, it stands in place of the rule. No
    limit is below ``least`` [B], and the model's own limit is respected in any case.
    """
    wanted = (source_lengths - 1).to(torch.float64) * config.max_len_a + config.max_len_b
    limits = torch.floor(wanted).clamp(0, _UNLIMITED).to(torch.int64) + 1
    if own is not None:
        limits = torch.where(own > 0, own, limits)
    if least is not None:
        limits = torch.maximum(limits, least)
    of_model = model.max_target_lengths(source_lengths)
    return limits if of_model is None else torch.minimum(limits, of_model.to(limits))
