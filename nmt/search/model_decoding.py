"""A ``Decodable`` as the engine of a beam search: torch computes, wherever it may be.

Choosing the best continuations does not rank the whole vocabulary. A full top-k over K*V scores costs more than the
output layer of a small model. Instead one pass finds the maximum of each block of the vocabulary; the best n elements
can only stand in the n blocks with the highest maxima, so only these are ranked. The same maxima serve the log-sum-exp,
and no tensor of log-probabilities is ever made.

Legend: B sentences, K beam, N = B*K hypotheses, V vocabulary, C blocks of a vocabulary, W width of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmt.data.batch import pad
from nmt.data.hypothesis import Floats, Ids, Ints
from nmt.interface import Decodable, DecoderState, Memory, StepOutput
from nmt.native.library import library
from nmt.native.ranking import best_continuations, summarise
from nmt.search.candidates import Candidates
from nmt.search.rules import Changes
from nmt.search.shortlisted import Shortlisted
from nmt.search.tensor_books import changed, forbid

_WIDTH = 64  # of a block; measured: 32 and 128 are slower
_FEW = 1024  # entries of a vocabulary that are ranked as fast without blocks
_CACHED_NUMBERS = 2**18  # that a core's cache holds
_INFINITY = float("inf")


class ModelEngine:
    """A model, or an ensemble, on a device."""

    def __init__(
        self,
        model: Decodable,
        device: str | torch.device,
        *,
        scored: Decodable | None = None,
        longest_source: int | None = None,
    ) -> None:
        """``scored``: what given translations are scored by, if not by ``model``."""
        self.decodable = model
        self.scored = model if scored is None else scored
        self.device = str(device)
        self._there = torch.device(device)
        self.longest_source = longest_source

    def forget(self) -> None:
        if self._there.type == "cuda":
            torch.cuda.empty_cache()

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> ModelDecoding:
        source, lengths = (part.to(self._there) for part in pad(sources))
        model = self.decodable if lists is None else Shortlisted(self.decodable, lists, self._there)
        with torch.inference_mode():
            memory, state = model.start(model.encode(source, lengths), beam)
        return ModelDecoding(model, self._there, memory, state)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        limits = self.decodable.max_target_lengths(torch.from_numpy(source_lengths).to(self._there))
        return None if limits is None else limits.cpu().numpy()


def unpadded(source: Tensor, source_lengths: Tensor) -> list[Ids]:
    """[B, S] and [B] -> the ids of each sentence."""
    return [row[:length] for row, length in zip(source.cpu().numpy(), source_lengths.tolist())]


class ModelDecoding:
    """A batch that a model decodes."""

    leave_freely = False  # memory and state are moved

    def __init__(self, model: Decodable, device: torch.device, memory: Memory, state: DecoderState) -> None:
        self._model = model
        self._device = device
        self._memory, self._state = memory, state

    def step(self, tokens: Ints, attention: bool = False) -> ModelScores:
        with torch.inference_mode():
            output = self._model.step(self._there(tokens), self._memory, self._state, attention)
            self._state = output.state
            return ModelScores(output)

    def follow(self, parents: Ints, staying: Ints) -> None:
        sentences, beam = parents.shape
        rows = (np.arange(0, parents.size, beam)[:, None] + parents)[staying].ravel()
        with torch.inference_mode():
            if len(staying) < sentences:
                self._memory = self._memory.rows(self._there(staying))
            if len(staying) < sentences or beam > 1:
                self._state = self._state.rows(self._there(rows))

    def _there(self, numbers: Ints) -> Tensor:
        return torch.from_numpy(numbers).to(self._device)


class ModelScores:
    """The scores of one step, and the questions that a search asks about them."""

    def __init__(self, output: StepOutput) -> None:
        self._own = output.scores.float().contiguous()  # [N, V]
        self._in_c = self._own.device.type == "cpu" and library() is not None
        normaliser = self._look_at(self._own, normalise=not output.normalised)
        self.normaliser = self._own.new_zeros(len(self._own)) if normaliser is None else normaliser  # [N]
        self.attention: Floats | None = None if output.attention is None else _here(output.attention.float())

    def change(self, changes: Changes) -> None:
        with torch.inference_mode():
            self._look_at(changed(self._own, self.normaliser, changes), normalise=False)

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        tokens_there, rows_there = (torch.from_numpy(part).to(self._own.device) for part in (tokens, rows))
        with torch.inference_mode():
            return _here(self._own[rows_there, tokens_there] - self.normaliser[rows_there])

    def ranked(self, first: int, end: int) -> Floats:
        with torch.inference_mode():
            return _here(self.scores[first:end] - self.normaliser[first:end, None])

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        with torch.inference_mode():
            if self._in_c:
                return self._best_in_c(totals, count, banned)
            return self._best(torch.from_numpy(totals).to(self.scores.device), count, list(banned))

    def _best_in_c(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        scores, normaliser, own = self.scores.numpy(), self.normaliser.numpy(), self._own.numpy()
        best, parents, tokens = best_continuations(scores, self._maxima.numpy(), totals, normaliser, count, banned)
        rows = np.arange(0, totals.size, totals.shape[1])[:, None] + parents
        return Candidates(best, parents, tokens, own[rows, tokens] - normaliser[rows])

    def _best(self, totals: Tensor, count: int, banned: list[int]) -> Candidates:
        base = totals - self.normaliser.view_as(totals)  # [B, K]
        values, index = self._rest_elements(base, banned)
        if self._blocks:
            in_blocks, index_in_blocks = self._block_elements(base, count, banned)
            values = torch.cat([in_blocks, values], 1)
            index = torch.cat([index_in_blocks, index], 1)
        if values.size(1) < count:
            values = torch.nn.functional.pad(values, (0, count - values.size(1)), value=-_INFINITY)
            index = torch.nn.functional.pad(index, (0, count - index.size(1)))
        best = sort_keys(values, index).topk(count).indices
        chosen, vocabulary = index.gather(1, best), self.scores.size(1)
        rows = torch.arange(0, totals.numel(), totals.size(1), device=totals.device)[:, None] + chosen // vocabulary
        logarithms = self._own[rows, chosen % vocabulary] - self.normaliser[rows]
        found, places = _here(values.gather(1, best)), _here(chosen)
        return Candidates(found, places // vocabulary, places % vocabulary, _here(logarithms))

    def _look_at(self, scores: Tensor, *, normalise: bool) -> Tensor | None:
        """Find the highest score of each block, and if asked the log-sum-exp [N]."""
        self.scores = scores
        if self._in_c:
            maxima, normaliser = summarise(scores.numpy(), normalise=normalise)
            self._maxima = torch.from_numpy(maxima)
            return None if normaliser is None else torch.from_numpy(normaliser)
        rows, vocabulary = scores.shape
        self._blocks = vocabulary // _WIDTH if vocabulary > _FEW else 0
        covered = self._blocks * _WIDTH
        self._rest = scores[:, covered:]  # [N, fewer than W] what fills no block
        self._maxima = scores[:, :covered].view(rows, self._blocks, _WIDTH).amax(-1)  # [N, C]
        return self._log_sum_exp() if normalise else None

    def _rest_elements(self, base: Tensor, banned: list[int]) -> tuple[Tensor, Tensor]:
        """Totals [B, K * rest] of all tokens that fill no block, and their positions in the sentence's K * V."""
        values = self._rest.view(*base.shape, self._rest.size(1)) + base[:, :, None]  # [B, K, rest]
        if not self._blocks:
            forbid(values, banned)
        vocabulary, beam = self.scores.size(1), base.size(1)
        tokens = torch.arange(self._blocks * _WIDTH, vocabulary, device=base.device)
        rows = torch.arange(0, beam * vocabulary, vocabulary, device=base.device)
        index = (rows[:, None] + tokens).flatten().expand(base.size(0), -1)
        return values.flatten(1), index

    def _block_elements(self, base: Tensor, count: int, banned: list[int]) -> tuple[Tensor, Tensor]:
        """Totals of all tokens in the blocks that can hold one of the ``count`` best, and their positions."""
        batch, beam = base.shape
        maxima = (self._maxima.view(*base.shape, -1) + base[:, :, None]).flatten(1)  # [B, K * C]
        order = torch.arange(maxima.size(1), device=base.device)
        # A banned token may raise the maximum of the first block of each row: hence `beam` blocks more.
        blocks = sort_keys(maxima, order).topk(min(count + beam, maxima.size(1))).indices  # [B, n]
        row, block = blocks // self._blocks, blocks % self._blocks
        start = row * self.scores.size(1) + block * _WIDTH
        offsets = torch.arange(_WIDTH, device=base.device)
        index = (start[:, :, None] + offsets).flatten(1)  # [B, n * W]
        values = self.scores.view(batch, -1).gather(1, index).view(batch, -1, _WIDTH)
        values += base.gather(1, row)[:, :, None]  # [B, n, W]
        for token in banned:
            values[:, :, token].masked_fill_(block == 0, -_INFINITY)
        return values.flatten(1), index

    def _log_sum_exp(self) -> Tensor:
        """[N], a few rows at a time: on a CPU fresh memory for N * V numbers costs more than the arithmetic."""
        if not self._blocks:
            return self.scores.logsumexp(1)
        highest = torch.cat([self._maxima, self._rest], 1).amax(1, keepdim=True)  # [N, 1]
        rows, vocabulary = self.scores.shape
        at_once = max(1, _CACHED_NUMBERS // vocabulary) if self.scores.device.type == "cpu" else max(1, rows)
        scratch = self.scores.new_empty(min(at_once, rows), vocabulary)
        sums = [
            torch.sub(part, top, out=scratch[: len(part)]).exp_().sum(1)
            for part, top in zip(torch.split(self.scores, at_once), torch.split(highest, at_once))
        ]
        return torch.cat(sums).log_() + highest.squeeze(1)


def sort_keys(values: Tensor, index: Tensor) -> Tensor:
    """Distinct integers in the order (higher value, then lower index): top-k alone leaves ties to chance."""
    bits = values.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the bits of a negative float grow with its size
    return (ordered.to(torch.int64) << 32) - index


def _here(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.cpu().numpy()
