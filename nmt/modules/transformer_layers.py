"""The layers of the Transformer: Vaswani et al. 2017, section 3.1 and figure 1.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, D model width, H heads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from nmt.modules import native_layers
from nmt.modules.attention import CrossAttention, SelfAttention
from nmt.modules.autoregression import Autoregression, Lineage, Past
from nmt.modules.dropout import Dropout
from nmt.modules.native import SlotCache, SlotSight
from nmt.modules.plain import plain, require_own
from nmt.modules.positions import Positions
from nmt.modules.residual import Residual
from nmt.modules.sight import FlatSight, Segments, Sight
from nmt.native.layers import Layer as NativeLayer


class Record:
    """What the layers of one pass leave behind besides their result."""

    def __init__(self, kinds: Sequence[str] = (), lengths: Tensor | None = None) -> None:
        """``kinds`` of attention that are asked for; real ``lengths`` [B] of the sentences (None: no padding)."""
        self.attention: dict[str, list[Tensor]] = {kind: [] for kind in kinds}  # weights, by layer
        self.lengths = lengths
        self.usage: list[Tensor] = []  # of experts, by layer that has some: [real positions, ...]

    def of(self, kind: str) -> list[Tensor] | None:
        """Where the weights of a kind of attention go; None: nobody asks."""
        return self.attention.get(kind)


@dataclass(frozen=True)
class LayerParts:
    """What the layers of a model are made of: functions, each of which makes a fresh part."""

    source_attention: Callable[[], SelfAttention]
    target_attention: Callable[[], Autoregression]
    cross_attention: Callable[[], CrossAttention]
    feed_forward: Callable[[], nn.Module]
    residual: Callable[[], Residual]


class InputLayer(nn.Module):
    """Dropout(embedding + position): sections 3.4, 3.5 and 5.4."""

    def __init__(self, embedding: nn.Module, positions: Positions, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = positions
        self.dropout = Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]"""
        embedded: Tensor = self.embedding(ids)
        dropped: Tensor = self.dropout(embedded + self.positions.first(ids.size(1)))
        return dropped

    def flat(self, ids: Tensor, segments: Segments) -> Tensor:
        """[B, T] -> [1, M, D]: without padding"""
        return self.at(segments.flatten(ids), segments.places.queries, segments.longest)[None]

    def at(self, tokens: Tensor, positions: Tensor, bound: int) -> Tensor:
        """One token a row, [N] at positions [N], all below ``bound`` -> [N, D]"""
        embedded: Tensor = self.embedding(tokens)
        dropped: Tensor = self.dropout(embedded + self.positions.at(positions, bound))
        return dropped


class SourceLayer(nn.Module, ABC):
    """A layer of the encoder. The layers of a stack see alike: the first one says what, once for all."""

    @property
    def flat(self) -> bool:
        """Whether it can do without padding (``along``) as it is set now."""
        return False

    def along(self, segments: Segments) -> FlatSight:
        """The sight of sentences without padding, where the layer is ``flat``."""
        raise NotImplementedError

    def natively(self) -> NativeLayer | None:
        """The layer in C, where that knows all its parts."""
        return None

    @abstractmethod
    def around(self, padding: Tensor) -> Sight:
        """``padding`` [B, 1, 1, S] is -inf at padding."""

    @abstractmethod
    def forward(self, x: Tensor, sight: Sight, record: Record) -> Tensor:
        """[B, S, D] -> [B, S, D]"""


class EncoderLayer(SourceLayer):
    """Self-attention and a feed-forward network."""

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.source_attention()
        self.self_residual = parts.residual()
        self.feed_forward = parts.feed_forward()
        self.feed_forward_residual = parts.residual()

    @property
    def flat(self) -> bool:
        return self.self_attention.flat

    def along(self, segments: Segments) -> FlatSight:
        return self.self_attention.along(segments)

    def around(self, padding: Tensor) -> Sight:
        return self.self_attention.around(padding)

    def forward(self, x: Tensor, sight: Sight, record: Record) -> Tensor:
        x = self.self_residual(x, lambda y: self.self_attention(y, sight, record.of("encoder")))
        return self.feed(x, record)

    def natively(self) -> NativeLayer | None:
        if type(self) is not EncoderLayer:
            return None
        return native_layers.layer_of(
            self.self_attention, self.self_residual, self.feed_forward, self.feed_forward_residual
        )

    def feed(self, x: Tensor, record: Record) -> Tensor:
        """The last sublayer: [B, S, D] -> [B, S, D]"""
        fed: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return fed


MemoryHeads = tuple[Tensor, Tensor]  # keys [B, H, S, d_k] and values [B, H, S, d_v] of the memory


# x, its past, what it sees of that, the memory, what it sees of that, and what is recorded
Step = Callable[[Tensor, Past, Sight, MemoryHeads, Sight, Record], tuple[Tensor, Past]]


class TargetLayer(nn.Module, ABC):
    """A layer of the decoder. The layers of a stack see alike: the first one says what, once for all."""

    @property
    def flat(self) -> bool:
        """Whether it can do without padding (``along``) as it is set now."""
        return False

    def along(self, segments: Segments) -> FlatSight:
        """The sight of sentences without padding, where the layer is ``flat``."""
        raise NotImplementedError

    @abstractmethod
    def project(self, states: Tensor) -> MemoryHeads:
        """What the layer reads of the memory's states [B, S, D]."""

    @abstractmethod
    def prepare(self, states: Tensor) -> MemoryHeads:
        """The same for steps, once for all of them."""

    @abstractmethod
    def whole(self, x: Tensor) -> Sight:
        """The sight of all positions of x [B, T, D]."""

    def forward(self, x: Tensor, sight: Sight, states: Tensor, seen: Sight, record: Record) -> Tensor:
        """All positions at once: [B, T, D] -> [B, T, D]; ``seen``: what may be seen of the memory's states [B, S, D]."""
        return self.read(x, sight, self.project(states), seen, record)

    @abstractmethod
    def read(self, x: Tensor, sight: Sight, memory: MemoryHeads, seen: Sight, record: Record) -> Tensor:
        """The same, of what ``project`` gave."""

    @abstractmethod
    def start(self, sentences: int, beam: int, like: Tensor) -> Past:
        """The past of hypotheses that have none yet."""

    def start_fixed(self, sentences: int, beam: int, steps: int, like: Tensor) -> Past | None:
        """The same with room for so many steps, none of which changes a shape; None: the layer cannot."""
        return None

    @abstractmethod
    def now(self, past: Past, lineage: Lineage) -> Sight:
        """The sight of one step."""

    @abstractmethod
    def stepper(self) -> Step:
        """What computes one position, [B, K, D] -> [B, K, D], and the past with that position in it. Made anew whenever
        decoding begins (see plain.py)."""


class DecoderLayer(TargetLayer):
    """Self-attention over what is written so far, attention over the memory, and a feed-forward network.

    ``self_attention`` keeps its name in saved models, whatever stands in its place.
    """

    def __init__(self, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention = parts.target_attention()
        self.self_residual = parts.residual()
        self.cross_attention = parts.cross_attention()
        self.cross_residual = parts.residual()
        self.feed_forward = parts.feed_forward()
        self.feed_forward_residual = parts.residual()

    @property
    def flat(self) -> bool:
        return self.self_attention.flat and self.cross_attention.flat

    def along(self, segments: Segments) -> FlatSight:
        return self.self_attention.along(segments)

    def project(self, states: Tensor) -> MemoryHeads:
        return self.cross_attention.project(states)

    def prepare(self, states: Tensor) -> MemoryHeads:
        return self.cross_attention.prepare(states)

    def whole(self, x: Tensor) -> Sight:
        return self.self_attention.whole(x)

    def read(self, x: Tensor, sight: Sight, memory: MemoryHeads, seen: Sight, record: Record) -> Tensor:
        x = self.self_residual(x, lambda y: self.self_attention(y, sight, record.of("decoder")))
        return self._read_memory(x, memory, seen, record)

    def start(self, sentences: int, beam: int, like: Tensor) -> Past:
        return self.self_attention.start(sentences, beam, like)

    def start_fixed(self, sentences: int, beam: int, steps: int, like: Tensor) -> Past | None:
        return self.self_attention.start_fixed(sentences, beam, steps, like)

    def now(self, past: Past, lineage: Lineage) -> Sight:
        return self.self_attention.now(past, lineage)

    def stepper(self) -> Step:
        step, native = self._stepper(), self.natively()
        if native is None:
            return step
        layer = native

        def whole(
            x: Tensor, past: Past, sight: Sight, memory: MemoryHeads, seen: Sight, record: Record
        ) -> tuple[Tensor, Past]:
            if isinstance(sight, SlotSight) and isinstance(past, SlotCache) and record.of("cross") is None:
                return native_layers.step(layer, x, past, sight, memory, seen)
            return step(x, past, sight, memory, seen, record)

        return whole

    def natively(self) -> NativeLayer | None:
        """The layer in C, where that knows all its parts."""
        if type(self) is not DecoderLayer:
            return None
        looking, reading = (self.self_attention, self.self_residual), (self.cross_attention, self.cross_residual)
        return native_layers.target_layer_of(*looking, *reading, self.feed_forward, self.feed_forward_residual)

    def _stepper(self) -> Step:
        require_own(self, "_stepper", "forward", "read", "_read_memory")
        require_own(self, "_feeder", "feed")
        for residual in (self.self_residual, self.cross_residual, self.feed_forward_residual):
            require_own(residual, "halves", "forward")
        look_back, read, feed = self.self_attention.stepper(), plain(self.cross_attention), self._feeder()
        (before_look, after_look), (before_read, after_read), (before_feed, after_feed) = (
            residual.halves() for residual in (self.self_residual, self.cross_residual, self.feed_forward_residual)
        )

        def step(
            x: Tensor, past: Past, sight: Sight, memory: MemoryHeads, seen: Sight, record: Record
        ) -> tuple[Tensor, Past]:
            seen_back, past = look_back(before_look(x), past, sight)
            x = after_look(x, seen_back)
            x = after_read(x, read(before_read(x), *memory, seen, record.of("cross")))
            return after_feed(x, feed(before_feed(x), record)), past

        return step

    def _feeder(self) -> Callable[[Tensor, Record], Tensor]:
        """The last sublayer without its residual connection."""
        feed = plain(self.feed_forward)
        return lambda x, record: feed(x)

    def _read_memory(self, x: Tensor, memory: MemoryHeads, seen: Sight, record: Record) -> Tensor:
        x = self.cross_residual(x, lambda y: self.cross_attention(y, *memory, seen, record.of("cross")))
        return self.feed(x, record)

    def feed(self, x: Tensor, record: Record) -> Tensor:
        """The last sublayer: [..., T, D] -> [..., T, D]"""
        fed: Tensor = self.feed_forward_residual(x, self.feed_forward)
        return fed
