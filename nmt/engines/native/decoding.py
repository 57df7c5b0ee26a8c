"""Sentences that the C code translates together, step by step.

Shapes: B sentences, K beam, N = B*K hypotheses of those still there, V pieces, S positions of the longest source.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from nmt.engines.native.matrices import Floats, PartsOfOutput
from nmt.engines.native.model import NativeModel
from nmt.native.library import address, built

Ints = npt.NDArray[np.int64]


class NativeDecoding:
    """The hypotheses of a batch of sentences. Memory of C: it is given back when nobody holds this any more."""

    def __init__(
        self,
        model: NativeModel,
        sources: Sequence[npt.NDArray[np.integer]],
        beam: int,
        lists: Sequence[npt.NDArray[np.integer]] | None = None,
    ) -> None:
        """``sources``: ids that end in eos. ``lists``: of each sentence the pieces that it may need."""
        self._handle: int | None = None
        self._found = built()
        lengths = np.array([len(source) for source in sources])
        offsets = np.concatenate([[0], lengths.cumsum()])
        ids = np.concatenate([np.asarray(source, dtype=np.int64) for source in sources])
        positions = np.concatenate([np.arange(length) for length in lengths])
        self._longest = int(lengths.max())
        model.reach(self._longest)
        self._model = model
        self._own = None if lists is None else PartsOfOutput(model.output, lists)
        self.pieces = model.output.matrix.outputs if self._own is None else self._own.longest
        own = None if self._own is None else ctypes.addressof(self._own.matrices)
        self._beam, self._steps, self.sentences = beam, 0, len(sources)
        self._handle = self._found.begin_decoding(
            model.address, len(sources), beam, address(ids), address(positions), address(offsets), own, self.pieces
        )
        if not self._handle:
            raise MemoryError(f"no memory for {len(sources)} sentences")

    def step(self, tokens: Ints, attention: bool = False) -> Floats | None:
        """The last token [N] of each hypothesis; the attention [N, S] of the next one, if it is asked for."""
        self._steps += 1
        self._model.reach(self._steps)
        weights = np.zeros((len(tokens), self._longest), dtype=np.float32) if attention else None
        if not self._found.decoding_step(self._handle, address(tokens), address(weights), self._longest):
            raise MemoryError(f"no memory for {self._steps} steps")
        return weights

    def best(self, totals: Floats, count: int, banned: bytes) -> tuple[Floats, Ints, Ints, Floats]:
        """Totals, parents, tokens and log-probabilities of the tokens [B, count], best first; ``totals`` [B, K] are those
        of the hypotheses. ``banned``: a flag for each of the first ids."""
        best = np.empty((len(totals), count), dtype=np.float32)
        logarithms, parents = np.empty_like(best), np.empty((len(totals), count), dtype=np.int64)
        tokens = np.empty_like(parents)
        places = address(best), address(parents), address(tokens), address(logarithms)
        self._found.decoding_best(self._handle, address(totals), count, banned, len(banned), *places)
        return best, parents, tokens, logarithms

    def follow(self, parents: Ints, staying: Ints) -> None:
        """Of the sentences ``staying``, slot k goes on from ``parents`` [B, K]."""
        self._found.decoding_follow(self._handle, address(parents), address(staying), len(staying))
        self.sentences = len(staying)

    @property
    def scores(self) -> Floats:
        """[N, V] of the last step, until the next one."""
        return self._view(self._found.decoding_scores(self._handle), (self.sentences * self._beam, self.pieces))

    @property
    def normaliser(self) -> Floats:
        """[N]"""
        return self._view(self._found.decoding_normaliser(self._handle), (self.sentences * self._beam,))

    def _view(self, begin: int, shape: tuple[int, ...]) -> Floats:
        return np.ctypeslib.as_array(ctypes.cast(begin, ctypes.POINTER(ctypes.c_float)), shape)

    def __del__(self) -> None:
        if self._handle:
            self._found.end_decoding(self._handle)
            self._handle = None
