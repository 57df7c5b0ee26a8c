"""Choosing among translations against its definition, in plain Python with sacreBLEU, for random n-best lists."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import sacrebleu
from hypothesis import example, given
from hypothesis import strategies as st

from nmt.config.commands import GenerateConfig
from nmt.config.translation import TranslationOptions
from nmt.search.config import BeamConfig
from nmt.translation import Line, TranslatedText, Translation
from nmt.translation.choosing import ReverseModel, minimum_bayes_risk
from tests.unit.search.toy import told_apart

texts = st.lists(st.sampled_from(["a", "b", "dog", "dogs", "cat,", "."]), min_size=1, max_size=6).map(" ".join)
scores = st.floats(-6.0, -0.1).map(lambda score: round(score, 3))
found = st.lists(st.tuples(texts, scores), min_size=1, max_size=6)


def hypothesis(text: str, score: float) -> TranslatedText:
    return TranslatedText(text, text.split(), score, [score], None, True)


def similarity(metric: str, text: str, reference: str) -> float:
    scorer = sacrebleu.CHRF() if metric == "chrf" else sacrebleu.BLEU(effective_order=True)
    return float(scorer.sentence_score(text, [reference]).score)


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
@example(nbest=[("a", -1.0), ("a a a a a a", -1.0), ("a a a a a b", -1.0)], posterior=False, count=3)  # a tie
@given(nbest=found, posterior=st.booleans(), count=st.integers(1, 6))
def test_the_least_risk_is_the_highest_expected_similarity(
    metric: str, nbest: list[tuple[str, float]], posterior: bool, count: int
) -> None:
    weights = [math.exp(score) if posterior else 1.0 for _, score in nbest]
    expected = [
        sum(weight * similarity(metric, text, other) for weight, (other, _) in zip(weights, nbest)) / sum(weights)
        for text, _ in nbest
    ]
    told_apart(expected)
    line = Translation(0, "x", ["x"], [hypothesis(*one) for one in nbest])
    (chosen,) = minimum_bayes_risk([line], metric, count, posterior=posterior)
    best = sorted(zip((text for text, _ in nbest), expected), key=lambda one: -round(one[1], 9))[:count]
    assert [one.text for one in chosen.hypotheses] == [text for text, _ in best]
    assert [one.score for one in chosen.hypotheses] == pytest.approx([score for _, score in best], abs=1e-6)


@given(
    lines=st.lists(
        st.lists(st.tuples(texts, scores), min_size=1, max_size=5, unique_by=lambda one: one[0]), min_size=1, max_size=4
    ),
    weight=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
    count=st.integers(1, 5),
    backward=st.randoms(use_true_random=False),
)
def test_reranking_sorts_by_the_sum_of_both_directions(lines, weight, count, backward):
    """Whatever the model of the other direction finds of a pair."""
    found_of: dict[tuple[str, str], float] = {}

    def score(asked: Iterator[Line], numbers: Iterator[int], config: TranslationOptions) -> Iterator[Translation]:
        for line, number in zip(asked, numbers):
            pair = line.text, line.reference
            found_of.setdefault(pair, round(backward.uniform(-6.0, 0.0), 3))
            yield Translation(number, line.text, line.text.split(), [hypothesis(line.reference, found_of[pair])])

    given = [
        Translation(number, f"line {number}", ["x"], [hypothesis(*one) for one in nbest])
        for number, nbest in enumerate(lines)
    ]
    config = GenerateConfig(rerank="back", nbest=count, search=BeamConfig())
    for number, (chosen, nbest) in enumerate(zip(ReverseModel(score, weight, config)(given), lines, strict=True)):
        sums = {text: forward + weight * found_of[text, f"line {number}"] for text, forward in nbest}
        told_apart(sums.values())
        best = sorted(sums, key=lambda text: -sums[text])[:count]
        assert [one.text for one in chosen.hypotheses] == best
        assert [one.score for one in chosen.hypotheses] == pytest.approx([sums[text] for text in best])
