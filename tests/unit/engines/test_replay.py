"""Recorded steps find what steps find that are computed one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from nmt.config.plain import from_plain
from nmt.data.vocabulary import EOS
from nmt.engines import graphs
from nmt.engines.graphs import Function, Replayed, recorded_engine
from nmt.interface import EncoderDecoder, Hypothesis
from nmt.models.transformer.transformer import TransformerMemory
from nmt.native.library import forget
from nmt.search import Search, searches
from nmt.testing.subjects import Subject, assert_close, ensemble_of, forced_scores, search_with, subject, toy_batch
from tests.kinds import RECORDED, some_by_day
from tests.unit.engines.tape import Recorder

LENGTHS = (2, 9, 5, 1, 20, 7, 3)
SEARCHES: dict[str, tuple[str, dict[str, Any], int]] = {
    "beam": ("beam", {"beam_size": 3, "max_len_b": 8}, 3),
    "beyond the first room": ("beam", {"beam_size": 2, "min_len": 40, "max_len_b": 50}, 1),
    "greedy": ("greedy", {"max_len_b": 8}, 1),
    "diverse": ("diverse_beam", {"beam_size": 4, "groups": 2, "max_len_b": 8}, 2),
    "rules": ("beam", {"beam_size": 3, "max_len_b": 8, "no_repeat_ngram": 2}, 1),
    "all": ("beam", {"beam_size": 3, "max_len_b": 8, "stop": "all"}, 1),
}


@pytest.fixture(autouse=True)
def without_c(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a GPU."""
    monkeypatch.setenv("NMT_NATIVE", "off")
    forget()
    yield
    monkeypatch.undo()
    forget()


def build(name: str, options: dict[str, Any], nbest: int) -> Search:
    return searches.build(from_plain(searches.config_class(name), options, origin="test"), nbest)


def found_by(search: Search, model: Any, of: EncoderDecoder, **more: Any) -> list[Hypothesis]:
    batch = toy_batch(of, LENGTHS, LENGTHS)
    found = search_with(search, model, batch.source, batch.source_lengths, **more)
    return [hypothesis for of_sentence in found for hypothesis in of_sentence]


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    assert [one.tokens.tolist() for one in found] == [one.tokens.tolist() for one in expected]
    for one, other in zip(found, expected):
        assert one.finished == other.finished
        assert_close(
            *map(torch.from_numpy, (one.token_scores, other.token_scores)), "scores of recorded steps and of others"
        )


@pytest.mark.slow
@pytest.mark.parametrize("model", some_by_day(RECORDED))
def test_every_model_finds_the_same(model: Subject) -> None:
    search, recorder, own = build(*SEARCHES["beam"]), Recorder(), model.model()
    assert_same(found_by(search, Replayed(own, recorder), own), found_by(search, own, own))
    assert 0 < recorder.recorded < recorder.repeated


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEARCHES)
@pytest.mark.parametrize("name", ["transformer", "transformer_relative", "lstm_luong"])
def test_every_search_finds_the_same(name: str, kind: str) -> None:
    model, search = subject(name).model(), build(*SEARCHES[kind])
    replayed, expected = Replayed(model, Recorder()), found_by(search, model, model)
    for _ in range(2):  # the second time in the place and with the recordings of the first
        assert_same(found_by(search, replayed, model), expected)


def test_samples_are_the_same() -> None:
    model, search = subject("transformer").model(), build("sampling", {"seed": 3, "max_len_b": 8}, 4)
    assert_same(found_by(search, Replayed(model, Recorder()), model), found_by(search, model, model))


def test_attention_is_that_of_the_source() -> None:
    model, search = subject("transformer").model(), build(*SEARCHES["beam"])
    kept = Replayed(model, Recorder())
    assert_same(found_by(search, kept, model), found_by(search, model, model))
    expected = found_by(search, model, model, attention=True)
    for one, other in zip(found_by(search, kept, model, attention=True), expected, strict=True):
        assert one.attention is not None and other.attention is not None
        assert one.attention.shape == other.attention.shape
        assert_close(
            *map(torch.from_numpy, (one.attention, other.attention)), "attention of steps in place and of others"
        )
    assert_same(found_by(search, kept, model), expected)


def test_given_translations_have_the_same_scores() -> None:
    model = subject("transformer").model()
    batch = toy_batch(model, LENGTHS, LENGTHS)
    targets = [torch.tensor([*range(4, 4 + length), EOS]) for length in LENGTHS[:4] + (10, 5, 12)]
    recorded = forced_scores(Replayed(model, Recorder()), batch.source, batch.source_lengths, targets)
    for one, other in zip(recorded, forced_scores(model, batch.source, batch.source_lengths, targets), strict=True):
        assert_close(one, other, "scores of given translations")


def test_members_of_an_ensemble_have_recordings_of_their_own() -> None:
    members, search = [subject(name).model() for name in ("transformer", "lstm_luong")], build(*SEARCHES["beam"])
    recorders = [Recorder(), Recorder()]
    together = ensemble_of([Replayed(*pair) for pair in zip(members, recorders)])
    assert_same(found_by(search, together, members[0]), found_by(search, ensemble_of(members), members[0]))
    assert all(recorder.repeated for recorder in recorders)


def test_one_recording_serves_all_batches_of_like_shapes() -> None:
    model, search, recorder = (
        subject("transformer").model(),
        build("greedy", {"min_len": 6, "max_len_b": 8}, 1),
        Recorder(),
    )
    kept = Replayed(model, recorder)
    for sentences, width in [(7, 3), (8, 5), (7, 16), (8, 1)]:
        source = torch.full((sentences, width), 5)
        source[:, -1] = EOS
        search_with(search, kept, source, torch.full((sentences,), width))
    # 8 rows, and 4, 2 and 1 where sentences end one after the other
    assert recorder.recorded <= 4 and recorder.repeated > 20


class Refusing(Recorder):
    """Fails from some recording on."""

    def __init__(self, error: RuntimeError, allowed: int) -> None:
        super().__init__()
        self.error, self.allowed, self.tried = error, allowed, 0

    def record(self, warm_up: Function, function: Function) -> Callable[[], None]:
        self.tried += 1
        if self.tried > self.allowed:
            warm_up()
            raise self.error
        return super().record(warm_up, function)


@pytest.mark.parametrize("allowed", [0, 2])
def test_a_step_that_cannot_be_recorded_is_computed(caplog: pytest.LogCaptureFixture, allowed: int) -> None:
    model, search = subject("transformer").model(), build(*SEARCHES["beyond the first room"])
    why = "operation not permitted when stream is capturing"
    recorder = Refusing(RuntimeError(f"{why}\nand more"), allowed)
    kept, expected = Replayed(model, recorder), found_by(search, model, model)
    with caplog.at_level(logging.WARNING):
        assert_same(found_by(search, kept, model), expected)
    assert recorder.tried == allowed + 1
    assert caplog.messages == [f"a step cannot be recorded ({why}); translation continues without --cuda-graphs"]
    memory = kept.encode(torch.tensor([[5, EOS]]), torch.tensor([2]))
    assert isinstance(memory, TransformerMemory), "the next batches are as without"
    assert_same(found_by(search, kept, model), expected)


def test_recordings_are_forgotten_when_memory_is_short() -> None:
    model, search = subject("transformer").model(), build(*SEARCHES["greedy"])
    recorder = Refusing(torch.OutOfMemoryError("CUDA out of memory"), 1)
    kept = Replayed(model, recorder)
    with pytest.raises(torch.OutOfMemoryError):
        found_by(search, kept, model)
    assert kept.steps
    kept.forget()
    assert not kept.steps
    recorder.allowed = 99
    assert_same(found_by(search, kept, model), found_by(search, model, model))
    assert kept.steps


def test_there_is_an_end_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, search, recorder = (
        subject("transformer").model(),
        build("greedy", {"max_len_a": 0, "max_len_b": 1}, 1),
        Recorder(),
    )
    kept = Replayed(model, recorder)
    monkeypatch.setattr(graphs, "MOST_RECORDINGS", 5)
    for width in (1, 17, 33, 1):
        for sentences in (1, 2, 3):
            source = torch.full((sentences, width), 5)
            source[:, -1] = EOS
            search_with(search, kept, source, torch.full((sentences,), width))
    assert 0 < len(kept.steps) <= 5 and recorder.recorded == 12


@pytest.mark.parametrize(
    "asking",
    [
        lambda numbers: numbers.sum().item(),
        lambda numbers: numbers.nonzero(),
        lambda numbers: numbers[numbers > 1],
        lambda numbers: bool(numbers[0] == 1),
        lambda numbers: numbers[[0, 1]],
        lambda numbers: numbers.repeat_interleave(numbers),
        lambda numbers: torch.tensor(3.0),
    ],
)
def test_the_stand_in_refuses_what_a_gpu_waits_for(asking: Callable[[torch.Tensor], object]) -> None:
    with pytest.raises(RuntimeError, match="not permitted"):
        Recorder().record(lambda: None, lambda: asking(torch.arange(3)))


def test_the_stand_in_computes_nothing_while_it_records() -> None:
    numbers = torch.zeros(3)
    repeat = Recorder().record(lambda: None, lambda: numbers.add_(1))
    assert numbers.tolist() == [0, 0, 0]
    repeat()
    repeat()
    assert numbers.tolist() == [2, 2, 2]


def test_a_model_whose_steps_vary_stays_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    model = subject("conv_s2s").model()
    with caplog.at_level(logging.WARNING):
        assert recorded_engine(model, "cpu").model is model
    assert caplog.messages == [
        "the steps of this model vary in shape and cannot be recorded; translation continues without --cuda-graphs"
    ]
    assert isinstance(recorded_engine(subject("lstm").model(), "cpu").model, Replayed)
