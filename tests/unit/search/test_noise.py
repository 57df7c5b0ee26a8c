"""Random numbers by hash: uniform, unrelated to each other, and a function of their purpose alone."""

from __future__ import annotations

import numpy as np

from nmt.search.sampling import sample_keys, sentence_keys, uniform

SOURCES = [np.array(ids) for ids in ([4, 5, 6, 3], [4, 5, 3], [5, 4, 3])]


def mixed_slowly(number: int) -> int:
    """SplitMix64's mixing function with Python's integers."""
    number %= 2**64
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % 2**64
    return number ^ (number >> 31)


def test_a_number_is_the_hash_of_its_key_and_step() -> None:
    keys = [0, 1, -1, 2**62, -(2**63), 123456789]
    for step in (0, 1, 77):
        hashes = [mixed_slowly(key + step * 0x9E3779B97F4A7C15) for key in keys]
        expected = [(number >> 16) / 2**48 for number in hashes]
        assert uniform(np.array([key % 2**64 for key in keys], dtype=np.uint64), step).tolist() == expected


def test_the_numbers_of_neighbouring_keys_and_steps_are_uniform_and_unrelated() -> None:
    keys = sample_keys(sentence_keys(SOURCES, seed=1), 5000)  # [3, 5000]
    numbers = np.stack([uniform(keys, step) for step in range(1, 9)]).reshape(24, 5000)
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    counts = np.stack([np.histogram(row, bins=20, range=(0, 1))[0] for row in numbers])
    chi_square = ((counts - 250) ** 2 / 250).sum(1)  # 19 degrees of freedom: mean 19, deviation 6.2
    assert 17 < chi_square.mean() < 21 and chi_square.max() < 45
    correlations = np.corrcoef(numbers) - np.eye(24)  # deviation 0.014
    assert np.abs(correlations).max() < 0.07
    between_samples = [np.corrcoef(row[:-1], row[1:])[0, 1] for row in numbers]
    assert np.abs(between_samples).max() < 0.06


def test_a_sentences_key_depends_on_its_own_pieces_and_their_order_alone() -> None:
    keys = sentence_keys(SOURCES, seed=1)
    assert len(set(keys.tolist())) == 3
    assert keys[1] == sentence_keys(SOURCES[1:2], seed=1)[0]


def test_every_seed_has_keys_of_its_own() -> None:
    keys = np.concatenate([sentence_keys(SOURCES, seed) for seed in (0, 1, 2, -1, 2**62)])
    assert len(set(keys.tolist())) == 15


def test_more_samples_leave_the_first_ones_as_they_were() -> None:
    keys = sentence_keys(SOURCES, seed=1)
    assert np.array_equal(sample_keys(keys, 9)[:, :3], sample_keys(keys, 3))
