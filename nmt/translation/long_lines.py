"""Lines that are too long for the model: cut into parts where that hurts least, and what was said of these put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.data.hypothesis import Floats, Ids
from nmt.translation.lines import TranslatedText

_ENDS = (".", "!", "?", "…", "。", "！", "？", "।", "؟")  # of sentences
_WORD_BEGINS = "\u2581"


def divided(ids: Ids, pieces: Sequence[str], limit: int) -> tuple[Ids, ...]:
    """Parts of at most ``limit`` pieces each: after the end of a sentence if there is one in the second half, else before
    a word, else anywhere."""
    parts, begin = [], 0
    while len(ids) - begin > limit:
        end = begin + _cut(pieces[begin : begin + limit + 1], limit)
        parts.append(ids[begin:end])
        begin = end
    return (*parts, ids[begin:])


def _cut(pieces: Sequence[str], limit: int) -> int:
    """How many of the first ``limit`` pieces make a part; one more is shown."""
    half = range(limit, max((limit + 1) // 2, 1) - 1, -1)
    sentence = next((count for count in half if pieces[count - 1].endswith(_ENDS)), None)
    word = next((count for count in half if pieces[count].startswith(_WORD_BEGINS)), limit)
    return word if sentence is None else sentence


def together(found: Sequence[Sequence[TranslatedText]], *, drawn: bool = False) -> list[TranslatedText]:
    """The translations of a line from those of its parts, best first: the best of each make the best of all, and so on.

    Where they are ``drawn``, the samples of the parts, which come in the order of their probability, are put together
    without regard to that, so that those of the line are independent too.
    """
    if not found:
        return [TranslatedText("", [], 0.0, [], None, True)]
    if len(found) == 1:
        return list(found[0])
    if drawn:
        orders = [np.random.default_rng(index).permutation(len(part)).tolist() for index, part in enumerate(found)]
        samples = [_joined([part[at] for part, at in zip(found, places)]) for places in zip(*orders)]
        return sorted(samples, key=lambda sample: -sample.score)
    ranks = max(map(len, found))
    return [_joined([part[min(rank, len(part) - 1)] for part in found]) for rank in range(ranks)]


def _joined(parts: Sequence[TranslatedText]) -> TranslatedText:
    """The ends of all parts but the last are left out of what is told of single pieces."""
    attention = [part.attention for part in parts if part.attention is not None]
    return TranslatedText(
        text=" ".join(part.text for part in parts if part.text),
        pieces=[piece for part in parts for piece in part.pieces],
        score=sum(part.score for part in parts),
        token_scores=[score for part in parts for score in part.token_scores[:-1]] + parts[-1].token_scores[-1:],
        attention=_diagonal(attention) if attention else None,
        finished=all(part.finished for part in parts),
        ends_of_parts=sum(score for part in parts[:-1] for score in part.token_scores[-1:]),
    )


def _diagonal(blocks: Sequence[Floats]) -> Floats:
    """What each part looked at, in its own part of the source."""
    blocks = [*(block[:-1, :-1] for block in blocks[:-1]), blocks[-1]]
    whole = np.zeros(np.sum([block.shape for block in blocks], axis=0), dtype=np.float32)
    row = column = 0
    for block in blocks:
        whole[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return whole
