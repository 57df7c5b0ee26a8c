"""Scoring given translations instead of finding some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from nmt.data.batch import Batch, collate, pad
from nmt.data.hypothesis import Ids
from nmt.data.vocabulary import BOS, EOS
from nmt.interface import Decodable, EncoderDecoder, Hypothesis
from nmt.search.decoding import Engine
from nmt.search.length_penalty import LengthPenalty
from nmt.search.requests import Phrase, Request

_SCORES_AT_ONCE = 2**22  # numbers: of rows of the vocabulary, in float32


class ForcedSearch:
    """A ``Search`` that finds what is requested: the ``target`` of each sentence, with its scores.

    A target that is longer than the model can write loses its end, and is not ``finished``.
    """

    def __init__(self, length_penalty: LengthPenalty, lenpen: float) -> None:
        """What divides log-probabilities, as in the search that scores are to be compared with."""
        self._length_penalty = length_penalty
        self._lenpen = lenpen

    def __call__(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        assert requests is not None, "there is nothing to score"
        pieces = _within_limits(model, source_lengths, requests)
        targets = [torch.tensor([*target, EOS]) for target in pieces]
        whole = [len(target) == len(request.target) for target, request in zip(pieces, requests)]
        weights: list[Tensor] | None = [] if attention else None
        if isinstance(model, EncoderDecoder) and not attention:
            scores = score_at_once(model, source, source_lengths, targets)
        else:
            scores = score_targets(model, source, source_lengths, targets, weights)
        maps = torch.stack(weights, 1).float().cpu() if weights else None  # [B, T, S]
        widths = source_lengths.tolist()
        return [
            [self._hypothesis(target, of_tokens, _part(maps, row, len(target), widths[row]), whole[row])]
            for row, (target, of_tokens) in enumerate(zip(targets, scores))
        ]

    def find(
        self,
        engine: Engine,
        sources: Sequence[Ids],
        *,
        lists: Sequence[Ids] | None = None,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        """The same with an engine. It looks at all pieces, so there are no ``lists``."""
        assert lists is None
        source, lengths = (part.to(engine.device) for part in pad(sources))
        return self(engine.scored, source, lengths, attention=attention, requests=requests)

    def _hypothesis(self, target: Tensor, scores: Tensor, attention: Tensor | None, whole: bool) -> Hypothesis:
        total = float(scores.sum())
        score = total / self._length_penalty(float(len(target)), self._lenpen)
        weights = None if attention is None else attention.numpy()
        return Hypothesis(target.numpy(), score, total, scores.numpy(), weights, finished=whole)


def score_targets(
    model: Decodable,
    source: Tensor,
    source_lengths: Tensor,
    targets: Sequence[Tensor],
    attention: list[Tensor] | None = None,
) -> list[Tensor]:
    """For each of the B targets (ids ending in eos) the natural-log probability of each of its tokens.

    Step by step, for any ``Decodable``: the search's own view of a target. ``attention`` receives that of each step [B, S].
    """
    lengths = [len(target) for target in targets]
    forced = torch.full((len(targets), max(lengths)), EOS, device=source.device)  # [B, T]; what follows eos is ignored
    for row, target in zip(forced, targets):
        row[: len(target)] = target
    scores = []
    with torch.inference_mode():
        memory, state = model.start(model.encode(source, source_lengths), 1)
        tokens = torch.full((len(targets),), BOS, device=source.device)
        for wanted in forced.unbind(1):
            output = model.step(tokens, memory, state, attention is not None)
            if attention is not None and output.attention is not None:
                attention.append(output.attention)
            scores.append(output.log_probabilities().gather(1, wanted[:, None]).squeeze(1))
            state, tokens = output.state, wanted
        stacked = torch.stack(scores, 1).cpu()  # [B, T]
    return [row[:length].clone() for row, length in zip(stacked, lengths)]


def score_at_once(
    model: EncoderDecoder, source: Tensor, source_lengths: Tensor, targets: Sequence[Tensor]
) -> list[Tensor]:
    """The same for a single model, which reads whole targets."""
    batch = _batch(source, source_lengths, targets)
    with torch.inference_mode():
        hidden = model(batch).hidden  # [M, D]
        few = max(1, _SCORES_AT_ONCE // model.output.logits(hidden[:1]).size(1))
        scores = [
            model.output.logits(part).float().log_softmax(-1).gather(1, wanted[:, None]).squeeze(1)
            for part, wanted in zip(torch.split(hidden, few), torch.split(batch.targets, few))
        ]
    return [part.clone() for part in torch.split(torch.cat(scores).cpu(), batch.target_lengths.tolist())]


def _batch(source: Tensor, source_lengths: Tensor, targets: Sequence[Tensor]) -> Batch:
    rows = [row[:length].cpu().numpy() for row, length in zip(source, source_lengths.tolist())]
    return collate(rows, [np.asarray(target) for target in targets]).to(source.device)


def _part(maps: Tensor | None, row: int, length: int, width: int) -> Tensor | None:
    return None if maps is None else maps[row, :length, :width]


def _within_limits(model: Decodable, source_lengths: Tensor, requests: Sequence[Request]) -> list[Phrase]:
    limits = model.max_target_lengths(source_lengths)
    if limits is None:
        return [request.target for request in requests]
    return [request.target[: limit - 1] for limit, request in zip(limits.tolist(), requests)]
