"""A ``Decodable`` that knows only the pieces that each sentence may need. Searches see a small vocabulary.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, V' pieces of the longest list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.tokenizers import IdArray
from nmt.data.vocabulary import PAD
from nmt.interface import Decodable, DecoderState, Hypothesis, Memory, StepOutput
from nmt.search.requests import Phrase, Request


@dataclass
class ShortMemory(Memory):
    """A memory, and the list of each sentence."""

    memory: Memory
    vocabulary: Tensor  # [B, V'] ids of the model


class Shortlisted:
    """A model for one batch. Its ids count the pieces of a sentence's own list, in which the special ones come first, so
    they keep their ids."""

    def __init__(self, model: Decodable, lists: Sequence[IdArray], device: torch.device) -> None:
        """``lists``: sorted."""
        self._model = model
        tensors = [torch.from_numpy(pieces) for pieces in lists]
        self._vocabulary = torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD).to(device)
        self._lists = lists

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

    def asked(self, requests: Sequence[Request] | None) -> list[Request] | None:
        """Requests in the ids of the lists, which have all that must be written."""
        if requests is None:
            return None
        return [self._own(request, pieces) for request, pieces in zip(requests, self._lists)]

    def _own(self, request: Request, pieces: IdArray) -> Request:
        known = {int(number): place for place, number in enumerate(pieces)}

        def of(phrases: Iterable[Phrase]) -> tuple[Phrase, ...]:
            return tuple(tuple(known[number] for number in phrase) for phrase in phrases)

        possible = [phrase for phrase in request.exclude if all(number in known for number in phrase)]
        prefix, include = of([request.prefix])[0], of(request.include)
        return dataclasses.replace(request, prefix=prefix, include=include, exclude=of(possible))

    def found(self, hypotheses: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Hypotheses in the model's ids again."""
        vocabulary = self._vocabulary.cpu()
        return [
            [dataclasses.replace(one, tokens=vocabulary[sentence, one.tokens]) for one in of_sentence]
            for sentence, of_sentence in enumerate(hypotheses)
        ]
