"""The tensors of a model that have an entry for each token of a vocabulary.

They are found by building the model with a vocabulary that is larger by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from nmt.interface import EncoderDecoder, VocabularySizes


@dataclass(frozen=True)
class VocabularyAxis:
    """An axis of a tensor: entry n belongs to token n of ``side``, "source" or "target"."""

    side: str
    axis: int


def vocabulary_axes(
    build: Callable[[VocabularySizes], EncoderDecoder], sizes: VocabularySizes
) -> Mapping[str, VocabularyAxis]:
    """Return vocabulary axes by name in the state dict; the models are built without storage.

    A joint vocabulary is enlarged on one side at a time too. A shared table belongs to the side that determines its size.
    Empty if no tensor depends on a vocabulary, or if one depends on it differently: some models encode tokens as bits.
    """
    original = _shapes(build, sizes)
    axes: dict[str, VocabularyAxis] = {}
    for side in ("source", "target"):
        size = getattr(sizes, side)
        grown = _shapes(build, replace(sizes, **{side: size + 1}))
        for name in original.keys() | grown.keys():
            before, after = original.get(name, ()), grown.get(name, ())
            if before == after:
                continue
            one_longer = [(*before[:axis], size + 1, *before[axis + 1 :]) for axis in range(len(before))]
            axis = one_longer.index(after) if after in one_longer else None
            if axis is None or before[axis] != size:
                return {}  # not an axis of the vocabulary's size
            axes[name] = VocabularyAxis(side, axis)
    return axes


def _shapes(build: Callable[[VocabularySizes], EncoderDecoder], sizes: VocabularySizes) -> dict[str, tuple[int, ...]]:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build(sizes).state_dict().items()}
