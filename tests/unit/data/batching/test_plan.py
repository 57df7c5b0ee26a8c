"""Batches: every sentence once, within the budget, in an order that is a function of the arguments alone."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nmt.data.batching.ordering
import nmt.data.batching.plan
import nmt.data.corpus.lengths
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import BatchingConfig
from nmt.data.batching.plan import BatchPlan, plan_batches, split_batch
from nmt.data.corpus.folder import Corpus, Split
from nmt.data.corpus.lengths import StoredLengths
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.vocabulary import Ints
from nmt.errors import DataError
from nmt.preprocessing.preprocess import preprocess

DATA = Path(os.environ.get("NMT_DATA", Path(__file__).parents[5] / "shared" / "data"))

LENGTH = st.integers(1, 60)
LENGTHS = st.lists(st.tuples(LENGTH, LENGTH), max_size=80)
LIMITS = ("max_tokens", "max_source_tokens", "max_target_tokens", "batch_size")
OPTIONS = st.fixed_dictionaries(
    {
        "max_tokens": st.none() | st.integers(60, 400),
        "max_source_tokens": st.none() | st.integers(60, 400),
        "max_target_tokens": st.none() | st.integers(60, 400),
        "batch_size": st.none() | st.integers(1, 20),
        "seed": st.integers(0, 3),
        "epoch": st.integers(1, 3),
        "shuffle": st.booleans(),
        "sort_window": st.none() | st.integers(1, 90),
        "count_padding": st.booleans(),
    }
).filter(lambda options: any(options[name] for name in LIMITS))


def sides(lengths: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    table = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def exceeds(lengths: npt.NDArray[np.int64], options: dict[str, Any]) -> bool:
    """Whether sentences of such lengths [2, sentences] take more than a batch may."""
    for name, side in zip(("max_source_tokens", "max_target_tokens"), lengths):
        limit = options[name] if options[name] is not None else options["max_tokens"]
        cost = len(side) * int(side.max()) if options["count_padding"] else int(side.sum())
        if limit is not None and cost > limit:
            return True
    return options["batch_size"] is not None and lengths.shape[1] > options["batch_size"]


def plan(
    source: Ints, target: Ints | None, *, seed: int = 1, epoch: int = 1, shuffle: bool = True, **options: Any
) -> BatchPlan:
    return plan_batches(source, target, BatchingConfig(**options), seed, epoch, shuffle)


def numbers(batches: Iterable[npt.NDArray[np.int64]]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@given(LENGTHS, OPTIONS)
def test_every_sentence_is_in_exactly_one_batch(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    batches = plan(*sides(lengths), **options)
    assert sorted(number for batch in batches for number in batch) == list(range(len(lengths)))
    assert all(len(batch) for batch in batches)


@given(LENGTHS, OPTIONS)
def test_no_batch_exceeds_its_budget_on_either_side(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    table = np.stack(sides(lengths))
    assert not any(exceeds(table[:, batch], options) for batch in plan(*table, **options))


@given(LENGTHS, OPTIONS)
def test_no_batch_could_have_taken_the_next_sentence(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    table = np.stack(sides(lengths))
    batches = plan(*table, **(options | {"shuffle": False}))
    for batch, following in zip(batches, batches[1:]):
        assert exceeds(table[:, np.append(batch, following[0])], options)


@given(LENGTHS, OPTIONS)
def test_the_size_of_the_blocks_in_which_sentences_are_looked_at_changes_nothing(
    lengths: list[tuple[int, int]], options: dict[str, Any]
) -> None:
    whole = numbers(plan(*sides(lengths), **options))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nmt.data.corpus.lengths, "BLOCK", 7)
        patch.setattr(nmt.data.batching.plan, "BLOCK", 7)
        patch.setattr(nmt.data.batching.ordering, "GROUP", 5)
        assert numbers(plan(*sides(lengths), **options)) == whole


@given(LENGTHS.filter(len), st.integers(0, 3))
def test_only_the_chosen_sentences_are_batched_as_often_as_they_are_chosen(
    lengths: list[tuple[int, int]], seed: int
) -> None:
    chosen = np.random.RandomState(seed).randint(0, len(lengths), 50).astype(np.uint32)
    expected = sorted(chosen.tolist())
    batches = plan_batches(*sides(lengths), BatchingConfig(100), seed, chosen=chosen)
    assert sorted(number for batch in batches for number in batch.tolist()) == expected


@given(LENGTHS, OPTIONS)
def test_the_plan_is_a_pure_function(lengths: list[tuple[int, int]], options: dict[str, Any]) -> None:
    source, target = sides(lengths)
    before = source.copy(), target.copy()
    np.random.seed(len(lengths))
    first = numbers(plan(source, target, **options))
    np.random.seed(0)
    assert numbers(plan(source, target, **options)) == first
    assert (source == before[0]).all() and (target == before[1]).all()


@given(LENGTHS)
def test_without_shuffling_lengths_ascend_and_ties_keep_the_order_of_the_corpus(lengths: list[tuple[int, int]]) -> None:
    batches = plan(*sides(lengths), max_tokens=300, batch_size=None, shuffle=False)
    order = [number for batch in numbers(batches) for number in batch]
    assert order == sorted(range(len(lengths)), key=lambda number: (*lengths[number], number))


@pytest.mark.parametrize("changed", [{"seed": 2}, {"epoch": 2}])
def test_another_seed_or_epoch_gives_other_batches_in_another_order(changed: dict[str, int]) -> None:
    lengths = np.random.RandomState(1).randint(1, 20, size=(500, 2))
    options: dict[str, Any] = {"max_tokens": 200, "batch_size": None, "seed": 1, "epoch": 1}
    one = numbers(plan(lengths[:, 0], lengths[:, 1], **options))
    other = numbers(plan(lengths[:, 0], lengths[:, 1], **(options | changed)))
    assert one != other
    assert {frozenset(batch) for batch in one} != {frozenset(batch) for batch in other}


def test_a_window_of_the_size_of_a_batch_mixes_lengths() -> None:
    lengths = np.repeat(np.arange(1, 11, dtype=np.int64), 20)
    plans = {
        window: plan(lengths, lengths, max_tokens=None, batch_size=20, sort_window=window) for window in (None, 20)
    }
    kinds = {
        window: np.mean([len(np.unique(lengths[batch])) for batch in batches]) for window, batches in plans.items()
    }
    assert kinds[None] == 1 and kinds[20] > 5


def test_shuffled_batches_do_not_come_in_order_of_length() -> None:
    lengths = np.arange(1, 200)
    firsts = [int(batch[0]) for batch in plan(lengths, lengths, max_tokens=400, batch_size=None)]
    assert firsts != sorted(firsts)


def test_the_order_is_the_same_in_every_version_of_numpy() -> None:
    lengths = np.full(8, 3)
    batches = plan(lengths, lengths, max_tokens=6, batch_size=None, seed=7, epoch=2)
    raw = np.random.PCG64(np.random.SeedSequence((7, 2, 0))).random_raw(8).tolist()
    drawn = sorted(range(8), key=lambda number: raw[number])
    assert sorted(numbers(batches)) == sorted(drawn[start : start + 2] for start in range(0, 8, 2))


def test_sources_alone_are_batched_by_their_lengths() -> None:
    lengths = np.array([5, 1, 3, 1])
    batches = plan(lengths, None, max_tokens=6, batch_size=None, shuffle=False)
    assert numbers(batches) == [[1, 3], [2], [0]]


def test_without_padding_counted_batches_are_of_one_size() -> None:
    lengths = np.random.RandomState(1).randint(1, 60, size=(5000, 2))
    batches = plan(*lengths.T, max_tokens=2000, batch_size=None, shuffle=False, count_padding=False)
    sizes = [int(lengths[batch].sum(0).max()) for batch in batches]
    assert all(2000 - 60 < size <= 2000 for size in sizes[:-1])
    alone = plan(lengths[:, 0], None, max_tokens=2000, batch_size=None, shuffle=False, count_padding=False)
    assert all(2000 - 60 < lengths[batch, 0].sum() <= 2000 for batch in alone[:-1])


def test_a_pair_that_cannot_fit_is_named_with_what_to_raise() -> None:
    with pytest.raises(
        DataError, match=r"sentence 1 .* 3 source and 12 target tokens, .* 1 of 2 .*--max-tokens\) to 12"
    ):
        plan(np.array([2, 3]), np.array([2, 12]), max_tokens=10, batch_size=None)


def test_long_pairs_can_be_left_out() -> None:
    batches = plan(np.array([2, 3]), np.array([2, 12]), max_tokens=10, batch_size=None, skip_long=True)
    assert numbers(batches) == [[0]]


def test_leaving_out_everything_is_an_error() -> None:
    with pytest.raises(DataError, match="2 of 2 do not fit"):
        plan(np.array([20, 30]), np.array([2, 12]), max_tokens=10, batch_size=None, skip_long=True)


def test_the_limit_of_the_side_that_is_exceeded_is_named() -> None:
    with pytest.raises(
        DataError, match=r"\(max_target_tokens=10\); 1 of 2 .*raise max_target_tokens \(--max-target-tokens\)"
    ):
        plan(np.array([2, 30]), np.array([2, 12]), max_tokens=40, max_target_tokens=10)
    with pytest.raises(
        DataError, match=r"raise max_source_tokens .* to 30 and raise max_tokens \(--max-tokens\) to 12"
    ):
        plan(np.array([2, 30]), np.array([2, 12]), max_tokens=10, max_source_tokens=20)


def test_each_side_has_a_budget_of_its_own() -> None:
    lengths = np.random.RandomState(1).randint(1, 60, size=(5000, 2))
    options = {"max_tokens": None, "max_source_tokens": 4000, "max_target_tokens": 2000, "count_padding": False}
    sums = [lengths[batch].sum(0) for batch in plan(*lengths.T, shuffle=False, **options)]
    assert all(target > 2000 - 60 or source > 4000 - 60 for source, target in sums[:-1])
    assert max(source for source, _ in sums) <= 4000 and max(target for _, target in sums) <= 2000


def padding(batches: Iterable[Ints], *columns: Ints) -> float:
    """The share of all positions, on both sides together."""
    batches = list(batches)
    positions = sum(len(batch) * int(column[batch].max()) for batch in batches for column in columns)
    return 1 - sum(int(column[batch].sum()) for batch in batches for column in columns) / positions


@given(LENGTHS.filter(len), st.sampled_from([0.0, 0.05, 0.3, 0.9]))
def test_parts_of_a_batch_hold_its_sentences_with_no_more_padding_than_allowed(
    lengths: list[tuple[int, int]], most: float
) -> None:
    table, batch = sides(lengths), np.arange(len(lengths))[::-1].copy()
    parts = split_batch(batch, table, most)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(lengths)))
    assert padding(parts, *table) <= most + 1e-9
    assert len(parts) == 1 or padding([batch], *table) > most


def test_a_batch_is_cut_where_that_saves_most() -> None:
    lengths = np.array([9, 2, 2, 3, 9])
    assert [part.tolist() for part in split_batch(np.arange(5), [lengths, lengths], 0.1)] == [[1, 2, 3], [0, 4]]


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "multi30k_tok").is_dir(), reason=f"no Multi30k in {DATA} (set NMT_DATA)")
def test_batches_of_the_paper_have_little_padding_on_multi30k_and_come_in_random_order(tmp_path: Path) -> None:
    """About 25,000 source and 25,000 target tokens, less than 5 % padding in what is computed at once."""
    train = multi30k(tmp_path)
    columns = np.asarray(train.source_lengths), np.asarray(train.target_lengths)
    options = BatchingConfig(max_source_tokens=25_000, max_target_tokens=25_000, count_padding=False)
    batches = list(plan_batches(*columns, options))
    fullest = [max(int(column[batch].sum()) for column in columns) for batch in batches]
    assert max(fullest) <= 25_000 and np.median(fullest) > 24_000
    firsts = [int(columns[0][batch].min()) for batch in batches]
    assert firsts != sorted(firsts)
    parts = [part for batch in batches for part in split_batch(batch, columns, 0.05)]
    assert padding(parts, *columns) < 0.05 < padding(batches, *columns)
    assert len(parts) < 8 * len(batches)


def multi30k(folder: Path) -> Split:
    """Words in place of pieces: a tokenizer would take longer to train than all of this."""
    for language in ("en", "de"):
        packed = DATA / "multi30k_tok" / f"train.lc.norm.tok.{language}.gz"
        (folder / f"train.{language}").write_bytes(gzip.decompress(packed.read_bytes()))
    preprocess(
        PreprocessConfig("en", "de", str(folder / "train"), destdir=str(folder / "corpus"), tokenizer=WordsConfig())
    )
    return Corpus.open(folder / "corpus").split("train")


@pytest.mark.slow
def test_a_plan_takes_some_bytes_a_sentence_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four for the order, and four while it is sorted."""
    monkeypatch.setattr(nmt.data.corpus.lengths, "BLOCK", 2**12)
    monkeypatch.setattr(nmt.data.batching.plan, "BLOCK", 2**12)
    monkeypatch.setattr(nmt.data.batching.ordering, "GROUP", 2**12)
    count = 400_000
    lengths = StoredLengths(np.cumsum(np.append(0, np.random.RandomState(1).randint(3, 40, count))))
    tracemalloc.start()
    batches = plan_batches(lengths, lengths, BatchingConfig(4096))
    left, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(batches) > 1000 and left < 4.5 * count and most < 9 * count
