"""Laws of a model (teacher forcing, steps, states, memories) and of search: a translation depends only on the sentence and
the model.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, V vocabulary.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor

from nmt.data.batching.batch import collate
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK, Ints
from nmt.interface import Batch, DecoderState, EncoderDecoder, Hypothesis, Memory, VocabularySizes
from nmt.search import Search, searches
from nmt.search.config import BeamConfig, GreedyConfig, StopRule
from nmt.testing.subjects import (
    JOINT,
    TOLERANCE,
    Subject,
    all_log_probabilities,
    assert_close,
    device_under,
    forced_scores,
    search_with,
    single_sentence,
    step_scores,
    target_log_probabilities,
    toy_batch,
)

# Sentences of equal lengths, for laws that are not about padding.
EVEN_SOURCE, EVEN_TARGET = (6, 6, 6), (9, 9, 9)
UNEVEN_SOURCE, UNEVEN_TARGET = (2, 9, 5, 1, 12), (6, 3, 11, 8, 1)
SOURCE_LENGTHS = (2, 9, 5, 1, 12, 7)
FOUR_WORDS = VocabularySizes(source=8, target=8, shared=True)  # with unk, five words that search can produce
LONGEST = 3  # words of the exhaustive search: 5 + 25 + 125 translations
BEST = 10  # translations that are compared


def padding_never_matters(subject: Subject) -> None:
    """Padding changes no log-probability: each sentence has the same ones in a batch and alone."""
    model = subject.built
    batch = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET)
    batch_scores = target_log_probabilities(model, batch)
    for sentence, scores in enumerate(batch_scores):
        assert_close(
            scores, target_log_probabilities(model, single_sentence(batch, sentence))[0], f"sentence {sentence} alone"
        )


def the_future_is_hidden(subject: Subject) -> None:
    """Changing y_t leaves the scores of earlier positions bit-identical.

    A model whose shapes depend on token values, as with experts, has the class attribute ``shapes_depend_on_tokens = True``;
    then differences up to 1e-5 are allowed.
    """
    model = subject.built
    allowed = 1e-5 if model.shapes_depend_on_tokens else 0.0
    batch = toy_batch(model, EVEN_SOURCE, EVEN_TARGET)
    before = torch.stack(all_log_probabilities(model, batch))  # [B, T, V]
    for position in range(1, batch.target_in.size(1)):
        after = torch.stack(all_log_probabilities(model, _with_other_words(batch, position)))
        change = (after - before)[:, :position].abs().max().item()
        assert change <= allowed, f"position {position} changed the scores before it by {change:.3g}"


def steps_equal_teacher_forcing(subject: Subject) -> None:
    """``step`` over t equals ``decode`` at t, for every hypothesis of a beam."""
    model = subject.built
    batch, beam = toy_batch(model, EVEN_SOURCE, EVEN_TARGET), 2
    expected = torch.stack(all_log_probabilities(model, batch)).repeat_interleave(beam, 0)  # [N, T, V]
    memory, state = _start(model, batch, beam)
    with torch.inference_mode():
        for position, tokens in enumerate(batch.target_in.repeat_interleave(beam, 0).unbind(1)):
            scores, state = step_scores(model, tokens, memory, state)
            assert_close(scores, expected[:, position], f"step {position} and decode")


def rows_commute_with_steps(subject: Subject) -> None:
    """A step after ``rows(p)`` is ``rows(p)`` after the step: p within sentences, or dropping whole sentences."""
    model = subject.built
    batch, beam = toy_batch(model, UNEVEN_SOURCE[:3], UNEVEN_TARGET[:3]), 3
    device = batch.source.device
    within = torch.tensor([2, 0, 0, 4, 4, 5, 7, 8, 6], device=device)
    dropping = torch.tensor([0, 1, 2, 6, 7, 8], device=device)
    memory, state = _start(model, batch, beam)
    words = _words(steps=5, rows=3 * beam).to(device)
    with torch.inference_mode():
        for tokens in words[:3]:
            _, state = step_scores(model, tokens, memory, state)
        _assert_commutes(model, words[3:], memory, memory, state, within)
        _assert_commutes(model, words[3:], memory, memory.rows(torch.tensor([0, 2], device=device)), state, dropping)


def attention_is_a_distribution(subject: Subject) -> None:
    """The attention of a step, if any, sums to 1 over the real source positions and is 0 at padding."""
    model = subject.built
    batch, beam = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET), 2
    memory, state = _start(model, batch, beam)
    lengths = batch.source_lengths.repeat_interleave(beam)
    padding = torch.arange(batch.source.size(1), device=lengths.device) >= lengths[:, None]  # [N, S]
    with torch.inference_mode():
        for tokens in _words(steps=3, rows=len(padding)).to(lengths.device):
            output = model.step(tokens, memory, state, attention=True)
            state = output.state
            if output.attention is None:
                continue
            assert_close(
                output.attention.sum(1), torch.ones(len(padding), device=lengths.device), "the sum of attention, and 1"
            )
            assert not output.attention[padding].any(), "padding is attended to"


def a_shortlist_selects_columns(subject: Subject) -> None:
    """``start`` with a vocabulary shortlist restricts scores to these ids, in their order."""
    model = subject.built
    batch = toy_batch(model, EVEN_SOURCE, EVEN_TARGET)
    shortlist = torch.tensor([EOS, 17, 5, 11, 6], device=batch.source.device)
    memory, state = _start(model, batch, 1)
    with torch.inference_mode():
        short_memory, short_state = model.start(model.encode(batch.source, batch.source_lengths), 1, shortlist)
        for tokens in _words(steps=3, rows=batch.num_sentences).to(shortlist.device):
            full, short = model.step(tokens, memory, state), model.step(tokens, short_memory, short_state)
            expected = full.scores[:, shortlist].log_softmax(-1)
            assert_close(short.scores.log_softmax(-1), expected, "scores over the shortlist")
            state, short_state = full.state, short.state


def sentences_have_shortlists_of_their_own(subject: Subject) -> None:
    """``start`` with a vocabulary shortlist for each sentence restricts its scores to these ids; padding has -inf."""
    model, beam = subject.built, 2
    batch = toy_batch(model, EVEN_SOURCE, EVEN_TARGET)
    sentences = batch.num_sentences
    lists = (
        torch.tensor([PAD, EOS, 17, 5, 11]).repeat(sentences, 1)
        + torch.tensor([0, 0, 1, 1, 1]) * torch.arange(sentences)[:, None]
    )
    lists[0, 4] = PAD
    lists = lists.to(batch.source.device)
    memory, state = _start(model, batch, beam)
    kept = torch.arange(1, sentences, device=lists.device)
    rows = torch.arange(beam, sentences * beam, device=lists.device)
    with torch.inference_mode():
        own_memory, own_state = model.start(model.encode(batch.source, batch.source_lengths), beam, lists)
        for turn, tokens in enumerate(_words(steps=3, rows=sentences * beam).to(lists.device)):
            if turn == 2:  # the first sentence leaves
                memory, own_memory, lists, tokens = memory.rows(kept), own_memory.rows(kept), lists[kept], tokens[rows]
                state, own_state = state.rows(rows), own_state.rows(rows)
            full, own = model.step(tokens, memory, state), model.step(tokens, own_memory, own_state)
            columns = lists.repeat_interleave(beam, 0)
            absent = (columns == PAD) & (torch.arange(columns.size(1), device=lists.device) > 0)
            expected = full.scores.gather(1, columns).masked_fill(absent, -torch.inf)
            assert_close(
                own.scores.softmax(-1), expected.softmax(-1), "probabilities over each sentence's own shortlist"
            )
            assert (own.scores[absent] == -torch.inf).all(), "the padding of a shortlist has a score"
            state, own_state = full.state, own.state


def batch_mates_never_matter(subject: Subject) -> None:
    """A sentence has the same translation alone and in any batch.

    Rounding may decide between translations of equal probability: different translations are accepted if their scores
    differ by at most 1e-4.
    """
    model = subject.built
    batch = toy_batch(model, SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=4, lenpen=0.0, max_len_b=5))
    for sentence, in_batch in enumerate(_best(search, model, batch)):
        single = single_sentence(batch, sentence)
        by_itself = _best(search, model, single)[0]
        if np.array_equal(in_batch.tokens, by_itself.tokens):
            scores = torch.from_numpy(in_batch.token_scores), torch.from_numpy(by_itself.token_scores)
            assert_close(*scores, f"token scores of sentence {sentence} in a batch")
        else:
            gap = abs(_forced(model, single, in_batch.tokens) - _forced(model, single, by_itself.tokens))
            assert gap <= TOLERANCE, (
                f"sentence {sentence} is translated {in_batch.tokens.tolist()} in a batch and "
                f"{by_itself.tokens.tolist()} alone; their scores differ by {gap:.3g}"
            )


def forced_scoring_equals_search(subject: Subject) -> None:
    """Forced scoring of a hypothesis gives the log-probabilities of beam search, token by token."""
    model = subject.built
    batch = toy_batch(model, SOURCE_LENGTHS, SOURCE_LENGTHS)
    search = searches.build(BeamConfig(beam_size=4, max_len_b=5), nbest=3)
    # By rank: the best hypotheses of all sentences, the second ones, ...
    for hypotheses in zip(*search_with(search, model, batch.source, batch.source_lengths)):
        targets = [torch.from_numpy(hypothesis.tokens) for hypothesis in hypotheses]
        forced = forced_scores(model, batch.source, batch.source_lengths, targets)
        for hypothesis, scores in zip(hypotheses, forced):
            own = torch.from_numpy(hypothesis.token_scores)
            assert_close(own, scores, "token scores of the beam and of forced scoring")
            total = torch.tensor(hypothesis.log_probability)
            assert_close(total, scores.sum(), "log-probability of the beam and of forced scoring")


def a_beam_of_one_is_greedy(subject: Subject) -> None:
    """Greedy search and a beam of one take the most probable token of each step, with or without attention."""
    model = subject.built
    batch = toy_batch(model, SOURCE_LENGTHS, SOURCE_LENGTHS)
    beam_hypotheses = _best(searches.build(BeamConfig(beam_size=1, max_len_b=5)), model, batch)
    search = searches.build(GreedyConfig(max_len_b=5))
    greedy_hypotheses = search_with(search, model, batch.source, batch.source_lengths, attention=True)
    most_probable = _most_probable(model, batch, max(len(hypothesis.tokens) for hypothesis in beam_hypotheses))
    for hypothesis, (greedy,), tokens in zip(beam_hypotheses, greedy_hypotheses, most_probable):
        assert hypothesis.tokens.tolist() == greedy.tokens.tolist(), (
            "beam 1 and greedy search find different translations"
        )
        length = len(hypothesis.tokens) - (0 if hypothesis.finished else 1)  # without the eos at the length limit
        assert hypothesis.tokens[:length].tolist() == tokens[:length], "greedy search takes less probable tokens"
        scores = torch.from_numpy(hypothesis.token_scores), torch.from_numpy(greedy.token_scores)
        assert_close(*scores, "token scores of beam 1 and of greedy search")


def _most_probable(model: EncoderDecoder, batch: Batch, steps: int) -> list[list[int]]:
    """Return the most probable token of each step, by sentence; tokens after eos are arbitrary."""
    memory, state = _start(model, batch, 1)
    tokens, best_tokens = torch.full_like(batch.source_lengths, BOS), list[Tensor]()
    for step in range(steps):
        with torch.inference_mode():
            scores, state = step_scores(model, tokens, memory, state)
        banned = torch.tensor([PAD, BOS] + [EOS] * (step == 0), device=scores.device)  # min_len=1
        scores = scores.index_fill(1, banned, -torch.inf)
        best_tokens.append(tokens := scores.argmax(1))
    return torch.stack(best_tokens, 1).cpu().tolist()


def a_wide_beam_is_exhaustive(subject: Subject) -> None:
    """On a toy vocabulary, a beam wider than all prefixes finds the most probable translations, best first."""
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
    batch = collate([source] * len(every), every).to(device_under(model))
    totals = torch.stack([scores.sum() for scores in target_log_probabilities(model, batch)])
    best = totals.topk(BEST).values.cpu()
    # Only the first K continuations can end, so K includes each word and eos after each prefix.
    wide = BeamConfig(
        beam_size=(len(words) + 1) ** longest, lenpen=0.0, max_len_a=0, max_len_b=longest, stop=StopRule.bound
    )
    hypotheses = search_with(searches.build(wide, nbest=BEST), model, batch.source[:1], batch.source_lengths[:1])[0]
    scores = torch.tensor([hypothesis.log_probability for hypothesis in hypotheses])
    assert_close(scores, best, f"the {BEST} best of a wide beam and of all translations")


def _assert_commutes(
    model: EncoderDecoder, words: Tensor, memory: Memory, kept_memory: Memory, state: DecoderState, index: Tensor
) -> None:
    """Require equal scores for ``rows`` before, between and after two steps."""
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
    """Return random words [steps, rows]; every row starts with bos."""
    words = torch.randint(len(SPECIALS), JOINT.target, (steps, rows), generator=torch.Generator().manual_seed(3))
    words[0] = BOS
    return words


def _with_other_words(batch: Batch, position: int) -> Batch:
    """Return the batch with another word at one position of every target."""
    target_in = batch.target_in.clone()
    target_in[:, position] = len(SPECIALS) + (target_in[:, position] + 1) % (JOINT.target - len(SPECIALS))
    return Batch(**{**vars(batch), "target_in": target_in})


def _best(search: Search, model: EncoderDecoder, batch: Batch) -> list[Hypothesis]:
    return [ranked[0] for ranked in search_with(search, model, batch.source, batch.source_lengths)]


def _forced(model: EncoderDecoder, batch: Batch, tokens: Ints) -> float:
    return float(forced_scores(model, batch.source, batch.source_lengths, [torch.from_numpy(tokens)])[0].sum())
