"""The engine in C: a Transformer as it is described (nmt.models.transformer_weights), on a CPU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nmt.config.choices import NumberFormat
from nmt.data.hypothesis import Ints
from nmt.engines.native.decoding import NativeDecoding
from nmt.engines.native.model import NativeModel
from nmt.models.transformer_weights import TransformerWeights


class NativeEngine:
    """A model in one number format. The processes of a machine share it if they are forked after it is made."""

    def __init__(self, weights: TransformerWeights, number_format: NumberFormat) -> None:
        self._model = NativeModel(weights, number_format)
        self.longest_source = self._model.longest_source

    def begin(
        self,
        sources: Sequence[npt.NDArray[np.integer]],
        beam: int,
        lists: Sequence[npt.NDArray[np.integer]] | None = None,
    ) -> NativeDecoding:
        return NativeDecoding(self._model, sources, beam, lists)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        limit = self._model.longest_target
        return None if limit is None else np.full_like(source_lengths, limit)
