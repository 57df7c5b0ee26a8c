"""A ``Decodable`` whose steps are recorded once for a shape and repeated, so that a GPU does not wait for Python.

A recording is of certain tensors. So what steps read and write lies in one place, batches are filled up to few shapes, and a
batch's memory and state are copied to their place when they are not there yet. Sentences that leave stay there, unasked,
until half of the rows are enough.

Shapes: B sentences, R rows of sentences that there are in a recording, K beam, N = B*K hypotheses, S source positions.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD
from nmt.engines.graphs.fixed import fixed, widened
from nmt.engines.graphs.recording import Function, Recordings
from nmt.interface import Decodable, DecoderState, EncoderDecoder, Memory, StepOutput
from nmt.trees import map_tensors, tensors

logger = logging.getLogger("nmt.search")

POSITIONS = 16  # sources are padded to a multiple of them, longer ones of more
LEAST_STEPS = 32  # that there is room for at first; it doubles when full
MOST = 256  # recordings that are kept
_ALIGNED = 256  # bytes


class Recorder(Protocol):
    """``Recordings``, or what stands in for them."""

    def record(self, warm_up: Function, function: Function) -> Callable[[], None]: ...

    def forget(self) -> None: ...


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


class _Place:
    """Memory that tensors of all steps share, since one is under way at a time."""

    def __init__(self) -> None:
        self.bytes = torch.empty(0, dtype=torch.uint8)

    def holds(self, given: Sequence[Tensor]) -> bool:
        return sum(map(_aligned, given)) <= self.bytes.numel() and self.bytes.device == given[0].device

    def grow(self, given: Sequence[Tensor]) -> None:
        """For these, at least. What was there is lost."""
        size = max(2 * self.bytes.numel(), sum(map(_aligned, given)) * 5 // 4)
        self.bytes = torch.empty(size, dtype=torch.uint8, device=given[0].device)

    def views(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Tensors of the same kinds."""
        starts = itertools.accumulate(map(_aligned, given), initial=0)
        return [
            self.bytes[start : start + tensor.numel() * tensor.element_size()]
            .view(tensor.dtype)
            .as_strided(tensor.size(), _dense(tensor))
            for tensor, start in zip(given, starts)
        ]


def _aligned(tensor: Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // _ALIGNED) * _ALIGNED


class _Step:
    """A step of one shape: its tensors, which lie where they lie, and what repeats it."""

    def __init__(self, model: EncoderDecoder, tokens: Tensor, memory: Memory, state: DecoderState) -> None:
        self._model = model
        self.tokens, self.memory, self.state = tokens, memory, state
        self.kept = list(tensors(state))
        self.output: StepOutput | None = None  # where every repetition writes its scores
        self.repeat: Callable[[], None] | None = None

    def try_out(self) -> StepOutput:
        """The step, after which it can be made again."""
        output = self._model.step(self.tokens, self.memory, self.state)
        assert _form_of(self.state) == _form_of(output.state), "a step changes the form of its state"
        return output

    def compute(self, attention: bool = False) -> StepOutput:
        """The step itself; the state is the next one after it."""
        output = self._model.step(self.tokens, self.memory, self.state, attention)
        _copy(zip(self.kept, tensors(output.state)))
        return output

    def compute_in_place(self) -> None:
        assert self.output is not None
        self.output.scores.copy_(self.compute().scores)


def _copy(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Each second tensor into the first one, also where that lies in a place that is still to be read."""
    pairs = [(tensor, other) for tensor, other in pairs if tensor is not other]
    written = {tensor.untyped_storage().data_ptr() for tensor, _ in pairs}
    read = [other.clone() if other.untyped_storage().data_ptr() in written else other for _, other in pairs]
    for (tensor, _), other in zip(pairs, read):
        tensor.copy_(other)


class Replayed:
    """A model on a GPU. It serves one search at a time."""

    def __init__(self, model: EncoderDecoder, recorder: Recorder) -> None:
        """``model`` has ``fixed_steps``."""
        self._model = model
        self._recorder = recorder
        self._fails = False
        self._steps: OrderedDict[Any, _Step] = OrderedDict()  # the one that was used last at the end
        self._current: tuple[_Step, Memory, int] | None = None  # whose numbers are in place, and with what room
        self._given, self._scores = _Place(), _Place()

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        if self._fails:
            return self._model.encode(source, source_lengths)
        sentences, width = source.shape
        longest, limit = _few_positions(width), self._model.max_source_length()
        count = _few_sentences(sentences)
        filled = F.pad(source, (0, max(width, min(longest, limit or longest)) - width, 0, count - sentences), value=PAD)
        filled[sentences:, 0] = EOS
        lengths = F.pad(source_lengths, (0, count - sentences), value=1)
        at = Rows.first(sentences, count, source.device)
        return ReplayedMemory(self._model.encode(filled, lengths), at, width)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        if not isinstance(memory, ReplayedMemory):
            return self._model.start(memory, beam_size, vocabulary)
        assert vocabulary is None, "every batch would have another output layer"
        room = max(LEAST_STEPS, 1 << (memory.width - 1).bit_length())
        prepared, state = self._model.start(memory.memory, beam_size)
        return replace(memory, memory=prepared), ReplayedState(fixed(state, room), memory.at, beam_size, room)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        if not isinstance(memory, ReplayedMemory):
            return self._model.step(tokens, memory, state, attention)
        assert isinstance(state, ReplayedState)
        if state.made == state.room:
            state = replace(state, state=widened(state.state, 2 * state.room), room=2 * state.room)
        step = self._placed(memory.memory, state)
        step.tokens.fill_(EOS).index_copy_(0, state.at.of_hypotheses(state.beam), tokens)
        output = step.compute(attention) if attention or self._fails else self._repeated(step)
        after = replace(state, state=step.state, made=state.made + 1)
        weights = output.attention
        if weights is not None:
            weights = state.at.asked(weights, state.beam)[:, : memory.width].clone()
        return StepOutput(state.at.asked(output.scores, state.beam), output.normalised, after, weights)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return self._model.max_target_lengths(source_lengths)

    def kept(self) -> tuple[int, int]:
        """How many recordings, and bytes for what they read and write."""
        return len(self._steps), self._given.bytes.numel() + self._scores.bytes.numel()

    def forget(self) -> None:
        """Every recording, and the memory that they hold."""
        self._forget_steps()
        self._given, self._scores = _Place(), _Place()

    def _forget_steps(self) -> None:
        self._steps.clear()
        self._current = None
        self._recorder.forget()

    def _repeated(self, step: _Step) -> StepOutput:
        try:
            if step.repeat is None:
                step.repeat = self._recorder.record(lambda: self._try_out(step), step.compute_in_place)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            first, _, _ = str(error).partition("\n")
            logger.warning("a step cannot be recorded (%s); translating goes on without --cuda-graphs", first)
            self._fails = True
            self._steps.clear()
            self._recorder.forget()
            return step.compute()
        step.repeat()
        assert step.output is not None
        return step.output

    def _try_out(self, step: _Step) -> None:
        """For what a first run sets up, and to know what scores there will be."""
        output = step.try_out()
        if not self._scores.holds([output.scores]):
            for other in self._steps.values():  # what they have recorded writes to the place of before
                other.repeat = None
            self._recorder.forget()
            self._scores.grow([output.scores])
        step.output = replace(output, scores=self._scores.views([output.scores])[0])

    def _placed(self, memory: Memory, state: ReplayedState) -> _Step:
        """The step of that shape, with these numbers."""
        hypotheses = state.at.count * state.beam
        if self._current is not None and self._current[1] is memory and self._current[2] == state.room:
            step = self._current[0]
            if len(step.tokens) == hypotheses:
                _copy(zip(step.kept, tensors(state.state)))
                return step
        shape = (hypotheses, _shape_of(memory), _shape_of(state.state))
        if shape not in self._steps:
            self._steps[shape] = self._new(memory, state.state, hypotheses)
        self._steps.move_to_end(shape)
        step = self._steps[shape]
        _copy(zip([*tensors(step.memory), *step.kept], [*tensors(memory), *tensors(state.state)]))
        self._current = step, memory, state.room
        return step

    def _new(self, memory: Memory, state: DecoderState, hypotheses: int) -> _Step:
        if len(self._steps) >= MOST:
            self._steps.popitem(last=False)
        given = [*tensors(memory), *tensors(state)]
        given.insert(0, given[0].new_empty(hypotheses, dtype=torch.long))
        if not self._given.holds(given):
            self._forget_steps()
            self._given.grow(given)
        views = iter(self._given.views(given))
        tokens = next(views)
        return _Step(
            self._model, tokens, map_tensors(lambda _: next(views), memory), map_tensors(lambda _: next(views), state)
        )


def replayed(model: EncoderDecoder, device: torch.device) -> Decodable:
    """The model with its steps recorded, or as it is where they vary, which is said."""
    if fixed_steps(model, device):
        return Replayed(model, Recordings(device))
    logger.warning("the steps of this model vary and cannot be recorded; translating goes on without --cuda-graphs")
    return model


def fixed_steps(model: EncoderDecoder, device: torch.device) -> bool:
    """Whether all steps of a model launch the same: with room for them, none changes the form of the state."""
    if model.shapes_depend_on_tokens:
        return False
    with torch.inference_mode():
        one = torch.tensor([[EOS]], device=device)
        memory, state = model.start(model.encode(one, torch.ones_like(one[0])), 1)
        state = fixed(state, 2)
        before = _form_of(state)
        return bool(_form_of(model.step(one[0], memory, state).state) == before)


def _few_sentences(sentences: int) -> int:
    """The first of the powers of two, and of these with a half more, that is not below."""
    above: int = 1 << (sentences - 1).bit_length()
    return above * 3 // 4 if sentences <= above * 3 // 4 and above > 2 else above


def _few_positions(width: int) -> int:
    unit = max(POSITIONS, (1 << (width - 1).bit_length()) // 4)
    return -(-width // unit) * unit


def _shape_of(tree: Any) -> tuple[Any, ...]:
    return tuple((tensor.dtype, tensor.size()) for tensor in tensors(tree))


def _form_of(tree: Any) -> Any:
    """The tree with types and shapes in place of its tensors."""
    return map_tensors(lambda tensor: (tensor.dtype, tensor.size()), tree)  # type: ignore[arg-type, return-value]


def _dense(tensor: Tensor) -> tuple[int, ...]:
    """The strides of a tensor with the same order of axes and nothing between its numbers."""
    strides = [0] * tensor.dim()
    step = 1
    for axis in sorted(range(tensor.dim()), key=lambda axis: (tensor.stride(axis), -axis)):
        strides[axis] = step
        step *= tensor.size(axis)
    return tuple(strides)
