"""Batches that are read while the device computes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from nmt.data.batching.batch import Batch
from nmt.data.batching.variation import PlannedBatch
from nmt.data.corpus.folder import Split
from nmt.devices.kinds import Cuda
from nmt.errors import DataError
from nmt.training.loop.batches import BatchReader, ReadAhead, batch_reader, read_batch

MakeSplit = Callable[..., Split]


class Noting:
    """Reads a split, and remembers what was read, where."""

    def __init__(self, split: Split) -> None:
        self.split = split
        self.read: list[tuple[list[int], bool]] = []

    def __call__(self, sentences: PlannedBatch) -> Batch:
        indices = sentences.numbers
        self.read.append((indices.tolist(), threading.current_thread() is threading.main_thread()))
        if 99 in indices:
            raise DataError("sentence 99 is damaged")
        return read_batch(self.split, indices)


class Stream:
    """Stands for one of torch's: notes what happens in which order."""

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name, self.log = name, log

    def record_event(self) -> str:
        self.log.append((self.name, "copied"))
        return "copied"

    def wait_event(self, event: str) -> None:
        self.log.append((self.name, "waits for", event))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A card that is none: copying, events and what streams use in the order in which torch is told."""
    noted: list[Any] = []

    @contextlib.contextmanager
    def device_index(number: int) -> Iterator[None]:
        noted.append(("within", number))
        yield

    def to(batch: Batch, device: torch.device) -> Batch:
        noted.append(f"to {device}")
        return batch

    def set_stream(stream: Stream) -> None:
        noted.append(("launch on", stream.name))

    monkeypatch.setattr(torch, "Stream", lambda device: Stream("copying", noted))
    monkeypatch.setattr(torch.accelerator, "set_stream", set_stream)
    monkeypatch.setattr(torch.accelerator, "current_stream", lambda device: Stream("computing", noted))
    monkeypatch.setattr(torch.accelerator, "device_index", device_index)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, used: noted.append((used.name, id(tensor))))
    monkeypatch.setattr(Batch, "to", to)
    return noted


def read_ahead(noting: Noting) -> ReadAhead:
    return ReadAhead(noting, Cuda(torch.device("cuda", 0)))


def items(*batches: list[int], epoch: int = 1) -> list[PlannedBatch]:
    return [PlannedBatch(np.array(batch), epoch) for batch in batches]


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.source, other.source) and torch.equal(one.targets, other.targets)


@pytest.mark.usefixtures("log")
def test_announced_batches_are_read_elsewhere_and_once(make_split: MakeSplit) -> None:
    noting = Noting(make_split(10))
    ahead, batches = read_ahead(noting), items([1, 2], [3], [4, 5])
    ahead.announce(batches[:2])
    ahead.announce(batches[2:])
    assert all(same(ahead(batch), read_batch(noting.split, batch.numbers)) for batch in batches)
    assert noting.read == [([1, 2], False), ([3], False), ([4, 5], False)]


@pytest.mark.usefixtures("log")
def test_what_was_not_announced_is_read_on_the_spot(make_split: MakeSplit) -> None:
    """As the halves of a batch, or the batches of an update that is begun again."""
    noting = Noting(make_split(10))
    ahead = read_ahead(noting)
    ahead.announce(items([1, 2], [3, 4], [5]))
    (first, again, last) = items([1, 2], [1], [5])
    assert same(ahead(first), read_batch(noting.split, first.numbers))
    assert same(ahead(again), read_batch(noting.split, again.numbers))
    assert same(ahead(last), read_batch(noting.split, last.numbers))
    assert ([1], True) in noting.read and ([5], False) in noting.read


@pytest.mark.usefixtures("log")
def test_the_next_update_is_read_while_this_one_is_computed(make_split: MakeSplit) -> None:
    """As training asks: the following batches are announced, then those of now are read, perhaps twice."""
    noting = Noting(make_split(10))
    ahead, batches = read_ahead(noting), items([1], [2], [3], [4])
    for now, following in zip(batches, batches[1:]):
        ahead.announce([following])
        for _ in range(2):
            assert same(ahead(now), read_batch(noting.split, now.numbers))
    assert same(ahead(batches[-1]), read_batch(noting.split, batches[-1].numbers))
    elsewhere = [read for read, main in noting.read if not main]
    assert elsewhere == [[2], [3], [4]]


@pytest.mark.usefixtures("log")
def test_an_error_comes_where_the_batch_is_asked_for(make_split: MakeSplit) -> None:
    ahead = read_ahead(Noting(make_split(10)))
    ahead.announce(items([1], [99], [2]))
    ahead(items([1])[0])
    with pytest.raises(DataError, match="99 is damaged"):
        ahead(items([99])[0])
    ahead.announce(items([99]))
    assert ahead(items([2])[0]).sentence_ids.tolist() == [2]
    assert ahead(items([3])[0]).sentence_ids.tolist() == [3]  # the damaged one was not wanted


@pytest.mark.usefixtures("log")
def test_reading_ahead_is_for_gpus(make_split: MakeSplit) -> None:
    assert type(batch_reader(Noting(make_split(4)), torch.device("cpu"))) is BatchReader
    assert isinstance(batch_reader(Noting(make_split(4)), torch.device("cuda", 0)), ReadAhead)


@pytest.mark.parametrize("announced", [True, False])
def test_a_copy_is_on_its_way_before_the_batch_is_asked_for(
    make_split: MakeSplit, log: list[Any], announced: bool
) -> None:
    ahead, (wanted,) = read_ahead(Noting(make_split(10))), items([1, 2])
    begun: list[Any] = [
        ("within", 0),
        ("launch on", "copying"),
        "to cuda:0",
        ("copying", "copied"),
        ("launch on", "computing"),
    ]
    if announced:
        ahead.announce([wanted])
        ahead._thread.submit(lambda: None).result()  # all that came before is done
        assert log == begun
    batch = ahead(wanted)
    assert log[: len(begun)] == begun and log[len(begun)] == ("computing", "waits for", "copied")
    assert log[len(begun) + 1 :] == [("computing", id(tensor)) for tensor in batch.on_device()]


def test_what_is_copied_is_what_is_kept_for_the_computation(make_split: MakeSplit) -> None:
    batch = read_batch(make_split(10), np.array([3, 1]))
    batch = replace(batch, extras={"more": torch.ones(2)})
    moved = list(batch.to(torch.device("meta")).on_device())
    assert all(tensor.is_meta for tensor in moved)
    tensors = [
        value for name, value in vars(batch).items() if isinstance(value, torch.Tensor) and name != "sentence_ids"
    ]
    assert {id(tensor) for tensor in batch.on_device()} == {id(tensor) for tensor in [*tensors, batch.extras["more"]]}


def test_a_batch_on_another_device_is_complete(make_split: MakeSplit) -> None:
    batch = read_batch(make_split(10), np.array([3, 1]))
    moved = batch.to(torch.device("meta"))
    for name, value in vars(batch).items():
        if name != "sentence_ids" and isinstance(value, torch.Tensor):
            assert getattr(moved, name).is_meta and getattr(moved, name).shape == value.shape, name
    assert moved.num_source_tokens == batch.num_source_tokens == int(batch.source_lengths.sum())
    assert batch.to(torch.device("cpu")) is batch
