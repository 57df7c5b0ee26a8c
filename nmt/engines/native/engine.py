"""A Transformer as it is described (nmt.models.transformer.weights), in C on a CPU, and what it translates together.

Shapes: B sentences, b of them still there, K beam, N = b*K hypotheses, V pieces, S positions of the longest source.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from nmt.config.choices import NumberFormat
from nmt.config.commands import IN_C
from nmt.data.vocabulary import Floats, Ids, Ints
from nmt.engines.native.weights import NativeModel, PartsOfOutput
from nmt.models.transformer.weights import TransformerWeights
from nmt.native.library import address, built
from nmt.search.decoding import Candidates, ScoresInC, flags_of

if TYPE_CHECKING:
    from nmt.interface import Decodable


class NativeEngine:
    """A model in one number format. The processes of a machine share it if they are forked after it is made."""

    device = "cpu"
    usual_tokens = IN_C

    def __init__(self, weights: TransformerWeights, number_format: NumberFormat) -> None:
        self._model = NativeModel(weights, number_format)
        self.longest_source = self._model.longest_source

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> NativeDecoding:
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


class NativeDecoding:
    """The hypotheses of a batch of sentences. Memory of C: it is given back when nobody holds this any more."""

    leave_freely = True  # nothing is moved

    def __init__(self, model: NativeModel, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None) -> None:
        self._handle: int | None = None
        self._found, self._model = built(), model
        lengths = np.array([len(source) for source in sources])
        offsets = np.concatenate([[0], lengths.cumsum()])
        ids = np.concatenate([np.asarray(source, dtype=np.int64) for source in sources])
        positions = np.concatenate([np.arange(length) for length in lengths])
        self._longest = int(lengths.max())
        model.reach(self._longest)
        self._lists = None if lists is None else _padded(lists)  # [B, V] of all sentences, then of those still there
        self._own = None if lists is None else PartsOfOutput(model.output, lists)
        self.pieces = model.output.matrix.outputs if self._own is None else self._own.longest
        own = None if self._own is None else ctypes.addressof(self._own.matrices)
        self.beam, self.sentences, self._steps = beam, len(sources), 0
        self._handle = self._found.begin_decoding(
            model.address, len(sources), beam, address(ids), address(positions), address(offsets), own, self.pieces
        )
        if not self._handle:
            raise MemoryError(f"no memory for {len(sources)} sentences")
        rows = len(sources) * beam
        self._scores = _numbers_at(self._found.decoding_scores(self._handle), (rows, self.pieces))
        self._normaliser = _numbers_at(self._found.decoding_normaliser(self._handle), (rows,))

    def step(self, tokens: Ints, attention: bool = False) -> NativeScores:
        if self._lists is not None:
            tokens = np.take_along_axis(self._lists, tokens.reshape(self.sentences, -1), axis=1).ravel()
        return NativeScores(self, self.step_by_ids(tokens, attention))

    def step_by_ids(self, tokens: Ints, attention: bool) -> Floats | None:
        """``tokens`` [N] by their ids, whatever lists there are; the attention [N, S], if it is asked for."""
        self._steps += 1
        self._model.reach(self._steps)
        weights = np.zeros((len(tokens), self._longest), dtype=np.float32) if attention else None
        if not self._found.decoding_step(self._handle, address(tokens), address(weights), self._longest):
            raise MemoryError(f"no memory for {self._steps} steps")
        return weights

    def follow(self, parents: Ints, staying: Ints) -> None:
        parents = np.ascontiguousarray(parents)  # under this name: an address keeps nothing alive
        self._found.decoding_follow(self._handle, address(parents), address(staying), len(staying))
        if self._lists is not None and len(staying) < self.sentences:
            self._lists = self._lists[staying]
        self.sentences = len(staying)

    def best(self, totals: Floats, count: int, banned: bytes) -> Candidates:
        """See ranking.c. ``banned``: a flag for each of the first ids."""
        floats = np.empty((2, len(totals), count), dtype=np.float32)
        ints = np.empty((2, len(totals), count), dtype=np.int64)
        found = Candidates(floats[0], ints[0], ints[1], floats[1])
        places = address(found.totals), address(found.parents), address(found.tokens), address(found.log_probabilities)
        self._found.decoding_best(self._handle, address(totals), count, banned, len(banned), *places)
        return found

    @property
    def scores(self) -> Floats:
        """[N, V] of the last step, until the next one."""
        return self._scores[: self.sentences * self.beam]

    @property
    def normaliser(self) -> Floats:
        """[N] the logarithm of the sum of their exponentials."""
        return self._normaliser[: self.sentences * self.beam]

    def __del__(self) -> None:
        if self._handle:
            self._found.end_decoding(self._handle)
            self._handle = None


class NativeScores(ScoresInC):
    """The scores of one step, which lie where C has written them, as do their maxima."""

    def __init__(self, decoding: NativeDecoding, attention: Floats | None) -> None:
        super().__init__(decoding.scores, decoding.normaliser, attention, None)
        self._decoding = decoding

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        if self._maxima is not None:
            return super().best(totals, count, banned)
        return self._decoding.best(np.ascontiguousarray(totals), count, flags_of(banned))


def _numbers_at(begin: int, shape: tuple[int, ...]) -> Floats:
    return np.ctypeslib.as_array(ctypes.cast(begin, ctypes.POINTER(ctypes.c_float)), shape)


def _padded(lists: Sequence[Ids]) -> Ints:
    longest = max(map(len, lists))
    whole = np.zeros((len(lists), longest), dtype=np.int64)
    for row, pieces in zip(whole, lists):
        row[: len(pieces)] = pieces
    return whole
