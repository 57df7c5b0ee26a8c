"""Models of other runs that a run needs: one to start from, one to learn from.

Where the vocabularies differ, what belongs to a piece goes to the same piece, by its text."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.config.plain import to_plain
from nmt.config.sections import TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import SPECIALS, UNK, Vocabulary
from nmt.errors import DataError, UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.models.stored import architecture, load_model
from nmt.models.vocabulary_axes import vocabulary_axes
from nmt.storage.checkpoints import load_parameters
from nmt.training.setup.fingerprint import differences

logger = logging.getLogger("nmt.training")


def start_from(config: TrainConfig, model: EncoderDecoder, pair: LanguagePair) -> None:
    """Give ``model`` the parameters of ``--finetune-from-model``, which must have the same architecture.

    Other vocabularies are refused unless they are to be mapped.
    """
    path = config.checkpoint.finetune_from_model
    assert path is not None, "the caller asks for it"
    loaded = load_model(path, torch.device("cpu"))
    other, other_pair, stored = loaded.module, loaded.pair, loaded.tree
    others = differences(architecture(stored["model"]), architecture(to_plain(config)["model"]))
    if others:  # where shapes do not fit either, loading says so
        listed = "; ".join(f"model.{key}: {change}" for key, change in others.items())
        logger.warning("the model of %s has other options (%s): what its parameters mean may be lost", path, listed)
    state = other.state_dict()
    if other_pair.digest() != pair.digest():
        if not config.checkpoint.finetune_map_vocabulary:
            raise _other_vocabularies(
                path, "; or take over what belongs to pieces that both have, with --finetune-map-vocabulary"
            )
        state = mapped_state(model, config.model, pair, other, other_pair, path)
    load_parameters(model, state, path)
    logger.info("the model starts from the parameters of %s", path)


def load_teacher(path: str, pair: LanguagePair, device: torch.device) -> EncoderDecoder:
    """A trained model that will not change, of any architecture."""
    teacher = load_model(path, device)
    if teacher.pair.digest() != pair.digest():
        raise _other_vocabularies(path)
    return teacher.module.requires_grad_(False)


def _other_vocabularies(path: str, more_advice: str = "") -> DataError:
    return DataError(
        f"{path} was trained with other vocabularies than those of the corpus; make the corpus with its tokenizer: "
        f"nmt-preprocess --srcdict {path} --tgtdict {path}{more_advice}"
    )


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
        expected = list(own[name].shape)
        expected[place.axis] = len(getattr(other_pair, place.side).vocabulary)
        if name in state and list(state[name].shape) == expected:
            old, new = rows[place.side]
            state[name] = own[name].index_copy(place.axis, new, state[name].index_select(place.axis, old))
    return state


def common_pieces(other: Vocabulary, own: Vocabulary) -> tuple[Tensor, Tensor]:
    """Ids in both vocabularies of the specials and of each piece that both have, in the order of ``own``."""
    known = [(other.id(piece), own.id(piece)) for piece in own.pieces[len(SPECIALS) :]]
    pairs = [(number, number) for number in range(len(SPECIALS))] + [pair for pair in known if pair[0] != UNK]
    old, new = torch.tensor(pairs).unbind(1)
    return old, new
