"""The fast choice of continuations equals sorting everything."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.engines import model_engine, torch_scores
from nmt.engines.model_engine import scores_of
from nmt.native.library import library

BANNED = (0, 2)


@pytest.fixture(params=["C", "torch", "row by row"], autouse=True, scope="module")
def ranked_by(request):
    """The same in C, where that was built, and in torch, which sums up a large vocabulary row by row."""
    if request.param == "C" and library() is None:
        pytest.skip("the C part was not built: no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "C":
            patch.setattr(model_engine, "library", lambda: None)
        if request.param == "row by row":
            patch.setattr(torch_scores, "_CACHED_NUMBERS", 0)
        yield


def best(scores, totals, count: int, *, eos_allowed: bool, normalized: bool = False):
    step = scores_of(torch.as_tensor(scores), None, normalized=normalized)
    return step.best(np.asarray(totals, dtype=np.float32), count, BANNED if eos_allowed else (*BANNED, 3))


def by_sorting(scores: np.ndarray, totals: np.ndarray, count: int, eos_allowed: bool) -> list[list[tuple]]:
    """(total, parent, token) of each sentence, by value, then parent, then token."""
    beam, results = totals.shape[1], []
    for sentence, of_sentence in enumerate(totals):
        found = [
            (np.float32(scores[sentence * beam + parent, token] + of_sentence[parent]), parent, token)
            for parent in range(beam)
            for token in range(scores.shape[1])
            if token not in BANNED and (eos_allowed or token != 3)
        ]
        results.append(sorted(found, key=lambda one: (-one[0], one[1], one[2]))[:count])
    return results


@given(
    batch=st.integers(1, 3),
    beam=st.integers(1, 4),
    vocabulary=st.sampled_from([5, 20, 63, 64, 65, 128, 200, 700]),
    levels=st.sampled_from([1, 3, 1000]),
    eos_allowed=st.booleans(),
    loud_banned=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_candidates_are_those_of_a_full_sort_even_with_ties(
    batch, beam, vocabulary, levels, eos_allowed, loud_banned, seed
):
    random = np.random.default_rng(seed)
    scores = random.integers(0, levels, size=(batch * beam, vocabulary)).astype(np.float32)  # few levels: many ties
    scores[:, [0, 2, 3]] += 5000.0 * loud_banned  # what must not be chosen may still score best
    totals = -random.integers(0, levels, size=(batch, beam)).astype(np.float32)
    found = best(scores.copy(), totals, 2 * beam, eos_allowed=eos_allowed, normalized=True)
    for row, expected in enumerate(by_sorting(scores, totals, 2 * beam, eos_allowed)):
        real = len(expected)
        assert found.totals[row, :real].tolist() == [one[0] for one in expected]
        assert found.parents[row, :real].tolist() == [one[1] for one in expected]
        assert found.tokens[row, :real].tolist() == [one[2] for one in expected]
        assert found.totals[row, real:].tolist() == [-np.inf] * (2 * beam - real)


@pytest.mark.parametrize("vocabulary", [5, 64, 100, 1000])
def test_normaliser_is_the_log_sum_exp_of_each_row(vocabulary):
    scores = torch.randn(6, vocabulary, generator=torch.Generator().manual_seed(1)) * 50  # whose powers are no float32
    step, zeroth = scores_of(scores, None, normalized=False), np.zeros(6, dtype=np.int64)
    normaliser = scores[:, 0] - torch.from_numpy(step.log_probability(zeroth, np.arange(6)))
    torch.testing.assert_close(normaliser, scores.double().logsumexp(1).float(), rtol=1e-6, atol=1e-5)


def test_empty_slots_continue_nothing():
    found = best(torch.randn(2, 100), [[0.0, -np.inf]], 4, eos_allowed=True)
    assert found.parents.tolist() == [[0, 0, 0, 0]]


def test_scores_of_the_step_are_left_as_they_were():
    scores = torch.randn(4, 130)
    before = scores.clone()
    best(scores, np.zeros((2, 2)), 4, eos_allowed=False)
    assert torch.equal(scores, before)


def test_banned_tokens_that_score_best_hide_no_other_token():
    scores = torch.zeros(1, 700)
    scores[0, [0, 2, 3]] = 100.0  # pad, bos and eos, in the first block of the vocabulary
    scores[0, [300, 600]] = torch.tensor([2.0, 1.0])  # in two others
    assert best(scores, np.zeros((1, 1)), 2, eos_allowed=False).tokens.tolist() == [[300, 600]]


def test_what_is_no_number_or_forbidden_is_never_chosen():
    scores = torch.zeros(1, 70)
    scores[0, [5, 65]] = torch.tensor([-float("inf"), 1.0])
    found = best(scores, np.zeros((1, 1)), 70, eos_allowed=True, normalized=True)
    real = found.tokens[found.totals > -np.inf].tolist()
    assert real == [65, *(token for token in range(70) if token not in (0, 2, 5, 65))]


def test_scores_that_are_no_numbers_make_totals_none():
    """Of their sentence alone, whichever hypothesis has them."""
    for wrong in (0, 1):
        scores = torch.randn(4, 70)
        scores[wrong, 69] = float("nan")
        found = best(scores, np.zeros((2, 2)), 4, eos_allowed=True)
        assert np.isnan(found.totals[0]).any() and np.isfinite(found.totals[1]).all()


def test_log_probabilities_are_those_of_the_tokens_chosen():
    scores = torch.randn(4, 70)
    found = best(scores, -np.arange(4).reshape(2, 2), 6, eos_allowed=True)
    expected = scores.log_softmax(1).view(2, 2, 70)
    for sentence in range(2):
        chosen = expected[sentence, found.parents[sentence], found.tokens[sentence]]
        np.testing.assert_allclose(found.log_probabilities[sentence], chosen, atol=1e-6)
