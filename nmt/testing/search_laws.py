"""Laws of translating: what search finds depends on the sentence and the model, on nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from nmt.data.batch import Batch, collate
from nmt.data.vocabulary import EOS, SPECIALS, UNK, Ints
from nmt.interface import EncoderDecoder, Hypothesis, VocabularySizes
from nmt.search import Search, searches
from nmt.search.config import BeamConfig, GreedyConfig, StopRule
from nmt.search.forced import score_targets
from nmt.testing.subjects import Subject
from nmt.testing.toys import TOLERANCE, alone, assert_close, target_log_probabilities, toy_batch

SOURCE_LENGTHS = (2, 9, 5, 1, 12, 7)
FOUR_WORDS = VocabularySizes(source=8, target=8, shared=True)  # unk counts as a word: it may be produced
LONGEST = 3  # words of the exhaustive search: 5 + 25 + 125 translations
BEST = 10  # that many of them are compared


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


def _best(search: Search, model: EncoderDecoder, batch: Batch) -> list[Hypothesis]:
    return [ranked[0] for ranked in search(model, batch.source, batch.source_lengths)]


def _forced(model: EncoderDecoder, batch: Batch, tokens: Ints) -> float:
    return float(score_targets(model, batch.source, batch.source_lengths, [torch.from_numpy(tokens)])[0].sum())
