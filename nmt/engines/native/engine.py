"""A Transformer as it is described (nmt.models.transformer.weights), in C on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from nmt.config.choices import NumberFormat
from nmt.data.hypothesis import Ints
from nmt.engines.native.decoding import NativeDecoding
from nmt.engines.native.model import NativeModel
from nmt.models.transformer.weights import TransformerWeights

if TYPE_CHECKING:
    from nmt.interface import Decodable


class NativeEngine:
    """A model in one number format. The processes of a machine share it if they are forked after it is made."""

    device = "cpu"

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

    def forget(self) -> None:
        """Nothing is kept."""

    @cached_property
    def decodable(self) -> Decodable:
        from nmt.engines.native.in_torch import NativeDecodable

        return NativeDecodable(self)

    @property
    def scored(self) -> Decodable:
        return self.decodable
