"""Small random batches, and the scores of a model on them.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmt.data.batch import Batch, collate
from nmt.data.vocabulary import EOS, SPECIALS
from nmt.interface import Decodable, DecoderState, EncoderDecoder, Memory
from nmt.testing.subjects import JOINT

TOLERANCE = 1e-4  # of log-probabilities in float32; operators round differently for different shapes


def toy_batch(model: EncoderDecoder, source_lengths: Sequence[int], target_lengths: Sequence[int]) -> Batch:
    """Random sentences of these lengths (eos included), cut to what the model can read and write."""
    generator = np.random.default_rng(7)
    longest = model.max_source_length() or max(source_lengths)
    sources = [_sentence(generator, min(length, longest), JOINT.source) for length in source_lengths]
    limits = model.max_target_lengths(torch.tensor([len(source) for source in sources]))
    wanted = target_lengths if limits is None else [min(pair) for pair in zip(target_lengths, limits.tolist())]
    return collate(sources, [_sentence(generator, length, JOINT.target) for length in wanted])


def alone(batch: Batch, sentence: int) -> Batch:
    """One sentence of a batch as a batch."""
    first, last = batch.target_offsets[sentence : sentence + 2].tolist()
    source = batch.source[sentence, : batch.source_lengths[sentence]]
    return collate([source.numpy()], [batch.targets[first:last].numpy()])


def target_log_probabilities(model: EncoderDecoder, batch: Batch) -> list[Tensor]:
    """By sentence, the log-probability of each target token, by teacher forcing."""
    every = all_log_probabilities(model, batch)
    chosen = torch.cat(every).gather(1, batch.targets[:, None]).squeeze(1)
    return list(torch.split(chosen, batch.target_lengths.tolist()))


def all_log_probabilities(model: EncoderDecoder, batch: Batch) -> list[Tensor]:
    """By sentence, the log-probabilities [length, V] at each of its target positions, by teacher forcing."""
    with torch.inference_mode():
        scores = model.output.logits(model(batch).hidden).log_softmax(-1)
    return list(torch.split(scores, batch.target_lengths.tolist()))


def step_scores(model: Decodable, tokens: Tensor, memory: Memory, state: DecoderState) -> tuple[Tensor, DecoderState]:
    """One step: log-probabilities [N, V] and the next state."""
    output = model.step(tokens, memory, state)
    return output.log_probabilities(), output.state


def assert_close(found: Tensor, expected: Tensor, what: str) -> None:
    """Both within the tolerance, -inf equal to -inf."""
    difference = (found - expected).abs().masked_fill(found == expected, 0.0)
    assert found.shape == expected.shape, f"{what}: shapes {list(found.shape)} and {list(expected.shape)}"
    assert bool((difference <= TOLERANCE).all()), f"{what}: they differ by {difference.max().item():.3g}"


def _sentence(generator: np.random.Generator, length: int, vocabulary_size: int) -> npt.NDArray[np.int64]:
    words = generator.integers(len(SPECIALS), vocabulary_size, size=length - 1)
    return np.append(words, EOS)
