"""Scoring given translations instead of finding some.

Shapes: B sentences, S source positions, T target positions, M real ones, D model width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.batch import collate, pad
from nmt.data.vocabulary import BOS, EOS
from nmt.interface import Decodable, EncoderDecoder, Hypothesis
from nmt.search.config import LengthPenalty
from nmt.search.requests import Request

_SCORES_AT_ONCE = 2**22  # numbers: of rows of the vocabulary, in float32


@dataclass(frozen=True)
class ForcedSearch:
    """A ``Search`` that finds what is requested: the ``target`` of each sentence, with its scores.

    A target that is longer than the model can write loses its end, and is not ``finished``.
    """

    length_penalty: LengthPenalty  # this and its exponent are those of the search that scores are to be compared with
    lenpen: float

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
        of_model = model.max_target_lengths(source_lengths)
        limits = [None] * len(requests) if of_model is None else [limit - 1 for limit in of_model.tolist()]
        targets = [torch.tensor([*one.target[:limit], EOS]) for one, limit in zip(requests, limits)]
        weights: list[Tensor] | None = [] if attention else None
        if isinstance(model, EncoderDecoder) and not attention:
            scores = score_at_once(model, source, source_lengths, targets)
        else:
            scores = score_targets(model, source, source_lengths, targets, weights)
        maps = torch.stack(weights, 1).float().cpu().numpy() if weights else None  # [B, T, S]
        found = []
        for row, (target, of_tokens, width) in enumerate(zip(targets, scores, source_lengths.tolist())):
            total, length = float(of_tokens.sum()), len(target)
            score = total / self.length_penalty(float(length), self.lenpen)
            part, whole = None if maps is None else maps[row, :length, :width], length > len(requests[row].target)
            found.append([Hypothesis(target.numpy(), score, total, of_tokens.numpy(), part, finished=whole)])
        return found


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
    forced, lengths = pad([target.numpy() for target in targets], EOS)  # [B, T]; what follows eos is ignored
    scores = []
    with torch.inference_mode():
        memory, state = model.start(model.encode(source, source_lengths), 1)
        tokens = torch.full((len(targets),), BOS, device=source.device)
        for wanted in forced.to(source.device).unbind(1):
            output = model.step(tokens, memory, state, attention is not None)
            if attention is not None and output.attention is not None:
                attention.append(output.attention)
            scores.append(output.log_probabilities().gather(1, wanted[:, None]).squeeze(1))
            state, tokens = output.state, wanted
        stacked = torch.stack(scores, 1).cpu()  # [B, T]
    return [row[:length].clone() for row, length in zip(stacked, lengths.tolist())]


def score_at_once(
    model: EncoderDecoder, source: Tensor, source_lengths: Tensor, targets: Sequence[Tensor]
) -> list[Tensor]:
    """The same for a single model, which reads whole targets."""
    sources = [row[:length].cpu().numpy() for row, length in zip(source, source_lengths.tolist())]
    batch = collate(sources, [np.asarray(target) for target in targets]).to(source.device)
    with torch.inference_mode():
        hidden = model(batch).hidden  # [M, D]
        few = max(1, _SCORES_AT_ONCE // model.output.logits(hidden[:1]).size(1))
        scores = [
            model.output.logits(part).float().log_softmax(-1).gather(1, wanted[:, None]).squeeze(1)
            for part, wanted in zip(torch.split(hidden, few), torch.split(batch.targets, few))
        ]
    return [part.clone() for part in torch.split(torch.cat(scores).cpu(), batch.target_lengths.tolist())]
