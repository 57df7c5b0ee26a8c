"""Laws of a model by itself (teacher forcing, steps, states, memories) and of translating with it: what search finds depends
on the sentence and the model, on nothing else.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from nmt.data.batch import collate
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Ints
from nmt.interface import Batch, DecoderState, EncoderDecoder, Hypothesis, Memory, VocabularySizes
from nmt.search import Search, searches
from nmt.search.config import BeamConfig, GreedyConfig, StopRule
from nmt.search.forced import score_targets
from nmt.testing.subjects import (
    JOINT,
    TOLERANCE,
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
SOURCE_LENGTHS = (2, 9, 5, 1, 12, 7)
FOUR_WORDS = VocabularySizes(source=8, target=8, shared=True)  # unk counts as a word: it may be produced
LONGEST = 3  # words of the exhaustive search: 5 + 25 + 125 translations
BEST = 10  # that many of them are compared


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


def batch_mates_never_matter(subject: Subject) -> None:
    """A sentence is translated alike alone and in any batch.

    Rounding may decide between two translations of the same probability: a difference is accepted if both score the
    same within 1e-4.
    """
    model = subject.model()
    batch = toy_batch(model, SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=4, lenpen=0.0, max_len_b=5))
    for sentence, together in enumerate(_best(search, model, batch)):
        single = alone(batch, sentence)
        by_itself = _best(search, model, single)[0]
        if np.array_equal(together.tokens, by_itself.tokens):
            scores = torch.from_numpy(together.token_scores), torch.from_numpy(by_itself.token_scores)
            assert_close(*scores, f"token scores of sentence {sentence} in a batch")
        else:
            gap = abs(_forced(model, single, together.tokens) - _forced(model, single, by_itself.tokens))
            assert gap <= TOLERANCE, (
                f"sentence {sentence} is translated {together.tokens.tolist()} in a batch and "
                f"{by_itself.tokens.tolist()} alone; their scores differ by {gap:.3g}"
            )


def forced_scoring_equals_search(subject: Subject) -> None:
    """Scoring a translation step by step gives the beam's own log-probabilities, token by token."""
    model = subject.model()
    batch = toy_batch(model, SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=4, max_len_b=5), nbest=3)
    for found in zip(*search(model, batch.source, batch.source_lengths)):  # all best ones, all second ones ...
        targets = [torch.from_numpy(hypothesis.tokens) for hypothesis in found]
        forced = score_targets(model, batch.source, batch.source_lengths, targets)
        for hypothesis, scores in zip(found, forced):
            own = torch.from_numpy(hypothesis.token_scores)
            assert_close(own, scores, "token scores of the beam and of forced scoring")
            total = torch.tensor(hypothesis.log_probability)
            assert_close(total, scores.sum(), "log-probability of the beam and of forced scoring")


def a_beam_of_one_is_greedy(subject: Subject) -> None:
    """Beam search with one hypothesis finds what greedy search finds; asking for attention changes nothing."""
    model = subject.model()
    batch = toy_batch(model, SOURCE_LENGTHS, SOURCE_LENGTHS)
    beam = _best(searches.build(BeamConfig(beam_size=1, max_len_b=5)), model, batch)
    greedy = searches.build(GreedyConfig(max_len_b=5))(model, batch.source, batch.source_lengths, attention=True)
    for one, (other,) in zip(beam, greedy):
        assert one.tokens.tolist() == other.tokens.tolist(), "beam 1 and greedy search find different translations"
        scores = torch.from_numpy(one.token_scores), torch.from_numpy(other.token_scores)
        assert_close(*scores, "token scores of beam 1 and of greedy search")


def a_wide_beam_is_exhaustive(subject: Subject) -> None:
    """On a toy vocabulary a beam wider than all prefixes finds the most probable of all translations, best first."""
    model = subject.model(sizes=FOUR_WORDS)
    source = np.array([4, 6, 5, 7, EOS])
    limits = model.max_target_lengths(torch.tensor([len(source)]))
    longest = LONGEST if limits is None else min(LONGEST, int(limits) - 1)
    words = (UNK, *range(len(SPECIALS), FOUR_WORDS.target))
    every = [
        np.array([*translation, EOS])
        for length in range(1, longest + 1)
        for translation in itertools.product(words, repeat=length)
    ]
    batch = collate([source] * len(every), every)
    totals = torch.stack([scores.sum() for scores in target_log_probabilities(model, batch)])
    best = totals.topk(BEST).values
    # Ends count among the first K continuations only: there is room for each word and the end after each prefix.
    wide = BeamConfig(
        beam_size=(len(words) + 1) ** longest, lenpen=0.0, max_len_a=0, max_len_b=longest, stop=StopRule.bound
    )
    found = searches.build(wide, nbest=BEST)(model, batch.source[:1], batch.source_lengths[:1])[0]
    scores = torch.tensor([hypothesis.log_probability for hypothesis in found])
    assert_close(scores, best, f"the {BEST} best of a wide beam and of all translations")


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


def _best(search: Search, model: EncoderDecoder, batch: Batch) -> list[Hypothesis]:
    return [ranked[0] for ranked in search(model, batch.source, batch.source_lengths)]


def _forced(model: EncoderDecoder, batch: Batch, tokens: Ints) -> float:
    return float(score_targets(model, batch.source, batch.source_lengths, [torch.from_numpy(tokens)])[0].sum())
