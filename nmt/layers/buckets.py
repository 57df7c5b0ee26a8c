"""Buckets of distances between positions: Raffel et al. 2020, arXiv:1910.10683, section 2.1 (T5)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def bucket_of(distances: Ints, buckets: int, reach: int, *, ahead: bool) -> Ints:
    """Return the bucket of each distance from a query to a key.

    Half of the buckets hold one distance each. The others grow by a constant factor up to ``reach``, from which all
    distances share the last one. If keys may follow the query (``ahead``), each direction has half of all buckets.
    """
    count = buckets // 2 if ahead else buckets
    single, far = count // 2, np.abs(distances) if ahead else np.maximum(-distances, 0)
    ratio = np.log(np.maximum(far, 1).astype(np.float32) / single) / math.log(reach / single)  # float32, as T5
    shared = np.minimum(single + (ratio * (count - single)).astype(np.int64), count - 1)
    return np.where(far < single, far, shared) + (distances > 0) * (count if ahead else 0)
