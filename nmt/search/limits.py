"""How long a translation may become: a rule over each sentence's own length, never over its batch."""

from __future__ import annotations

import numpy as np

from nmt.data.hypothesis import Ints
from nmt.search.limits_config import LengthConfig

_UNLIMITED = 2.0**31  # pieces: nobody waits for more


def length_limits(
    source_lengths: Ints,
    config: LengthConfig,
    of_model: Ints | None,
    own: Ints | None = None,
    least: Ints | None = None,
) -> Ints:
    """[B] the most tokens, eos included, of each translation: a * source length + b pieces, then eos.

    ``source_lengths`` [B] count the eos; the rule does not. Where ``own`` [B] is not 0, it stands in place of the rule. No
    limit is below ``least`` [B], and the model's own limit is respected in any case.
    """
    wanted = (source_lengths - 1).astype(np.float64) * config.max_len_a + config.max_len_b
    limits = np.floor(wanted).clip(0, _UNLIMITED).astype(np.int64) + 1
    if own is not None:
        limits = np.where(own > 0, own, limits)
    if least is not None:
        limits = np.maximum(limits, least)
    return limits if of_model is None else np.minimum(limits, of_model)
