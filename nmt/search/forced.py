"""Score given translations.

Shapes: B sentences, T target positions, S source positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from nmt.data.batching.batch import pad
from nmt.data.vocabulary import BOS, EOS, Floats, Hypothesis, Ids
from nmt.search.config import LengthPenalty
from nmt.search.decoding import Engine
from nmt.search.requests import Sentences


@dataclass(frozen=True)
class ForcedSearch:
    """A ``Search`` that returns the ``target`` of each sentence's request, with its scores.

    A target that is longer than the model can write is truncated, and is not ``finished``.
    """

    length_penalty: LengthPenalty  # with ``lenpen``: that of the search whose scores these are compared with
    lenpen: float

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        assert batch.requests is not None, "there is nothing to score"
        limits = engine.longest_targets(batch.lengths)
        started = batch.started
        room = [None] * len(batch.sources) if limits is None else [limit - 1 - started for limit in limits.tolist()]
        targets = [
            np.array([*request.start, *request.target[:most], EOS]) for request, most in zip(batch.requests, room)
        ]
        scores, maps = None if batch.attention else engine.target_scores(batch.sources, targets), None
        if scores is None:
            scores, maps = score_targets(engine, batch.sources, targets, attention=batch.attention)
        hypotheses = []
        for row, (target, of_tokens, width) in enumerate(zip(targets, scores, batch.lengths.tolist())):
            length, own = len(target), slice(started, len(target))
            total = float(torch.from_numpy(of_tokens[own]).sum())
            score = total / self.length_penalty(float(length), self.lenpen)
            attention = None if maps is None else maps[row, own, :width]
            finished = length - started > len(batch.requests[row].target)
            hypotheses.append([Hypothesis(target[own], score, total, of_tokens[own], attention, finished)])
        return hypotheses


def score_targets(
    engine: Engine, sources: Sequence[Ids], targets: Sequence[Ids], *, attention: bool = False
) -> tuple[list[Floats], Floats | None]:
    """Return the natural-log probability of each token of ``targets`` (ids ending in eos), and the attention [B, T, S].

    Works step by step, as a search does, with any engine.
    """
    padded, lengths = pad(targets, EOS)  # [B, T]; what follows eos is ignored
    decoding, count = engine.begin(sources, 1), len(targets)
    tokens, same, everyone = np.full(count, BOS), np.zeros((count, 1), dtype=np.int64), np.arange(count)
    steps, maps = list[torch.Tensor](), list[Floats]()
    for column in padded.numpy().T:
        scores = decoding.step(tokens, attention)
        tokens = np.ascontiguousarray(column)
        with torch.inference_mode():
            logarithms = scores.log_probabilities()
            there = torch.from_numpy(tokens)[:, None].to(logarithms.device)
            steps.append(logarithms.gather(1, there).squeeze(1))
        if attention and scores.attention is not None:
            maps.append(scores.attention)
        decoding.follow(same, everyone)
    stacked = torch.stack(steps, 1).cpu().numpy()  # [B, T]
    token_scores = [row[:length].copy() for row, length in zip(stacked, lengths.tolist())]
    return token_scores, np.stack(maps, 1) if maps else None
