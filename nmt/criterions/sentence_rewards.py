"""Sentence GLEU and BLEU of token ids, for whole batches on any device.

Positions are compared instead of counting n-grams: an n-gram is matched if the reference contains more equal n-grams than
precede it. Comparisons of longer n-grams follow from those of shorter ones.

Shapes: N sentences, T positions of a hypothesis, R positions of its reference.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.interface import real_positions

MAX_ORDER = 4  # n-grams of one to four ids
_COMPARISONS = 2**25  # in memory at a time


def sentence_gleu(hypotheses: Tensor, lengths: Tensor, references: Tensor, reference_lengths: Tensor) -> Tensor:
    """Return the minimum [N] of precision and recall over all n-grams of 1 to 4 ids: Wu et al. 2016, section 5.

    Ids [N, T] and [N, R] with their lengths [N]; ids beyond the lengths are ignored.
    """
    matches = _matches(hypotheses, lengths, references, reference_lengths).sum(1)
    longer = torch.maximum(lengths, reference_lengths)
    return matches / _ngrams(longer).sum(1).clamp(min=1.0)


def sentence_bleu(hypotheses: Tensor, lengths: Tensor, references: Tensor, reference_lengths: Tensor) -> Tensor:
    """Return the BLEU [N] of each sentence, with one added to matches and totals from bigrams on: Lin and Och 2004, BLEU+1.

    Hypotheses that are empty or without a match have BLEU 0.
    """
    matches = _matches(hypotheses, lengths, references, reference_lengths)  # [N, 4]
    smoothing = (torch.arange(MAX_ORDER, device=lengths.device) > 0).float()
    precisions = (matches + smoothing) / (_ngrams(lengths) + smoothing).clamp(min=1.0)
    brevity = (1.0 - reference_lengths / lengths.clamp(min=1)).clamp(max=0.0).exp()
    return precisions.log().mean(1).exp() * brevity * (lengths > 0)


def _ngrams(lengths: Tensor) -> Tensor:
    """Return the number [N, 4] of n-grams of each order in sentences of lengths [N]."""
    return (lengths[:, None] - torch.arange(MAX_ORDER, device=lengths.device)).clamp(min=0).float()


def _matches(hypotheses: Tensor, lengths: Tensor, references: Tensor, reference_lengths: Tensor) -> Tensor:
    """Return the number [N, 4] of matched n-grams of each order; a reference n-gram matches once."""
    longest = hypotheses.size(1) + references.size(1)
    rows = max(1, _COMPARISONS // max(1, hypotheses.size(1) * longest))
    parts = zip(*(torch.split(column, rows) for column in (hypotheses, lengths, references, reference_lengths)))
    return torch.cat([_matches_of_few(*part) for part in parts])


def _matches_of_few(hypotheses: Tensor, lengths: Tensor, references: Tensor, reference_lengths: Tensor) -> Tensor:
    real = real_positions(lengths, hypotheses.size(1))  # [N, T]
    own = (hypotheses[:, :, None] == hypotheses[:, None, :]) & real[:, :, None] & real[:, None, :]  # [N, T, T]
    theirs = (hypotheses[:, :, None] == references[:, None, :]) & real[:, :, None]  # [N, T, R]
    theirs = theirs & real_positions(reference_lengths, references.size(1))[:, None, :]
    own_words, their_words, counts = own, theirs, []
    for order in range(1, MAX_ORDER + 1):
        before = own.tril(-1).sum(2)  # [N, T] earlier equal n-grams
        counts.append((before < theirs.sum(2)).sum(1))
        own, theirs = own & _equal_later(own_words, order), theirs & _equal_later(their_words, order)
    return torch.stack(counts, 1).float()


def _equal_later(equal: Tensor, steps: int) -> Tensor:
    """Whether the ids ``steps`` positions later are equal; past the end they are not."""
    return F.pad(equal[:, steps:, steps:], (0, min(steps, equal.size(2)), 0, min(steps, equal.size(1))))
