"""What is read is shared out among the processes, and comes back in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from nmt.distributed.world import Chunks, World


class Thread(World):
    """One of several processes, as a thread of this one."""

    def __init__(self, rank: int, size: int, board: list[object], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size
        self._board, self._barrier = board, barrier

    def gather(self, value):  # type: ignore[no-untyped-def]
        self._board[self.rank] = value
        self._barrier.wait()
        gathered = list(self._board)
        self._barrier.wait()
        return gathered


@pytest.mark.parametrize("count", [0, 1, 4, 5, 23, 24])
@pytest.mark.parametrize("size", [2, 3])
def test_every_item_is_done_once_and_comes_back_in_its_place(count: int, size: int) -> None:
    board: list[object] = [None] * size
    barrier, found, told = threading.Barrier(size), [list[int]() for _ in range(size)], list[int]()

    def work(rank: int) -> None:
        chunks = Chunks(Thread(rank, size, board, barrier), 4)

        def squares() -> Iterator[int]:
            items, numbers = chunks.own(range(count), 7)
            for item, number in zip(items, numbers, strict=True):
                assert number == item + 7
                yield item * item

        found[rank] = list(chunks.merged(squares(), told.append))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert found[0] == [number * number for number in range(count)]
    assert not any(found[1:])
    of_first = [-(-len(range(turn, min(turn + 4 * size, count))) // size) for turn in range(0, count, 4 * size)]
    assert sum(told) == count - sum(of_first)


@pytest.mark.parametrize("size", [2, 8])
def test_shares_are_of_equal_size_however_few_there_are(size: int) -> None:
    processes = [Chunks(Thread(rank, size, [], threading.Barrier(1)), 4096) for rank in range(size)]
    for count in (size - 1, 1000, 10_000):
        shares = [list(chunks.own(range(count), 0)[0]) for chunks in processes]
        assert sorted(item for share in shares for item in share) == list(range(count))
        assert max(map(len, shares)) <= -(-count // size)


def test_one_process_does_everything() -> None:
    chunks = Chunks(World(), 3)
    items, numbers = chunks.own(range(10), 5)
    assert list(chunks.merged(items, print)) == list(range(10)) and next(numbers) == 5
