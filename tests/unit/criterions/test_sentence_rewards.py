"""Sentence GLEU and BLEU over ids against counting n-grams, and against sacreBLEU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import pytest
import sacrebleu
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.criterions import sentence_rewards
from nmt.criterions.sentence_rewards import sentence_bleu, sentence_gleu

sentences = st.lists(st.integers(4, 7), max_size=9)
pairs = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=6)


def ngrams(sentence: Sequence[int], orders: Sequence[int]) -> Counter[tuple[int, ...]]:
    return Counter(
        tuple(sentence[start : start + order]) for order in orders for start in range(len(sentence) - order + 1)
    )


def slow_gleu(hypothesis: Sequence[int], reference: Sequence[int]) -> float:
    found, wanted = ngrams(hypothesis, (1, 2, 3, 4)), ngrams(reference, (1, 2, 3, 4))
    matches = (found & wanted).total()
    return min(matches / max(1, found.total()), matches / max(1, wanted.total()))


def padded(rows: Sequence[Sequence[int]], filling: int) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows)) + 1
    lengths = torch.tensor([len(row) for row in rows])
    return torch.tensor([[*row, *([filling] * (longest - len(row)))] for row in rows]), lengths


@settings(max_examples=150)
@given(pairs=pairs)
def test_gleu_is_the_smaller_of_precision_and_recall(pairs):
    found = sentence_gleu(*padded([one for one, _ in pairs], 4), *padded([other for _, other in pairs], 4))
    assert found.tolist() == pytest.approx([slow_gleu(*pair) for pair in pairs])


@settings(max_examples=100)
@given(pairs=pairs)
def test_bleu_is_that_of_sacrebleu_with_one_added(pairs):
    found = sentence_bleu(*padded([one for one, _ in pairs], 4), *padded([other for _, other in pairs], 4))
    for value, (hypothesis, reference) in zip(found.tolist(), pairs):
        assert value == pytest.approx(slow_bleu(hypothesis, reference), abs=1e-6)
        if len(hypothesis) >= 4 and reference and set(hypothesis) & set(reference):
            texts = [" ".join(map(str, sentence)) for sentence in (hypothesis, reference)]
            score = sacrebleu.sentence_bleu(
                texts[0], [texts[1]], smooth_method="add-k", smooth_value=1, tokenize="none", use_effective_order=False
            )
            assert value == pytest.approx(score.score / 100, abs=1e-5)


def slow_bleu(hypothesis: Sequence[int], reference: Sequence[int]) -> float:
    if not set(hypothesis) & set(reference):
        return 0.0
    logs = []
    for order in (1, 2, 3, 4):
        found, wanted = ngrams(hypothesis, (order,)), ngrams(reference, (order,))
        added = 0 if order == 1 else 1
        logs.append(math.log(((found & wanted).total() + added) / (found.total() + added)))
    return math.exp(sum(logs) / 4 + min(0.0, 1 - len(reference) / len(hypothesis)))


def test_the_same_sentence_has_the_reward_one_and_a_foreign_one_zero() -> None:
    ids, lengths = padded([[4, 5, 6, 7, 8], [4]], 0)
    foreign, foreign_lengths = padded([[9, 10], []], 0)
    for reward in (sentence_gleu, sentence_bleu):
        assert reward(ids, lengths, ids, lengths).tolist() == pytest.approx([1.0, 1.0])
        assert reward(foreign, foreign_lengths, ids, lengths).tolist() == [0.0, 0.0]


def test_repeating_a_matched_word_earns_nothing() -> None:
    once = sentence_gleu(*padded([[4, 9, 9, 9]], 0), *padded([[4, 5, 6, 7]], 0))
    often = sentence_gleu(*padded([[4, 4, 4, 4]], 0), *padded([[4, 5, 6, 7]], 0))
    assert once.item() == often.item() == pytest.approx(0.1)


def test_comparing_a_few_sentences_at_a_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 7, (2, 20, 9), generator=generator)
    lengths = torch.randint(0, 10, (2, 20), generator=generator)
    whole = sentence_gleu(ids[0], lengths[0], ids[1], lengths[1])
    monkeypatch.setattr(sentence_rewards, "_COMPARISONS", 500)
    assert torch.equal(sentence_gleu(ids[0], lengths[0], ids[1], lengths[1]), whole)
