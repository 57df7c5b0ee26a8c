"""The parameters of a model of other vocabularies: what belongs to a piece goes to the same piece, by its text."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import SPECIALS, UNK, Vocabulary
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.vocabulary_axes import VocabularyAxis, vocabulary_axes

logger = logging.getLogger("nmt.training")


def mapped_state(
    model: EncoderDecoder, config: Any, pair: LanguagePair, other: EncoderDecoder, other_pair: LanguagePair, path: str
) -> dict[str, Tensor]:
    """The state of ``other`` in the shapes of ``model``: pieces that only the model has keep its values.

    ``config`` is the model's configuration. Tensors of another architecture are left as they are, to be refused.
    """
    sizes = VocabularySizes(len(pair.source.vocabulary), len(pair.target.vocabulary), pair.shared)
    axes = vocabulary_axes(partial(models.build, config), sizes)
    if not axes:
        raise UsageError(
            f"this {models.name_of(type(config))} has parameters that depend on its vocabulary without belonging to single "
            f"pieces, or none at all, so those of {path} cannot be mapped; leave out --finetune-map-vocabulary"
        )
    rows = {
        "source": common_pieces(other_pair.source.vocabulary, pair.source.vocabulary),
        "target": common_pieces(other_pair.target.vocabulary, pair.target.vocabulary),
    }
    for side in ("source", "target"):
        count, total = len(rows[side][0]) - len(SPECIALS), getattr(sizes, side) - len(SPECIALS)
        logger.info("%s of the %s %s pieces are in the vocabulary of %s", f"{count:,}", f"{total:,}", side, path)
    own, state = model.state_dict(), dict(other.state_dict())
    for name, place in axes.items():
        if name in state and _fits(state[name], own[name], place, getattr(other_pair, place.side).vocabulary):
            state[name] = _with_rows(own[name], state[name], place.axis, *rows[place.side])
    return state


def common_pieces(other: Vocabulary, own: Vocabulary) -> tuple[Tensor, Tensor]:
    """Ids in both vocabularies of the specials and of each piece that both have, in the order of ``own``."""
    known = [(other.id(piece), own.id(piece)) for piece in own.pieces[len(SPECIALS) :]]
    pairs = [(number, number) for number in range(len(SPECIALS))] + [pair for pair in known if pair[0] != UNK]
    old, new = torch.tensor(pairs).unbind(1)
    return old, new


def _fits(theirs: Tensor, own: Tensor, place: VocabularyAxis, vocabulary: Vocabulary) -> bool:
    expected = list(own.shape)
    expected[place.axis] = len(vocabulary)
    return list(theirs.shape) == expected


def _with_rows(own: Tensor, theirs: Tensor, axis: int, old: Tensor, new: Tensor) -> Tensor:
    return own.index_copy(axis, new, theirs.index_select(axis, old))
