"""Which rank reports an error that ends several, and which rank names others, by a store in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping

import pytest
import torch.distributed as dist

from nmt.distributed import peers as module
from nmt.distributed.peers import SILENT, Peers
from nmt.errors import AlreadyReported

HOSTS = ("a", "a", "b", "b")  # of four ranks


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for ranks that say nothing."""
    monkeypatch.setattr(module, "MOMENT", 0.0)
    monkeypatch.delenv("MASTER_PORT", raising=False)


def peers_of(rank: int, size: int = 4, store: dist.Store | None = None) -> Peers:
    peers = Peers(dist.HashStore() if store is None else store, rank, size)
    peers._places = [f"{HOSTS[each]} (process {100 + each})" for each in range(size)]
    return peers


class Noted(dist.HashStore):
    """A store in which ``ends`` are published. The pulse of a ``beating`` rank differs at each look, the others' stays."""

    def __init__(self, ends: Mapping[int, Mapping[str, object]], beating: Collection[int] = ()) -> None:
        super().__init__()
        self._beating, self._looks = beating, 0
        for rank in range(len(HOSTS)):
            self.set(f"pulse-{rank}", "0 0 0 computing")
        for rank, end in ends.items():
            self.set(f"end-{rank}", json.dumps(end))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self._looks += 1
        for rank in self._beating:
            self.set(f"pulse-{rank}", f"{self._looks} 0 0 computing")
        return [self.get(key) for key in keys]


class Unreachable(dist.HashStore):
    """A store whose machine is gone."""

    def set(self, *_: object) -> None:
        raise RuntimeError("broken pipe")

    def multi_get(self, keys: list[str]) -> list[bytes]:
        raise RuntimeError("broken pipe")


@pytest.mark.parametrize(
    ("late", "speaker"),
    [
        pytest.param([3], 0, id="the lowest rank that is not late"),
        pytest.param([0, 1], 2, id="the lowest of two that are left"),
        pytest.param([0], 2, id="of rank 0 alone, a rank on another host: its machine may be gone"),
        pytest.param([0, 1, 2, 3], -1, id="none if all are late"),
    ],
)
def test_one_rank_speaks_of_those_that_are_late(late: Collection[int], speaker: int) -> None:
    for ranks in (set(late), dict.fromkeys(late, SILENT)):  # without and with what is known of each
        assert {peers_of(rank)._speaker(ranks) for rank in range(4)} == {speaker}


def test_on_one_host_the_next_rank_speaks_of_a_late_rank_0() -> None:
    assert peers_of(1, size=2)._speaker([0]) == 1


def reports(survivors: Collection[int], store: Callable[[], dist.Store]) -> dict[int, str]:
    """What survivors report after they lost the connection to the others, by rank. Each gets a new store."""
    errors = {rank: peers_of(rank, store=store()).loss(10.0) for rank in survivors}
    return {rank: str(error) for rank, error in errors.items() if not isinstance(error, AlreadyReported)}


@pytest.mark.parametrize(
    ("gone", "speaker", "names"),
    [
        pytest.param([3], 0, "rank 3 on b (process 103)", id="one of four"),
        pytest.param([1, 3], 0, "rank 1 on a (process 101), rank 3 on b (process 103)", id="two of four"),
        pytest.param([0], 2, "rank 0 on a (process 100)", id="rank 0, told by another host"),
        pytest.param([0, 1], 2, "rank 0 on a (process 100), rank 1 on a (process 101)", id="a whole host"),
    ],
)
def test_of_several_survivors_one_names_the_ranks_that_have_ended(gone: list[int], speaker: int, names: str) -> None:
    survivors = [rank for rank in range(4) if rank not in gone]
    found = reports(survivors, lambda: Noted({rank: {} for rank in survivors}))
    assert list(found) == [speaker]
    assert f"rank {speaker} lost the others: {names} ended without a message" in found[speaker]


def test_a_rank_that_still_computes_is_not_named() -> None:
    (message,) = reports([1, 3], lambda: Noted({1: {}, 3: {}}, beating=[0])).values()
    assert "rank 1 lost the others: rank 2 on b (process 102) ended" in message


def test_without_a_store_a_rank_on_another_host_names_rank_0() -> None:
    (message,) = reports([1, 2, 3], Unreachable).values()
    assert "rank 2 lost the others: rank 0 on a (process 100) ended" in message


def test_survivors_leave_the_report_to_a_rank_that_failed_with_an_error() -> None:
    failed = {1: {"error": "DataError: torn", "status": 65}}
    assert reports([0, 2, 3], lambda: Noted(failed | {rank: {} for rank in (0, 2, 3)})) == {}
    error = peers_of(2, store=Noted(failed)).loss(10.0)
    assert (str(error), error.exit_status) == ("DataError: torn", 65)


@pytest.mark.parametrize("rank", range(4))
def test_of_ranks_that_fail_with_the_same_error_the_lowest_reports_it(rank: int) -> None:
    error = MemoryError("no room")
    ends = {other: {"error": "MemoryError: no room" if other else "another", "status": 1} for other in range(4)}
    own = peers_of(rank, store=Noted(ends)).reported_once(error)
    assert (own is error) == (rank <= 1)
