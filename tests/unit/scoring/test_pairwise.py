"""All pairs at once give sacreBLEU's figures for each pair."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.scoring import TextOptions
from nmt.scoring.pairwise import SIMILARITIES

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


def pair_by_pair(metric: str, texts: list[str], text: TextOptions) -> np.ndarray:
    if metric == "chrf":
        scorer = sacrebleu.CHRF(lowercase=text.lowercase)
    else:
        scorer = sacrebleu.BLEU(lowercase=text.lowercase, tokenize=text.tokenize, effective_order=True)
    return np.array([[scorer.sentence_score(one, [other]).score for other in texts] for one in texts])


@pytest.mark.parametrize("metric", SIMILARITIES)
@pytest.mark.parametrize("lowercase", [False, True])
def test_every_pair_scores_as_with_sacrebleu(metric: str, lowercase: bool) -> None:
    text = TextOptions(lowercase=lowercase)
    np.testing.assert_allclose(SIMILARITIES[metric](text)(TEXTS), pair_by_pair(metric, TEXTS, text), atol=1e-9)


@pytest.mark.parametrize("metric", SIMILARITIES)
@settings(max_examples=60)
@given(texts=st.lists(sentences, min_size=1, max_size=5))
def test_random_sentences_score_as_with_sacrebleu(metric: str, texts: list[str]) -> None:
    found = SIMILARITIES[metric](TextOptions())(texts)
    np.testing.assert_allclose(found, pair_by_pair(metric, texts, TextOptions()), atol=1e-9)
