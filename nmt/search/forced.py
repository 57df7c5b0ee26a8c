"""Scoring given translations step by step, for any ``Decodable``: the search's own view of a target."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS
from nmt.interface import Decodable


def score_targets(model: Decodable, source: Tensor, source_lengths: Tensor, targets: Sequence[Tensor]) -> list[Tensor]:
    """For each of the B targets (ids ending in eos) the natural-log probability of each of its tokens.

    ``EncoderDecoder.decode`` is the fast way to the same numbers for a single model.
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
            output = model.step(tokens, memory, state)
            scores.append(output.log_probabilities().gather(1, wanted[:, None]).squeeze(1))
            state, tokens = output.state, wanted
        stacked = torch.stack(scores, 1).cpu()  # [B, T]
    return [row[:length].clone() for row, length in zip(stacked, lengths)]
