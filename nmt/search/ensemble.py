"""Several models as one: the mean of their probabilities at each step, weighted or not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.interface import Decodable, DecoderState, Memory, StepOutput
from nmt.search.decoding import Engine
from nmt.search.in_torch import ModelEngine


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
        return StepOutput(
            scores=torch.stack(logs).logsumexp(0),
            normalised=True,
            state=EnsembleState(tuple(output.state for output in outputs)),
            attention=self._mean([output.attention for output in outputs]),
        )

    def _mean(self, attentions: Sequence[Tensor | None]) -> Tensor | None:
        there = [(share, one) for share, one in zip(self._shares, attentions) if one is not None]
        if not there:
            return None
        total = sum(share for share, _ in there)
        return torch.stack([one * (share / total) for share, one in there]).sum(0)

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
