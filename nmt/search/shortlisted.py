"""A ``Decodable`` that knows only the pieces that each sentence may need. Searches see a small vocabulary.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, V' pieces of the longest list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.data.vocabulary import PAD
from nmt.interface import Decodable, DecoderState, Memory, StepOutput
from nmt.search.short_lists import Lists


@dataclass
class ShortMemory(Memory):
    """A memory, and the list of each sentence."""

    memory: Memory
    vocabulary: Tensor  # [B, V'] ids of the model


class Shortlisted:
    """A model for one batch. Its ids count the pieces of a sentence's own list, in which the special ones come first, so
    they keep their ids."""

    def __init__(self, model: Decodable, lists: Lists, device: torch.device) -> None:
        """``lists``: sorted."""
        self._model = model
        tensors = [torch.from_numpy(np.asarray(pieces, dtype=np.int64)) for pieces in lists]
        self._vocabulary = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        return self._model.encode(source, source_lengths)

    def start(
        self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None
    ) -> tuple[ShortMemory, DecoderState]:
        assert vocabulary is None, "there is one already"
        started, state = self._model.start(memory, beam_size, self._vocabulary)
        return ShortMemory(started, self._vocabulary), state

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ShortMemory)
        own = memory.vocabulary.gather(1, tokens.view(memory.vocabulary.size(0), -1)).flatten()
        return self._model.step(own, memory.memory, state, attention)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return self._model.max_target_lengths(source_lengths)
