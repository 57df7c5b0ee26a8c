"""Which tensors of a model have one entry for each piece of a vocabulary.

No model has to say so: its builder shows it when one vocabulary has one piece more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from nmt.interface import EncoderDecoder, VocabularySizes

Shapes = dict[str, tuple[int, ...]]


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
    one_more = {"source": replace(sizes, source=sizes.source + 1), "target": replace(sizes, target=sizes.target + 1)}
    for side, size in (("source", sizes.source), ("target", sizes.target)):
        grown = _shapes(build, one_more[side])
        changed = [name for name in usual.keys() | grown.keys() if usual.get(name) != grown.get(name)]
        for name in changed:
            axis = _grown_axis(usual.get(name, ()), grown.get(name, ()), size)
            if axis is None:
                return {}
            found[name] = VocabularyAxis(side, axis)
    return found


def _shapes(build: Callable[[VocabularySizes], EncoderDecoder], sizes: VocabularySizes) -> Shapes:
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in build(sizes).state_dict().items()}


def _grown_axis(before: tuple[int, ...], after: tuple[int, ...], size: int) -> int | None:
    """The only axis that differs, if it is the vocabulary's and became longer by one."""
    if len(before) != len(after):
        return None
    changed = [axis for axis, (old, new) in enumerate(zip(before, after)) if old != new]
    is_vocabulary = len(changed) == 1 and (before[changed[0]], after[changed[0]]) == (size, size + 1)
    return changed[0] if is_vocabulary else None
