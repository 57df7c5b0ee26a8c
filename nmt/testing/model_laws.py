"""Laws of a model by itself: teacher forcing, steps, states and memories.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS
from nmt.interface import Batch, DecoderState, EncoderDecoder, Memory
from nmt.testing.subjects import (
    JOINT,
    Subject,
    all_log_probabilities,
    alone,
    assert_close,
    step_scores,
    target_log_probabilities,
    toy_batch,
)

# Sentences of equal lengths, so that a test of something else never meets padding.
EVEN_SOURCE, EVEN_TARGET = (6, 6, 6), (9, 9, 9)
UNEVEN_SOURCE, UNEVEN_TARGET = (2, 9, 5, 1, 12), (6, 3, 11, 8, 1)


def padding_never_matters(subject: Subject) -> None:
    """The log-probabilities of a batch are those of its sentences alone."""
    model = subject.model()
    batch = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET)
    together = target_log_probabilities(model, batch)
    for sentence, scores in enumerate(together):
        assert_close(scores, target_log_probabilities(model, alone(batch, sentence))[0], f"sentence {sentence} alone")


def the_future_is_hidden(subject: Subject) -> None:
    """Changing y_t leaves the scores of earlier positions bit-identical.

    A model whose operators take shapes that depend on token values (experts) says so with a class attribute
    ``shapes_depend_on_tokens = True``; then 1e-5 is allowed.
    """
    model = subject.model()
    allowed = 1e-5 if model.shapes_depend_on_tokens else 0.0
    batch = toy_batch(model, EVEN_SOURCE, EVEN_TARGET)
    before = torch.stack(all_log_probabilities(model, batch))  # [B, T, V]
    for position in range(1, batch.target_in.size(1)):
        after = torch.stack(all_log_probabilities(model, _with_other_words(batch, position)))
        change = (after - before)[:, :position].abs().max().item()
        assert change <= allowed, f"position {position} changed the scores before it by {change:.3g}"


def steps_equal_teacher_forcing(subject: Subject) -> None:
    """``step`` over t gives what ``decode`` gives at t, for every hypothesis of a beam."""
    model = subject.model()
    batch, beam = toy_batch(model, EVEN_SOURCE, EVEN_TARGET), 2
    expected = torch.stack(all_log_probabilities(model, batch)).repeat_interleave(beam, 0)  # [N, T, V]
    memory, state = _start(model, batch, beam)
    with torch.inference_mode():
        for position, tokens in enumerate(batch.target_in.repeat_interleave(beam, 0).unbind(1)):
            scores, state = step_scores(model, tokens, memory, state)
            assert_close(scores, expected[:, position], f"step {position} and decode")


def rows_commute_with_steps(subject: Subject) -> None:
    """A step after ``rows(p)`` is ``rows(p)`` after the step: p within sentences, or dropping whole sentences."""
    model = subject.model()
    batch, beam = toy_batch(model, UNEVEN_SOURCE[:3], UNEVEN_TARGET[:3]), 3
    within = torch.tensor([2, 0, 0, 4, 4, 5, 7, 8, 6])
    dropping = torch.tensor([0, 1, 2, 6, 7, 8])
    memory, state = _start(model, batch, beam)
    words = _words(steps=5, rows=3 * beam)
    with torch.inference_mode():
        for tokens in words[:3]:
            _, state = step_scores(model, tokens, memory, state)
        _assert_commutes(model, words[3:], memory, memory, state, within)
        _assert_commutes(model, words[3:], memory, memory.rows(torch.tensor([0, 2])), state, dropping)


def attention_is_a_distribution(subject: Subject) -> None:
    """The attention of a step, where a model has any, sums to 1 over the real source positions and is 0 at padding."""
    model = subject.model()
    batch, beam = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET), 2
    memory, state = _start(model, batch, beam)
    padding = torch.arange(batch.source.size(1)) >= batch.source_lengths.repeat_interleave(beam)[:, None]  # [N, S]
    with torch.inference_mode():
        for tokens in _words(steps=3, rows=len(padding)):
            output = model.step(tokens, memory, state, attention=True)
            state = output.state
            if output.attention is None:
                continue
            assert_close(output.attention.sum(1), torch.ones(len(padding)), "the sum of attention, and 1")
            assert not output.attention[padding].any(), "padding is attended to"


def a_shortlist_selects_columns(subject: Subject) -> None:
    """``start`` with a vocabulary gives the scores of these ids alone, in their order."""
    model = subject.model()
    batch = toy_batch(model, EVEN_SOURCE, EVEN_TARGET)
    shortlist = torch.tensor([EOS, 17, 5, 11, 6])
    memory, state = _start(model, batch, 1)
    with torch.inference_mode():
        short_memory, short_state = model.start(model.encode(batch.source, batch.source_lengths), 1, shortlist)
        for tokens in _words(steps=3, rows=batch.num_sentences):
            full, short = model.step(tokens, memory, state), model.step(tokens, short_memory, short_state)
            expected = full.scores[:, shortlist].log_softmax(-1)
            assert_close(short.scores.log_softmax(-1), expected, "scores over the shortlist")
            state, short_state = full.state, short.state


def sentences_have_shortlists_of_their_own(subject: Subject) -> None:
    """``start`` with a vocabulary for each sentence: its ids' scores alone, and -inf at the pads that fill up a row."""
    model, beam = subject.model(), 2
    batch = toy_batch(model, EVEN_SOURCE, EVEN_TARGET)
    sentences = batch.num_sentences
    lists = (
        torch.tensor([PAD, EOS, 17, 5, 11]).repeat(sentences, 1)
        + torch.tensor([0, 0, 1, 1, 1]) * torch.arange(sentences)[:, None]
    )
    lists[0, 4] = PAD
    memory, state = _start(model, batch, beam)
    kept = torch.arange(1, sentences)
    rows = torch.arange(beam, sentences * beam)
    with torch.inference_mode():
        own_memory, own_state = model.start(model.encode(batch.source, batch.source_lengths), beam, lists)
        for turn, tokens in enumerate(_words(steps=3, rows=sentences * beam)):
            if turn == 2:  # the first sentence leaves
                memory, own_memory, lists, tokens = memory.rows(kept), own_memory.rows(kept), lists[kept], tokens[rows]
                state, own_state = state.rows(rows), own_state.rows(rows)
            full, own = model.step(tokens, memory, state), model.step(tokens, own_memory, own_state)
            columns = lists.repeat_interleave(beam, 0)
            absent = (columns == PAD) & (torch.arange(columns.size(1)) > 0)
            expected = full.scores.gather(1, columns).masked_fill(absent, -torch.inf)
            assert_close(
                own.scores.softmax(-1), expected.softmax(-1), "probabilities over each sentence's own shortlist"
            )
            assert (own.scores[absent] == -torch.inf).all(), "a pad that fills up a shortlist is possible"
            state, own_state = full.state, own.state


def _assert_commutes(
    model: EncoderDecoder, words: Tensor, memory: Memory, kept_memory: Memory, state: DecoderState, index: Tensor
) -> None:
    """Two steps of all rows, then ``rows``; and ``rows`` before, between and after them."""
    first, second = words
    before_scores, before = step_scores(model, first[index], kept_memory, state.clone().rows(index))
    after_scores, after = step_scores(model, first, memory, state.clone())
    assert_close(before_scores, after_scores[index], "a step after and before rows()")
    between_scores, _ = step_scores(model, second[index], kept_memory, after.clone().rows(index))
    before_scores, _ = step_scores(model, second[index], kept_memory, before)
    after_scores, _ = step_scores(model, second, memory, after)
    assert_close(before_scores, after_scores[index], "the second step after and before rows()")
    assert_close(between_scores, after_scores[index], "rows() between two steps")


def _start(model: EncoderDecoder, batch: Batch, beam_size: int) -> tuple[Memory, DecoderState]:
    with torch.inference_mode():
        return model.start(model.encode(batch.source, batch.source_lengths), beam_size)


def _words(steps: int, rows: int) -> Tensor:
    """[steps, rows] random words; every row starts from bos."""
    words = torch.randint(len(SPECIALS), JOINT.target, (steps, rows), generator=torch.Generator().manual_seed(3))
    words[0] = BOS
    return words


def _with_other_words(batch: Batch, position: int) -> Batch:
    """The same batch with another word at one position of every target."""
    target_in = batch.target_in.clone()
    target_in[:, position] = len(SPECIALS) + (target_in[:, position] + 1) % (JOINT.target - len(SPECIALS))
    return Batch(**{**vars(batch), "target_in": target_in})
