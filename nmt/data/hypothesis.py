"""A translation in pieces, as a search returns it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nmt.data.ragged import Ids as Ids

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Hypothesis:
    """One translation; everything is on the CPU."""

    tokens: Ints  # [length] target ids, without bos, ending in eos
    score: float  # what the search ranks by: log-probability under the length penalty
    log_probability: float  # sum of token_scores, natural logarithm
    token_scores: Floats  # [length] log-probability of each token, eos included
    attention: Floats | None  # [length, S] over the real source positions (eos included), when asked for
    finished: bool = True  # False: the length limit ended it
