"""All pairs at once give sacreBLEU's figures for each pair."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st

from nmt.translation.choosing import SIMILARITIES

TEXTS = [
    "A dog runs across the field.",
    "A dog is running over the field .",
    "a DOG runs across the field!",
    "Zwei Männer, die \u201elaufen\u201c",
    "the the the the",
    "x",
    "",
    "  ",
]
sentences = st.lists(st.sampled_from(["a", "b", "ab", "A", ",", "dog", "\u00e4"]), max_size=8).map(" ".join)


def pair_by_pair(metric: str, texts: list[str]) -> np.ndarray:
    if metric == "chrf":
        scorer = sacrebleu.CHRF()
    else:
        scorer = sacrebleu.BLEU(effective_order=True)
    return np.array([[scorer.sentence_score(one, [other]).score for other in texts] for one in texts])


@pytest.mark.parametrize("metric", SIMILARITIES)
def test_every_pair_scores_as_with_sacrebleu(metric: str) -> None:
    np.testing.assert_allclose(SIMILARITIES[metric](TEXTS), pair_by_pair(metric, TEXTS), atol=1e-9)


@pytest.mark.parametrize("metric", SIMILARITIES)
@given(texts=st.lists(sentences, min_size=1, max_size=5))
def test_random_sentences_score_as_with_sacrebleu(metric: str, texts: list[str]) -> None:
    np.testing.assert_allclose(SIMILARITIES[metric](texts), pair_by_pair(metric, texts), atol=1e-9)
