"""Chunks go round the processes, and come back in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from nmt.training.world import Alone as World
from nmt_cli.ranks import Alone, Together, joined


class Thread(World):
    """One of several processes, as a thread of this one."""

    def __init__(self, rank: int, size: int, board: list[object], barrier: threading.Barrier) -> None:
        self.rank, self.size = rank, size  # type: ignore[misc]
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
        ranks = Together(Thread(rank, size, board, barrier), chunk=4)

        def squares() -> Iterator[int]:
            for number in ranks.own(range(count)):
                yield number * number

        found[rank] = list(ranks.merged(squares(), told.append))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert found[0] == [number * number for number in range(count)]
    assert not any(found[1:])
    assert sum(told) == sum(number // 4 % size != 0 for number in range(count))


def test_one_process_does_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with joined(torch.device("cpu"), 3) as ranks:
        assert isinstance(ranks, Alone) and ranks.main
        assert list(ranks.merged(ranks.own(range(10)), print)) == list(range(10))
        assert ranks.on_first(lambda: 4) == 4
