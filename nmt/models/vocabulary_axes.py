"""Which tensors of a model have one entry for each piece of a vocabulary.

No model has to say so: its builder shows it when one vocabulary has one piece more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from nmt.interface import EncoderDecoder, VocabularySizes


@dataclass(frozen=True)
class VocabularyAxis:
    """An axis of a tensor: entry n belongs to piece n of ``side``, "source" or "target"."""

    side: str
    axis: int


def vocabulary_axes(
    build: Callable[[VocabularySizes], EncoderDecoder], sizes: VocabularySizes
) -> Mapping[str, VocabularyAxis]:
    """By name in the state of the model. Nothing is computed: the models are built without storage.

    A joint vocabulary grows on one side at a time too. A table that both sides share stands under the side that its
    size is taken from. Empty if no tensor, or not every one that depends on a vocabulary, is such a table: some models
    write pieces as bits.
    """
    usual = _shapes(build, sizes)
    found: dict[str, VocabularyAxis] = {}
    for side in ("source", "target"):
        size = getattr(sizes, side)
        grown = _shapes(build, replace(sizes, **{side: size + 1}))
        for name in usual.keys() | grown.keys():
            before, after = usual.get(name, ()), grown.get(name, ())
            if before == after:
                continue
            one_longer = [(*before[:axis], size + 1, *before[axis + 1 :]) for axis in range(len(before))]
            axis = one_longer.index(after) if after in one_longer else None
            if axis is None or before[axis] != size:
                return {}  # another axis than the vocabulary's, or by more than one
            found[name] = VocabularyAxis(side, axis)
    return found


def _shapes(build: Callable[[VocabularySizes], EncoderDecoder], sizes: VocabularySizes) -> dict[str, tuple[int, ...]]:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build(sizes).state_dict().items()}
