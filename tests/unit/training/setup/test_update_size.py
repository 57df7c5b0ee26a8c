"""Updates of a given size: how many batches they are made of, and what is said of it."""

from __future__ import annotations

import logging

import pytest

from nmt.config.sections import BatchingConfig
from nmt.errors import UsageError
from nmt.training.setup.announcements import tell_update, update_in_words

PAPER = BatchingConfig(max_tokens=3125, count_padding=False, tokens_per_update=25_000)


@pytest.mark.parametrize(("processes", "batches"), [(1, 8), (2, 4), (4, 2), (8, 1)])
def test_the_papers_update_is_the_same_on_one_to_eight_processes(processes: int, batches: int) -> None:
    assert PAPER.accumulation(processes) == batches
    assert PAPER.accumulation(processes) * processes * 3125 == 25_000


@pytest.mark.parametrize(("processes", "batches"), [(3, 3), (5, 2), (6, 1), (7, 1), (16, 1), (100, 1)])
def test_of_sizes_that_do_not_divide_the_nearest_is_taken(processes: int, batches: int) -> None:
    assert PAPER.accumulation(processes) == batches
    distances = {count: abs(count * processes * 3125 - 25_000) for count in range(1, 10)}
    assert distances[batches] == min(distances.values())


def test_without_a_size_batches_are_counted_as_given() -> None:
    assert BatchingConfig(update_freq=3).accumulation(8) == 3
    assert BatchingConfig(max_tokens=None, batch_size=80).accumulation(2) == 1


def test_the_side_that_may_have_more_is_counted() -> None:
    of_sides = BatchingConfig(None, max_source_tokens=500, max_target_tokens=1000, tokens_per_update=8000)
    assert of_sides.accumulation(2) == 4
    assert BatchingConfig(None, max_target_tokens=1000, tokens_per_update=8000).accumulation(1) == 8


def test_a_size_of_updates_excludes_a_number_of_batches() -> None:
    with pytest.raises(UsageError, match="tokens_per_update=25000 sets the number .* omit --update-freq 4"):
        BatchingConfig(tokens_per_update=25_000, update_freq=4)


def test_a_size_of_updates_needs_batches_bounded_in_tokens() -> None:
    with pytest.raises(UsageError, match="tokens_per_update=25000 needs a limit of micro-batches in tokens"):
        BatchingConfig(None, batch_size=80, tokens_per_update=25_000)


@pytest.mark.parametrize(
    ("processes", "words"),
    [
        (1, "8 micro-batches of up to 3,125 tokens on 1 process: 25,000 tokens"),
        (8, "1 micro-batch of up to 3,125 tokens on each of 8 processes: 25,000 tokens"),
        (
            3,
            "3 micro-batches of up to 3,125 tokens on each of 3 processes: 28,125 tokens, the closest to "
            "--tokens-per-update 25000; with micro-batches of up to 2,777 tokens it would be 24,993",
        ),
    ],
)
def test_what_an_update_is_made_of_is_said_in_one_sentence(processes: int, words: str) -> None:
    assert update_in_words(PAPER, processes) == words


@pytest.mark.parametrize(("processes", "level"), [(4, logging.INFO), (5, logging.WARNING), (16, logging.WARNING)])
def test_an_update_that_is_far_from_its_size_is_a_warning(
    processes: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Five processes make 31,250 tokens of 25,000, sixteen 50,000."""
    with caplog.at_level(logging.INFO, "nmt.training"):
        tell_update(PAPER, processes)
    assert [record.levelno for record in caplog.records] == [level]


def test_nothing_is_said_of_updates_without_a_size(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nmt.training"):
        tell_update(BatchingConfig(update_freq=4), 2)
    assert not caplog.records
