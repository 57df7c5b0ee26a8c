"""A torch model as an engine: the batches that it decodes, and the scores of given translations in one pass.

Legend: B sentences, K beam, N = B*K hypotheses, V vocabulary, V' tokens of the longest shortlist, M target positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmt.config.translation import ON_A_CPU, ON_A_GPU
from nmt.data.batching.batch import collate, pad
from nmt.data.vocabulary import PAD, Floats, Ids, Ints
from nmt.devices.kinds import device_of
from nmt.engines.c_scores import CScores
from nmt.engines.torch_scores import TorchScores
from nmt.interface import Decodable, DecoderState, EncoderDecoder, Memory
from nmt.native.library import library
from nmt.search.decoding import Scores

_SCORES_AT_ONCE = 2**22  # float32 numbers: rows of the vocabulary


class ModelEngine:
    """A model on a device."""

    interleaves = True  # the state of a search is its own

    def __init__(self, model: Decodable, device: str | torch.device, *, longest_source: int | None = None) -> None:
        self.model = model
        self.device = str(device)
        self.longest_source = longest_source
        self.usual_tokens = usual_tokens(self.device)

    def forget(self) -> None:
        device_of(self.device).release_memory()

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> ModelDecoding:
        device = device_of(self.device)
        source, lengths = (device.sent(part.numpy()) for part in pad(sources))
        vocabulary = None if lists is None else device.sent(pad(lists, PAD)[0].numpy())
        with torch.inference_mode():
            memory, state = self.model.start(self.model.encode(source, lengths), beam, vocabulary)
        return ModelDecoding(self.model, self.device, memory, state, vocabulary)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        limits = self.model.max_target_lengths(torch.from_numpy(source_lengths))
        return None if limits is None else limits.numpy()

    def target_scores(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Floats] | None:
        if not isinstance(self.model, EncoderDecoder):
            return None
        return teacher_forced_scores(self.model, self.device, sources, targets)


@dataclass
class ModelDecoding:
    """A batch that a model decodes."""

    model: Decodable
    device: str
    memory: Memory
    state: DecoderState
    vocabulary: Tensor | None = None  # [B, V'] the shortlist of each sentence, right-padded
    leave_freely = False  # memory and state are moved

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        with torch.inference_mode():
            ids = self._on_device(tokens)
            if self.vocabulary is not None:
                ids = self.vocabulary.gather(1, ids.view(len(self.vocabulary), -1)).flatten()
            output = self.model.step(ids, self.memory, self.state, attention)
            self.state = output.state
            weights = None if output.attention is None else output.attention.float()
            return scores_of(output.scores, weights, normalized=output.normalized)

    def follow(self, parents: Ints, staying: Ints) -> None:
        sentences, beam = parents.shape
        rows = (np.arange(0, parents.size, beam)[:, None] + parents)[staying].ravel()
        with torch.inference_mode():
            if len(staying) < sentences:
                kept = self._on_device(staying)
                self.memory = self.memory.rows(kept)
                self.vocabulary = None if self.vocabulary is None else self.vocabulary[kept]
            if len(staying) < sentences or not np.array_equal(rows, np.arange(parents.size)):
                self.state = self.state.rows(self._on_device(rows))

    def _on_device(self, numbers: Ints) -> Tensor:
        return device_of(self.device).sent(numbers)


def usual_tokens(device: str) -> int:
    """Return the default batch size, in source tokens, of what torch computes."""
    return ON_A_CPU if device == "cpu" else ON_A_GPU


def scores_of(scores: Tensor, attention: Tensor | None, *, normalized: bool) -> Scores:
    """Return the scores [N, V] and the attention [N, S] of one step, ranked in C if they are on a CPU and C was built."""
    scores = scores.float().contiguous()
    if scores.device.type != "cpu" or library() is None:
        return TorchScores(scores, attention, normalized=normalized)
    return CScores(scores.numpy(), None if attention is None else attention.numpy(), normalized=normalized)


def teacher_forced_scores(
    model: EncoderDecoder, device: str, sources: Sequence[Ids], targets: Sequence[Ids]
) -> list[Floats]:
    """Return the log-probability of each token of ``targets``, which the model reads at once."""
    batch = collate(sources, targets).to(torch.device(device))
    with torch.inference_mode():
        hidden = model(batch).hidden  # [M, D]
        rows = max(1, _SCORES_AT_ONCE // model.output.logits(hidden[:1]).size(1))
        scores = [
            model.output.logits(part).float().log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
            for part, tokens in zip(torch.split(hidden, rows), torch.split(batch.targets, rows))
        ]
    (every,) = device_of(device).fetched(torch.cat(scores))
    return np.split(every, np.cumsum(batch.target_lengths.cpu().numpy())[:-1])
