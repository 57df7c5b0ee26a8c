"""The entropy of token frequencies."""

from __future__ import annotations

import math

import numpy as np
import pytest

from nmt.data.corpus import frequencies
from nmt.data.corpus.frequencies import unigram_entropy
from nmt.data.vocabulary import Ids


class Rows:
    """Sentences in memory, as far as frequencies need them."""

    def __init__(self, *rows: list[int]) -> None:
        self._rows = [np.array(row) for row in rows]
        self.lengths = np.array([len(row) for row in rows])

    def __getitem__(self, index: int) -> Ids:
        return self._rows[index]


def test_it_is_that_of_the_shares_of_all_tokens_eos_included() -> None:
    shares = [3 / 8, 3 / 8, 1 / 8, 1 / 8]
    expected = -sum(share * math.log(share) for share in shares)
    assert unigram_entropy(Rows([4, 2], [4, 5, 2], [6, 4, 2])) == pytest.approx(expected)  # type: ignore[arg-type]


def test_a_large_corpus_is_sampled_from_its_first_to_its_last_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frequencies, "SAMPLE", 3)
    rows = Rows(*[[number] for number in range(9)])
    assert unigram_entropy(rows) == pytest.approx(math.log(3))  # type: ignore[arg-type]
