"""What searches drive in torch: a ``Decodable`` as their engine, one with short lists, several as one.

Choosing the best continuations does not rank the whole vocabulary. A full top-k over K*V scores costs more than the
output layer of a small model. Instead one pass finds the maximum of each block of the vocabulary; the best n elements
can only stand in the n blocks with the highest maxima, so only these are ranked. Nothing makes all log-probabilities.

Legend: B sentences, K beam, N = B*K hypotheses, V vocabulary, C blocks of a vocabulary, W width of a block, S source
positions, V' pieces of the longest short list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.config.commands import ON_A_CPU, ON_A_GPU
from nmt.data.batch import pad
from nmt.data.vocabulary import PAD, Floats, Ids, Ints
from nmt.errors import UsageError
from nmt.interface import Decodable, DecoderState, Memory, StepOutput
from nmt.native.library import library
from nmt.search.decoding import Candidates, Engine, Scores, ScoresInC, summarise
from nmt.search.forced import ForcedSearch
from nmt.search.requests import Changes, Sentences

if TYPE_CHECKING:
    from nmt.data.vocabulary import Hypothesis
    from nmt.search import Search


_WIDTH = 64  # of a block; measured: 32 and 128 are slower
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
        self.longest_source = longest_source
        self.usual_tokens = ON_A_CPU if self.device == "cpu" else ON_A_GPU

    def forget(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.empty_cache()

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> ModelDecoding:
        source, lengths = (part.to(self.device) for part in pad(sources))
        model = self.decodable if lists is None else Shortlisted(self.decodable, lists, self.device)
        with torch.inference_mode():
            memory, state = model.start(model.encode(source, lengths), beam)
        return ModelDecoding(model, self.device, memory, state)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        limits = self.decodable.max_target_lengths(torch.from_numpy(source_lengths).to(self.device))
        return None if limits is None else limits.cpu().numpy()


@dataclass
class ModelDecoding:
    """A batch that a model decodes."""

    model: Decodable
    device: str
    memory: Memory
    state: DecoderState
    leave_freely = False  # memory and state are moved

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        with torch.inference_mode():
            output = self.model.step(self._there(tokens), self.memory, self.state, attention)
            self.state = output.state
            return scores_of(output)

    def follow(self, parents: Ints, staying: Ints) -> None:
        sentences, beam = parents.shape
        rows = (np.arange(0, parents.size, beam)[:, None] + parents)[staying].ravel()
        with torch.inference_mode():
            if len(staying) < sentences:
                self.memory = self.memory.rows(self._there(staying))
            if len(staying) < sentences or beam > 1:
                self.state = self.state.rows(self._there(rows))

    def _there(self, numbers: Ints) -> Tensor:
        return torch.from_numpy(numbers).to(self.device)


def scores_of(output: StepOutput) -> Scores:
    """The scores of one step; in C where they are at hand for it."""
    scores = output.scores.float().contiguous()
    attention: Floats | None = None if output.attention is None else _here(output.attention.float())
    if scores.device.type != "cpu" or library() is None:
        return ModelScores(scores, output.normalised, attention)
    maxima, normaliser = summarise(scores.numpy(), normalise=not output.normalised)
    nothing = np.zeros(len(scores), dtype=np.float32)
    return ScoresInC(scores.numpy(), nothing if normaliser is None else normaliser, attention, maxima)


class ModelScores:
    """``Scores`` in torch."""

    def __init__(self, scores: Tensor, normalised: bool, attention: Floats | None) -> None:
        self._own = scores  # [N, V]
        self.normaliser = scores.new_zeros(len(scores)) if normalised else _log_sums(scores)  # [N]
        self.attention = attention
        self._look_at(scores)

    def change(self, changes: Changes) -> None:
        with torch.inference_mode():
            scores = self._own.clone()
            changes.apply(scores, self.normaliser)
            self._look_at(scores)

    def log_probability(self, tokens: Ints, rows: Ints) -> Floats:
        tokens_there, rows_there = (torch.from_numpy(part).to(self._own.device) for part in (tokens, rows))
        with torch.inference_mode():
            return _here(self._own[rows_there, tokens_there] - self.normaliser[rows_there])

    def ranked(self, first: int, end: int) -> Floats:
        with torch.inference_mode():
            return _here(self._scores[first:end] - self.normaliser[first:end, None])

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        with torch.inference_mode():
            return self._best(torch.from_numpy(totals).to(self._scores.device), count, banned)

    def _best(self, totals: Tensor, count: int, banned: Sequence[int]) -> Candidates:
        base = totals - self.normaliser.view_as(totals)  # [B, K]
        (batch, beam), vocabulary, blocks = base.shape, self._scores.size(1), self._maxima.size(1)
        maxima = (self._maxima.view(batch, beam, blocks) + base[:, :, None]).flatten(1)  # [B, K * C]
        order = torch.arange(maxima.size(1), device=base.device)
        # A banned token may raise the maximum of the first block of each row: hence `beam` blocks more.
        found = _keys(maxima, order).topk(min(count + beam, maxima.size(1))).indices  # [B, n]
        row, begin = found // blocks, found % blocks * _WIDTH
        tokens = begin[:, :, None] + torch.arange(_WIDTH, device=base.device)  # [B, n, W]
        index = row[:, :, None] * vocabulary + tokens.clamp(max=vocabulary - 1)  # in the sentence's K * V
        values = (
            self._scores.view(batch, -1).gather(1, index.flatten(1)).view_as(index) + base.gather(1, row)[:, :, None]
        )
        absent = tokens >= vocabulary
        for token in banned:  # as an index a list would be copied to a GPU, which is waited for
            absent |= tokens == token
        values, index = values.masked_fill_(absent, -_INFINITY).flatten(1), index.flatten(1)
        if values.size(1) < count:
            values = F.pad(values, (0, count - values.size(1)), value=-_INFINITY)
            index = F.pad(index, (0, count - index.size(1)))
        best = _keys(values, index).topk(count).indices
        chosen = index.gather(1, best)
        rows = torch.arange(0, totals.numel(), beam, device=totals.device)[:, None] + chosen // vocabulary
        logarithms = self._own[rows, chosen % vocabulary] - self.normaliser[rows]
        places = _here(chosen)
        return Candidates(_here(values.gather(1, best)), places // vocabulary, places % vocabulary, _here(logarithms))

    def _look_at(self, scores: Tensor) -> None:
        """Find the highest score of each block."""
        self._scores = scores
        covered = scores.size(1) // _WIDTH * _WIDTH
        self._maxima = scores[:, :covered].view(len(scores), covered // _WIDTH, _WIDTH).amax(-1)  # [N, C]
        if covered < scores.size(1):
            self._maxima = torch.cat([self._maxima, scores[:, covered:].amax(1, keepdim=True)], 1)


def _log_sums(scores: Tensor) -> Tensor:
    """[N], a few rows at a time: on a CPU fresh memory for N * V numbers costs more than the arithmetic."""
    at_once = _CACHED_NUMBERS // scores.size(1) if scores.device.type == "cpu" else len(scores)
    return torch.cat([part.logsumexp(1) for part in torch.split(scores, max(1, at_once))])


def _keys(values: Tensor, index: Tensor) -> Tensor:
    """Distinct integers in the order (higher value, then lower index): top-k alone leaves ties to chance."""
    bits = values.view(torch.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the bits of a negative float grow with its size
    return (ordered.to(torch.int64) << 32) - index


def _here(tensor: Tensor) -> npt.NDArray[Any]:
    return tensor.cpu().numpy()


@dataclass
class ShortMemory(Memory):
    """A memory, and the list of each sentence."""

    memory: Memory
    vocabulary: Tensor  # [B, V'] ids of the model


class Shortlisted:
    """A model for one batch. Its ids count the pieces of a sentence's own list, in which the special ones come first, so
    they keep their ids, and searches see a small vocabulary."""

    def __init__(self, model: Decodable, lists: Sequence[Ids], device: str | torch.device) -> None:
        """``lists``: sorted."""
        self._model = model
        self._vocabulary = pad(lists, PAD)[0].to(device)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        return self._model.encode(source, source_lengths)

    def start(
        self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None
    ) -> tuple[ShortMemory, DecoderState]:
        assert vocabulary is None, "there is one already"
        started, state = self._model.start(memory, beam_size, self._vocabulary)
        return ShortMemory(started, self._vocabulary), state

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ShortMemory)
        own = memory.vocabulary.gather(1, tokens.view(memory.vocabulary.size(0), -1)).flatten()
        return self._model.step(own, memory.memory, state, attention)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return self._model.max_target_lengths(source_lengths)


def find_in_torch(search: Search, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
    """``EngineSearch.find`` of a search that takes its steps in torch. One that scores given translations has no lists."""
    model = engine.scored if isinstance(search, ForcedSearch) else engine.decodable
    if batch.lists is not None:
        model = Shortlisted(model, batch.lists, engine.device)
    source, lengths = (part.to(engine.device) for part in pad(batch.sources))
    return search(model, source, lengths, attention=batch.attention, requests=batch.requests)


@dataclass
class EnsembleMemory(Memory):
    """The memories of the members; each keeps its own way of choosing rows."""

    members: tuple[Memory, ...]


@dataclass
class EnsembleState(DecoderState):
    """The states of the members."""

    members: tuple[DecoderState, ...]


class Ensemble:
    """A ``Decodable`` of one or more models that share both vocabularies; their architectures may differ.

    Its scores are log-probabilities (``normalised``); its attention is the mean of what members have of it,
    weighted as their probabilities are.
    """

    def __init__(self, models: Sequence[Decodable], weights: Sequence[float] = ()) -> None:
        """``weights``: as many positive numbers, of which only the ratios matter; none: all alike."""
        assert models, "an ensemble needs a model"
        self.models = tuple(models)
        weights = weights or [1.0] * len(models)
        shares = [weight / sum(weights) for weight in weights] if 0.0 < sum(weights) < math.inf else []
        if len(weights) != len(models) or not shares or min(weights) <= 0.0 or min(shares) == 0.0:
            raise UsageError(
                f"--ensemble-weights {' '.join(f'{weight:g}' for weight in weights)}: give a positive number for each of "
                f"the {len(models)} models, in their order"
            )
        self._shares = shares

    def encode(self, source: Tensor, source_lengths: Tensor) -> EnsembleMemory:
        return EnsembleMemory(tuple(model.encode(source, source_lengths) for model in self.models))

    def start(
        self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None
    ) -> tuple[EnsembleMemory, EnsembleState]:
        assert isinstance(memory, EnsembleMemory)
        started = [model.start(part, beam_size, vocabulary) for model, part in zip(self.models, memory.members)]
        return EnsembleMemory(tuple(part for part, _ in started)), EnsembleState(tuple(state for _, state in started))

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, EnsembleMemory) and isinstance(state, EnsembleState)
        outputs = [
            model.step(tokens, part, member, attention)
            for model, part, member in zip(self.models, memory.members, state.members)
        ]
        logs = [output.log_probabilities() + math.log(share) for output, share in zip(outputs, self._shares)]
        attended = [(share, one.attention) for share, one in zip(self._shares, outputs) if one.attention is not None]
        total = sum(share for share, _ in attended)
        return StepOutput(
            scores=torch.stack(logs).logsumexp(0),
            normalised=True,
            state=EnsembleState(tuple(output.state for output in outputs)),
            attention=torch.stack([one * (share / total) for share, one in attended]).sum(0) if attended else None,
        )

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        limits = [model.max_target_lengths(source_lengths) for model in self.models]
        known = [limit for limit in limits if limit is not None]
        return torch.stack(known).amin(0) if known else None


def together_as_one(members: Sequence[Engine], weights: Sequence[float]) -> Engine:
    """Several engines as one."""
    limits = [member.longest_source for member in members if member.longest_source is not None]
    return ModelEngine(
        Ensemble([member.decodable for member in members], weights),
        members[0].device,
        scored=Ensemble([member.scored for member in members], weights),
        longest_source=min(limits, default=None),
    )
