"""A ``Decodable`` whose steps are recorded once for a shape and repeated, so that a GPU does not wait for Python.

A recording is of certain tensors. So what steps read and write lies in one place, batches are filled up to few shapes, and a
batch's memory and state are copied to their place when they are not there yet. Sentences that leave stay there, unasked,
until half of the rows are enough.

Shapes: B sentences, R rows of sentences that there are in a recording, K beam, N = B*K hypotheses, S source positions.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.interface import Decodable, DecoderState, EncoderDecoder, Memory, StepOutput
from nmt.modules.recording import Function, record
from nmt.trees import map_tensors, tensors

logger = logging.getLogger("nmt.search")

POSITIONS = 16  # sources are padded to a multiple of them
LEAST_STEPS = 32  # that there is room for at first; it doubles when full
MOST = 64  # recordings that are kept
_ALIGNED = 256  # bytes

Recorder = Callable[[Function], Callable[[], None]]


@dataclass
class Rows:
    """Where the sentences of a search stand among the R rows of what is recorded."""

    places: Tensor  # [B]
    count: int  # R
    in_order: bool  # the first of all, none left out

    @classmethod
    def first(cls, sentences: int, count: int, device: torch.device) -> Rows:
        return cls(torch.arange(sentences, device=device), count, True)

    def of_hypotheses(self, beam: int) -> Tensor:
        """[N]"""
        return (self.places[:, None] * beam + torch.arange(beam, device=self.places.device)).flatten()

    def asked(self, values: Tensor, beam: int) -> Tensor:
        """[R * K, ...] -> [N, ...]"""
        return values[: len(self.places) * beam] if self.in_order else values[self.of_hypotheses(beam)]

    def keeping(self, staying: Tensor) -> tuple[Rows, Tensor | None]:
        """Of the sentences ``staying`` alone, and the rows [R'] that they are moved to; None: nothing moves."""
        places, count = self.places[staying], self.count
        while count % 2 == 0 and count // 2 >= len(places):
            count //= 2
        if count == self.count:
            return Rows(places, count, False), None
        return Rows.first(len(places), count, places.device), _filled(places, count)


@dataclass
class ReplayedMemory(Memory):
    """A model's memory of R rows."""

    memory: Memory
    at: Rows
    width: int  # of the source, as it was given

    def rows(self, index: Tensor) -> ReplayedMemory:
        at, moved = self.at.keeping(index)
        return ReplayedMemory(self.memory if moved is None else self.memory.rows(moved), at, self.width)


@dataclass
class ReplayedState(DecoderState):
    """A model's state of R * K rows."""

    state: DecoderState
    at: Rows
    beam: int
    room: int  # steps
    made: int = 0

    def rows(self, index: Tensor) -> ReplayedState:
        hypotheses = self.at.of_hypotheses(self.beam)
        every = torch.arange(self.at.count * self.beam, device=index.device)
        if len(index) == len(hypotheses):
            return replace(self, state=self.state.rows(every.index_copy(0, hypotheses, hypotheses[index])))
        staying = index[:: self.beam] // self.beam
        at, moved = self.at.keeping(staying)
        if moved is None:
            kept = at.of_hypotheses(self.beam)
            return replace(self, state=self.state.rows(every.index_copy(0, kept, hypotheses[index])), at=at)
        return replace(self, state=self.state.rows(_filled(hypotheses[index], at.count * self.beam, self.beam)), at=at)


def _filled(rows: Tensor, count: int, unit: int = 1) -> Tensor:
    """So many rows: the first ``unit`` stand for those that are missing."""
    return torch.cat([rows, rows[:unit].repeat((count - len(rows)) // unit)])


class _Step:
    """A step of one shape: its tensors, which lie where they lie, and what repeats it."""

    def __init__(self, model: EncoderDecoder, tokens: Tensor, memory: Memory, state: DecoderState) -> None:
        self._model = model
        self.tokens, self.memory, self.state = tokens, memory, state
        self._repeat: Callable[[], None] | None = None
        self._output: StepOutput | None = None

    def compute(self, attention: bool = False) -> StepOutput:
        """The step itself; the state is the next one after it."""
        output = self._model.step(self.tokens, self.memory, self.state, attention)
        assert _shape_of(self.state) == _shape_of(output.state), "start_fixed: a step changes shapes"
        _copy(zip(tensors(self.state), tensors(output.state)))
        return output

    def repeat(self, recorder: Recorder) -> StepOutput:
        """The same, recorded at the first time."""
        if self._repeat is None:
            before = [tensor.clone() for tensor in tensors(self.state)]
            try:
                self._repeat = recorder(self._recorded)
            finally:
                _copy(zip(tensors(self.state), before))
        self._repeat()
        assert self._output is not None
        return self._output

    def _recorded(self) -> None:
        self._output = self.compute()  # every repetition writes its numbers there


def _copy(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Each second tensor into the first one, also where that lies in a place that is still to be read."""
    pairs = [(tensor, other) for tensor, other in pairs if tensor is not other]
    written = {tensor.untyped_storage().data_ptr() for tensor, _ in pairs}
    read = [other.clone() if other.untyped_storage().data_ptr() in written else other for _, other in pairs]
    for (tensor, _), other in zip(pairs, read):
        tensor.copy_(other)


class Replayed:
    """A model on a GPU."""

    def __init__(self, model: EncoderDecoder, recorder: Recorder) -> None:
        """``model`` has a ``start_fixed``."""
        self._model = model
        self._recorder: Recorder | None = recorder
        self._steps: dict[Any, _Step] = {}
        self._current: tuple[_Step, Memory] | None = None  # whose numbers are in place
        self._place = torch.empty(0, dtype=torch.uint8)

    def encode(self, source: Tensor, source_lengths: Tensor) -> ReplayedMemory:
        sentences, width = source.shape
        longest, limit = -(-width // POSITIONS) * POSITIONS, self._model.max_source_length()
        count = _few(sentences)
        filled = F.pad(source, (0, max(width, min(longest, limit or longest)) - width, 0, count - sentences), value=PAD)
        filled[sentences:, 0] = EOS
        lengths = F.pad(source_lengths, (0, count - sentences), value=1)
        at = Rows.first(sentences, count, source.device)
        with self._forgetting():
            return ReplayedMemory(self._model.encode(filled, lengths), at, width)

    def start(
        self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None
    ) -> tuple[ReplayedMemory, ReplayedState]:
        assert isinstance(memory, ReplayedMemory) and vocabulary is None
        room = max(LEAST_STEPS, 1 << (memory.width - 1).bit_length())
        with self._forgetting():
            started = self._model.start_fixed(memory.memory, beam_size, room)
        assert started is not None, "a model whose steps vary is not recorded"
        return replace(memory, memory=started[0]), ReplayedState(started[1], memory.at, beam_size, room)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, ReplayedMemory) and isinstance(state, ReplayedState)
        with self._forgetting():
            return self._step(tokens, memory, state, attention)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return self._model.max_target_lengths(source_lengths)

    def kept(self) -> tuple[int, int]:
        """How many recordings, and bytes for what they read and write."""
        return len(self._steps), self._place.numel()

    def forget(self) -> None:
        """Every recording, and the memory that they hold."""
        self._steps.clear()
        self._current = None
        self._place = self._place.new_empty(0)

    @contextlib.contextmanager
    def _forgetting(self) -> Iterator[None]:
        """When memory is short the recordings go first."""
        try:
            yield
        except torch.OutOfMemoryError:
            self.forget()
            raise

    def _step(self, tokens: Tensor, memory: ReplayedMemory, state: ReplayedState, attention: bool) -> StepOutput:
        if state.made == state.room:
            state = replace(state, state=state.state.reaching(2 * state.room), room=2 * state.room)
        step = self._placed(memory.memory, state.state, state.at.count * state.beam)
        step.tokens.fill_(EOS).index_copy_(0, state.at.of_hypotheses(state.beam), tokens)
        output = step.compute(attention) if attention or self._recorder is None else self._repeated(step)
        after = replace(state, state=step.state, made=state.made + 1)
        weights = output.attention
        if weights is not None:
            weights = state.at.asked(weights, state.beam)[:, : memory.width].clone()
        return StepOutput(state.at.asked(output.scores, state.beam), output.normalised, after, weights)

    def _repeated(self, step: _Step) -> StepOutput:
        assert self._recorder is not None
        try:
            return step.repeat(self._recorder)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            first, _, _ = str(error).partition("\n")
            logger.warning("a step cannot be recorded (%s); translating goes on without --cuda-graphs", first)
            self._recorder = None
            return step.compute()

    def _placed(self, memory: Memory, state: DecoderState, hypotheses: int) -> _Step:
        """The step of that shape, with these numbers."""
        shape = (hypotheses, _shape_of(memory), _shape_of(state))
        step = self._steps.get(shape)
        if step is None:
            step = self._new(memory, state, hypotheses)
            self._steps[shape] = step
        there = self._current is not None and self._current[0] is step and self._current[1] is memory
        read = [] if there else zip(tensors(step.memory), tensors(memory))
        _copy([*read, *zip(tensors(step.state), tensors(state))])
        self._current = step, memory
        return step

    def _new(self, memory: Memory, state: DecoderState, hypotheses: int) -> _Step:
        if len(self._steps) >= MOST:
            self._steps.clear()
        given = [*tensors(memory), *tensors(state)]
        views = iter(self._views([given[0].new_empty(hypotheses, dtype=torch.long), *given]))
        tokens = next(views)
        return _Step(
            self._model, tokens, map_tensors(lambda _: next(views), memory), map_tensors(lambda _: next(views), state)
        )

    def _views(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Tensors of the same kinds in the one place that all steps share, since one is under way at a time."""
        sizes = [-(-tensor.numel() * tensor.element_size() // _ALIGNED) * _ALIGNED for tensor in given]
        if sum(sizes) > self._place.numel() or self._place.device != given[0].device:
            self._steps.clear()
            self._place = torch.empty(sum(sizes) * 5 // 4, dtype=torch.uint8, device=given[0].device)
        ends = list(itertools.accumulate(sizes))
        return [
            self._place[end - size : end - size + tensor.numel() * tensor.element_size()]
            .view(tensor.dtype)
            .as_strided(tensor.size(), _dense(tensor))
            for tensor, end, size in zip(given, ends, sizes)
        ]


def replayed(model: EncoderDecoder, device: torch.device) -> Decodable:
    """The model with its steps recorded, or as it is where they vary, which is said."""
    if fixed_steps(model, device):
        return Replayed(model, record)
    logger.warning("the steps of this model vary and cannot be recorded; translating goes on without --cuda-graphs")
    return model


def fixed_steps(model: EncoderDecoder, device: torch.device) -> bool:
    """Whether all steps of a model launch the same."""
    with torch.inference_mode():
        one = torch.tensor([[EOS]], device=device)
        return model.start_fixed(model.encode(one, torch.ones_like(one[0])), 1, 1) is not None


def _few(sentences: int) -> int:
    """The first of the powers of two, and of these with a half more, that is not below."""
    above: int = 1 << (sentences - 1).bit_length()
    return above * 3 // 4 if sentences <= above * 3 // 4 and above > 2 else above


def _shape_of(tree: Any) -> tuple[Any, ...]:
    return tuple((tensor.dtype, tensor.size()) for tensor in tensors(tree))


def _dense(tensor: Tensor) -> tuple[int, ...]:
    """The strides of a tensor with the same order of axes and nothing between its numbers."""
    strides = [0] * tensor.dim()
    step = 1
    for axis in sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), -axis)):
        strides[axis] = step
        step *= tensor.size(axis)
    return tuple(strides)
