"""A search over short lists is the search of a model whose other pieces are impossible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.vocabulary import EOS, SPECIALS
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.search import searches
from nmt.search.config import StopRule
from nmt.search.requests import Request, in_ids, in_places
from nmt.testing.subjects import ensemble_of, search_with

SIZES = VocabularySizes(source=30, target=40, shared=False)
SOURCE = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, 0], [10, EOS, 0, 0]])
LENGTHS = torch.tensor([4, 3, 2])
LISTS = [np.array([0, 1, 2, 3, *more]) for more in ([5, 9, 11, 30, 39], [4, 7], [6, 8, 9, 20, 21, 22])]


def build(name: str, seed: int = 4) -> EncoderDecoder:
    torch.manual_seed(seed)
    return models.build(models.config_class(name)().shrink(), SIZES).eval()  # type: ignore[attr-defined]


class Impossible:
    """A model that gives every other piece the probability 0, one sentence at a time."""

    def __init__(self, model: EncoderDecoder, pieces: np.ndarray) -> None:
        self._model = model
        self._absent = torch.ones(SIZES.target, dtype=torch.bool)
        self._absent[pieces] = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def step(self, *arguments: object) -> object:
        output = self._model.step(*arguments)  # type: ignore[arg-type]
        return type(output)(output.scores.masked_fill(self._absent, -torch.inf), False, output.state, output.attention)


@pytest.mark.parametrize("name", ["transformer", "conv_s2s", "lstm"])
@pytest.mark.parametrize(
    ("search", "options", "nbest"),
    [("beam", {"beam_size": 3}, 2), ("greedy", {}, 1), ("diverse_beam", {"beam_size": 4, "groups": 2}, 2)],
)
def test_the_rest_of_the_vocabulary_is_impossible(name: str, search: str, options: dict[str, int], nbest: int) -> None:
    assert_as_if_impossible(build(name), LISTS, search, options, nbest)


@pytest.mark.parametrize("search", ["beam", "sampling"])
def test_members_of_an_ensemble_have_the_same_lists(search: str) -> None:
    model, find = build("transformer"), searches.build(searches.config_class(search)(), 1)
    twice = search_with(find, ensemble_of([model, model]), SOURCE, LENGTHS, lists=LISTS)
    for (one,), (other,) in zip(twice, search_with(find, model, SOURCE, LENGTHS, lists=LISTS)):
        assert one.tokens.tolist() == other.tokens.tolist()
        np.testing.assert_allclose(one.token_scores, other.token_scores, atol=1e-5)


some_pieces = st.sets(st.integers(len(SPECIALS), SIZES.target - 1), min_size=1, max_size=12)


@pytest.mark.slow
@given(
    name=st.sampled_from(["transformer", "conv_s2s", "lstm"]),
    seed=st.integers(0, 10**6),
    pieces=st.lists(some_pieces, min_size=len(LENGTHS), max_size=len(LENGTHS)),
    beam=st.integers(1, 5),
    stop=st.sampled_from(StopRule),
    data=st.data(),
)
def test_the_rest_of_the_vocabulary_of_any_model_is_impossible(name, seed, pieces, beam, stop, data):
    lists = [np.array([*range(len(SPECIALS)), *sorted(more)]) for more in pieces]
    options = {"beam_size": beam, "stop": stop, "max_len_b": 4}
    assert_as_if_impossible(build(name, seed), lists, "beam", options, data.draw(st.integers(1, beam)))


def assert_as_if_impossible(
    model: EncoderDecoder, lists: list[np.ndarray], search: str, options: dict[str, Any], nbest: int
) -> None:
    find = searches.build(searches.config_class(search)(**options), nbest)
    together = in_ids(search_with(find, model, SOURCE, LENGTHS, lists=lists), lists)
    for row, pieces in enumerate(lists):
        alone = search_with(
            find, Impossible(model, pieces), SOURCE[row : row + 1, : LENGTHS[row]], LENGTHS[row : row + 1]
        )[0]
        for one, other in zip(together[row], alone, strict=True):
            assert one.tokens.tolist() == other.tokens.tolist()
            assert one.score == pytest.approx(other.score, abs=1e-4)
            assert set(one.tokens.tolist()) <= set(pieces.tolist())


def test_what_is_asked_for_keeps_its_meaning() -> None:
    asked = in_places(
        [
            Request(prefix=(9, 30), include=((39,),), exclude=((5, 9), (17,))),
            Request(min_length=2, max_length=3),
            Request(include=((8, 20),)),
        ],
        LISTS,
    )
    assert asked == [
        Request(prefix=(5, 7), include=((8,),), exclude=((4, 5),)),  # what it could not say need not be forbidden
        Request(min_length=2, max_length=3),
        Request(include=((5, 7),)),
    ]
    beam = searches.build(searches.config_class("beam")(beam_size=3), 1)
    found = in_ids(search_with(beam, build("lstm"), SOURCE, LENGTHS, requests=asked, lists=LISTS), LISTS)
    assert found[0][0].tokens[:2].tolist() == [9, 30] and 39 in found[0][0].tokens.tolist()
    assert 2 <= len(found[1][0].tokens) - 1 <= 3
    assert "8 20" in " ".join(map(str, found[2][0].tokens.tolist()))
    assert len(SPECIALS) == 4
