"""A ``Decodable`` whose search steps are recorded as CUDA graphs and replayed, so that a GPU does not wait for Python.

A recording reads and writes fixed tensors. Therefore states have room for future steps, batches are padded to few shapes,
and the memory and state of a batch are copied to the tensors of the recording with that shape. Finished sentences stay in
their rows, and their results are ignored, until half of the rows are enough.

Legend: B sentences, R rows for sentences in a recording, K beam, N = B*K hypotheses, S source positions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.vocabulary import EOS, PAD, Floats, Ids
from nmt.engines.model_engine import ModelEngine, teacher_forced_scores
from nmt.interface import DecoderState, EncoderDecoder, Memory, StepOutput
from nmt.models.transformer.autoregression import BeamHistory, KeyValueCache
from nmt.trees import map_tensors, tensors, with_parts

logger = logging.getLogger("nmt.search")

Function = Callable[[], object]
Tree = TypeVar("Tree")

POSITION_UNIT = 16  # sources are padded to a multiple of it; long ones to larger multiples
FIRST_ROOM = 32  # least number of steps that a new state has room for; it doubles when full
MOST_RECORDINGS = 16  # kept at once, each with its own memory and state
_NOBODY = -1  # in a slot of a future step: part of no beam history


class Recordings:
    """Records what a function launches on a GPU. The recordings share working memory, so only one may run at a time."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: Any = None
        self._pool: Any = None

    def record(self, warm_up: Function, function: Function) -> Callable[[], None]:
        """Run ``warm_up`` normally, record ``function``, and return a function that replays the recording.

        A replay reads and writes the same addresses as ``function``: only the values in its tensors may change.
        ``function`` must not read a number of a tensor in Python.
        """
        with torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            self._stream.wait_stream(before)
            with torch.cuda.stream(self._stream):  # libraries allocate their memory for this stream here
                warm_up()
            before.wait_stream(self._stream)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self._stream), _uncollected():
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                try:
                    function()
                except BaseException:
                    with contextlib.suppress(RuntimeError):
                        graph.capture_end()
                    raise
                graph.capture_end()

        def repeat() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        return repeat

    def forget(self) -> None:
        """Give the next recordings new memory: outputs of the old ones may still be read."""
        self._pool = None


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Switch garbage collection off: it may free memory of a GPU, which ends a recording."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass
class FixedBeamHistory(BeamHistory):
    """A beam history with room for future steps. ``length`` stays 0: the tensors hold the number of steps."""

    @property
    def bound(self) -> int:
        return self.slots.size(1)

    def entered(self) -> FixedBeamHistory:
        own = self._every_slot().repeat(self.positions.size(0) // self.beam)
        return replace(self, slots=self.slots.scatter(1, self.positions[:, None], own[:, None]))

    def passed(self) -> FixedBeamHistory:
        return replace(self, positions=self.positions + 1)

    @property
    def _has_others(self) -> bool:
        return True  # at least those of future steps


@dataclass
class FixedKeyValueCache(KeyValueCache):
    """A cache with room for ``length`` steps. Attention computes all of them; the mask forbids future ones."""

    num_steps: Tensor = dataclasses.field(default_factory=lambda: torch.empty(0))  # [B] steps

    def rows(self, index: Tensor) -> FixedKeyValueCache:
        moved = super().rows(index)
        return self if moved is self else replace(moved, num_steps=self.num_steps[: moved.keys.size(0)])

    def append(self, keys: Tensor, values: Tensor) -> FixedKeyValueCache:
        column = self.num_steps[:1]
        self.keys.index_copy_(2, column, keys.unsqueeze(2))
        self.values.index_copy_(2, column, values.unsqueeze(2))
        return replace(self, num_steps=self.num_steps + 1)


def with_room(node: Tree, room: int) -> Tree:
    """Return a state with room for ``room`` steps in each part that grows. The state must be new, or have room already."""
    part: Any = node
    if isinstance(part, BeamHistory):
        slots = F.pad(part.slots, (0, room - part.slots.size(1)), value=_NOBODY)
        part = FixedBeamHistory(part.positions, slots, part.beam)
    elif isinstance(part, FixedKeyValueCache):
        part = replace(part.padded(room), length=room)
    elif type(part) is KeyValueCache:
        empty = part.padded(room).map(torch.zeros_like)  # zeros, because a mask does not remove NaN
        none = torch.zeros(len(part.keys), dtype=torch.long, device=part.keys.device)
        part = FixedKeyValueCache(empty.keys, empty.values, room, none)
    else:
        part = with_parts(lambda child: with_room(child, room), part)
    result: Tree = part
    return result


@dataclass
class Rows:
    """The rows of a recording that hold the unfinished sentences of a search."""

    places: Tensor  # [B]
    count: int  # R
    in_order: bool  # the sentences are the first B rows

    @classmethod
    def first(cls, sentences: int, count: int, device: torch.device) -> Rows:
        return cls(torch.arange(sentences, device=device), count, True)

    def of_hypotheses(self, beam: int) -> Tensor:
        """[N]"""
        return (self.places[:, None] * beam + torch.arange(beam, device=self.places.device)).flatten()

    def select(self, values: Tensor, beam: int) -> Tensor:
        """Return the rows of unfinished sentences: [R * K, ...] -> [N, ...]."""
        return values[: len(self.places) * beam] if self.in_order else values[self.of_hypotheses(beam)]

    def keeping(self, staying: Tensor) -> tuple[Rows, Tensor | None]:
        """Drop the other sentences. Also returns the old rows [R'] of the new, fewer rows; None: all rows stay."""
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
    width: int  # of the source before padding

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
    steps: int = 0  # made so far

    def rows(self, index: Tensor) -> ReplayedState:
        hypotheses = self.at.of_hypotheses(self.beam)
        at, moved = self.at, None
        if len(index) < len(hypotheses):
            at, moved = self.at.keeping(index[:: self.beam] // self.beam)
        if moved is None:
            every = torch.arange(at.count * self.beam, device=index.device)
            chosen = every.index_copy(0, at.of_hypotheses(self.beam), hypotheses[index])
        else:
            chosen = _filled(hypotheses[index], at.count * self.beam, self.beam)
        return replace(self, state=self.state.rows(chosen), at=at)


def _filled(rows: Tensor, count: int, unit: int = 1) -> Tensor:
    """Extend rows to ``count`` by repeating the first ``unit``."""
    return torch.cat([rows, rows[:unit].repeat((count - len(rows)) // unit)])


class _RecordedStep:
    """A step of one shape: its fixed tensors, and the function that replays it."""

    def __init__(self, model: EncoderDecoder, hypotheses: int, memory: Memory, state: DecoderState) -> None:
        self._model = model
        self.tokens = torch.empty(hypotheses, dtype=torch.long, device=next(tensors(memory)).device)
        self.memory, self.state = memory.clone(), state.clone()
        self.kept = list(tensors(self.state))
        self.output: StepOutput | None = None  # the tensors that each replay writes
        self.repeat: Callable[[], None] | None = None

    def compute(self, attention: bool = False) -> StepOutput:
        """Compute the step, and write the next state over the old one."""
        output = self._model.step(self.tokens, self.memory, self.state, attention)
        copy(zip(self.kept, tensors(output.state)))
        return output

    def record(self, recordings: Recordings) -> None:
        def function() -> None:
            self.output = self.compute()

        # the warm-up discards its new state, so the step can be repeated
        self.repeat = recordings.record(lambda: self._model.step(self.tokens, self.memory, self.state), function)


def copy(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Copy the second tensor of each pair into the first. Pairs may share memory: all are read before one is written."""
    pairs = [(tensor, other) for tensor, other in pairs if tensor is not other]
    written = {tensor.untyped_storage().data_ptr() for tensor, _ in pairs}
    read = [other.clone() if other.untyped_storage().data_ptr() in written else other for _, other in pairs]
    for (tensor, _), other in zip(pairs, read):
        tensor.copy_(other)


class Replayed:
    """A model on a GPU with recorded steps. It serves one search at a time."""

    def __init__(self, model: EncoderDecoder, recordings: Recordings) -> None:
        """``model``: one for which ``fixed_steps`` is true."""
        self.model = model
        self._recordings = recordings
        self.fails = False  # a step could not be recorded
        self.steps: OrderedDict[Any, _RecordedStep] = OrderedDict()  # by shape, least recently used first
        # The recording that holds the current batch, its memory and room.
        self._current: tuple[_RecordedStep, Memory, int] | None = None

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        if self.fails:
            return self.model.encode(source, source_lengths)
        sentences, width = source.shape
        # few shapes: 2^n or 1.5 * 2^n sentences, and multiples of a unit of positions
        count = 1 << (sentences - 1).bit_length()
        count = count * 3 // 4 if sentences <= count * 3 // 4 and count > 2 else count
        unit = max(POSITION_UNIT, (1 << (width - 1).bit_length()) // 4)
        longest, limit = -(-width // unit) * unit, self.model.max_source_length()
        filled = F.pad(source, (0, max(width, min(longest, limit or longest)) - width, 0, count - sentences), value=PAD)
        filled[sentences:, 0] = EOS
        lengths = F.pad(source_lengths, (0, count - sentences), value=1)
        at = Rows.first(sentences, count, source.device)
        return ReplayedMemory(self.model.encode(filled, lengths), at, width)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        if not isinstance(memory, ReplayedMemory):
            return self.model.start(memory, beam_size, vocabulary)
        assert vocabulary is None, "every batch would have another output layer"
        room = max(FIRST_ROOM, 1 << (memory.width - 1).bit_length())
        prepared, state = self.model.start(memory.memory, beam_size)
        return replace(memory, memory=prepared), ReplayedState(with_room(state, room), memory.at, beam_size, room)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        if not isinstance(memory, ReplayedMemory):
            return self.model.step(tokens, memory, state, attention)
        assert isinstance(state, ReplayedState)
        if state.steps == state.room:
            state = replace(state, state=with_room(state.state, 2 * state.room), room=2 * state.room)
        step = self._placed(memory.memory, state)
        step.tokens.fill_(EOS).index_copy_(0, state.at.of_hypotheses(state.beam), tokens)
        output = step.compute(attention) if attention or self.fails else self._repeated(step)
        after = replace(state, state=step.state, steps=state.steps + 1)
        weights = output.attention
        if weights is not None:
            weights = state.at.select(weights, state.beam)[:, : memory.width].clone()
        return StepOutput(state.at.select(output.scores, state.beam), output.normalized, after, weights)

    def max_target_lengths(self, source_lengths: Tensor) -> Tensor | None:
        return self.model.max_target_lengths(source_lengths)

    def forget(self) -> None:
        """Delete all recordings and their memory."""
        self.steps.clear()
        self._current = None
        self._recordings.forget()

    def _repeated(self, step: _RecordedStep) -> StepOutput:
        try:
            if step.repeat is None:
                step.record(self._recordings)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            first, _, _ = str(error).partition("\n")
            logger.warning("a step cannot be recorded (%s); translation continues without --cuda-graphs", first)
            self.fails = True
            self.forget()
            return step.compute()
        assert step.repeat is not None and step.output is not None
        step.repeat()
        return step.output

    def _placed(self, memory: Memory, state: ReplayedState) -> _RecordedStep:
        """Return the recording of this shape, with the memory and state copied into its tensors."""
        hypotheses = state.at.count * state.beam
        if self._current is not None and self._current[1] is memory and self._current[2] == state.room:
            step = self._current[0]
            if len(step.tokens) == hypotheses:
                copy(zip(step.kept, tensors(state.state)))
                return step
        shape = (
            hypotheses,
            *((tensor.dtype, tensor.size()) for part in (memory, state.state) for tensor in tensors(part)),
        )
        if shape not in self.steps:
            if len(self.steps) >= MOST_RECORDINGS:
                self.steps.popitem(last=False)
            self.steps[shape] = _RecordedStep(self.model, hypotheses, memory, state.state)
        self.steps.move_to_end(shape)
        step = self.steps[shape]
        copy(zip([*tensors(step.memory), *step.kept], [*tensors(memory), *tensors(state.state)]))
        self._current = step, memory, state.room
        return step


class RecordedEngine(ModelEngine):
    """An engine that replays recorded steps."""

    model: Replayed
    interleaves = False  # recordings share their memory

    def forget(self) -> None:
        self.model.forget()
        super().forget()

    def target_scores(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Floats]:
        return teacher_forced_scores(self.model.model, self.device, sources, targets)


def recorded_engine(model: EncoderDecoder, device: str) -> ModelEngine:
    """Return an engine that records steps, or with a warning one that does not, if the shapes of the model's steps vary."""
    there, limit = torch.device(device), model.max_source_length()
    if fixed_steps(model, there):
        return RecordedEngine(Replayed(model, Recordings(there)), device, longest_source=limit)
    logger.warning(
        "the steps of this model vary in shape and cannot be recorded; translation continues without --cuda-graphs"
    )
    return ModelEngine(model, device, longest_source=limit)


def fixed_steps(model: EncoderDecoder, device: torch.device) -> bool:
    """Whether all steps of a model launch the same kernels: a step does not change the shapes of a state with room."""
    if model.shapes_depend_on_tokens:
        return False
    with torch.inference_mode():
        source = torch.tensor([[EOS]], device=device)
        memory, state = model.start(model.encode(source, torch.ones_like(source[0])), 1)
        state = with_room(state, 2)
        before = shapes_of(state)
        return bool(shapes_of(model.step(source[0], memory, state).state) == before)


def shapes_of(tree: Any) -> Any:
    """Return the tree with the type and shape of each tensor in its place."""
    return map_tensors(lambda tensor: (tensor.dtype, tensor.size()), tree)  # type: ignore[arg-type, return-value]
