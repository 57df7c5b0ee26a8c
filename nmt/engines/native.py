"""The native engine: translates with a Transformer in C on a CPU (nmt/native/decoding.c).

It makes structures of C of the plain description of the weights (nmt.models.transformer.weights), whose matrices and
embeddings are packed (packing.py). Products are computed row by row: the result of a row does not depend on other rows, to
the last bit. In int8, each output of a matrix and each row of its input has a scale.

Legend: B sentences, b unfinished sentences, K beam, N = b*K hypotheses, V vocabulary, S longest source.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from nmt.config.translation import IN_C
from nmt.data.vocabulary import BOS, Floats, Ids, Ints
from nmt.engines.c_scores import CScores, flags_of
from nmt.engines.packing import Matrix, Packing, aligned, whole_panels
from nmt.errors import quantity
from nmt.layers.buckets import bucket_of
from nmt.layers.sinusoids import Sinusoids
from nmt.models.transformer.weights import (
    Attention,
    Buckets,
    LayerWeights,
    LinearWeights,
    NormWeights,
    Recurrence,
    StackWeights,
    TransformerWeights,
)
from nmt.native.library import address, built
from nmt.search.decoding import Candidates, Engine

FIRST_POSITIONS = 256  # sinusoids computed in advance; the table grows
_ACTIVATIONS = ("relu", "gelu", "swish", "gelu_tanh", "sigmoid")  # as layers.h numbers them
_MATRICES = ("projection", "look_output", "query", "memory", "read_output", "inner", "gate", "outer")
_NORMS = ("look_norm", "read_norm", "feed_norm")


class ShortlistMatrices:
    """The output layer restricted to the vocabulary shortlist of each sentence: one matrix for each of B sentences."""

    def __init__(self, m: Matrix, lists: Sequence[Ids]) -> None:
        """``m``: the whole output layer; its arrays must stay in memory."""
        library = built()
        self.longest = max(map(len, lists))
        size = library.packed_bytes(self.longest, m.inputs, m.format)
        room, is_int8 = whole_panels(self.longest), bool(m.scales)
        panels = aligned(size * len(lists)).reshape(len(lists), size)
        scales = np.zeros((len(lists), room), dtype=np.float32) if is_int8 else None
        shifts = np.zeros((len(lists), room), dtype=np.int32) if is_int8 else None
        bias = np.zeros((len(lists), room), dtype=np.float32)
        self.matrices = (Matrix * len(lists))()
        for b, outputs in enumerate(lists):
            padded = np.zeros(self.longest, dtype=np.int64)
            padded[: len(outputs)] = outputs
            absent = (np.arange(self.longest) >= len(outputs)).astype(np.uint8)
            own = [None if part is None else address(part[b]) for part in (panels, scales, shifts, bias)]
            library.select_outputs(ctypes.addressof(m), address(padded), address(absent), self.longest, *own)
            self.matrices[b] = Matrix(*own, self.longest, m.inputs, m.format)
        self._kept = (panels, scales, shifts, bias)


class _CNorm(ctypes.Structure):
    _fields_ = (("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("epsilon", ctypes.c_float))


class _CLayer(ctypes.Structure):
    _fields_ = (
        *[(name, Matrix) for name in _MATRICES],
        *[(name, _CNorm) for name in _NORMS],
        ("norm_first", ctypes.c_int64),
        ("activation", ctypes.c_int64),
        ("recurrent", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("attended", ctypes.c_int64),
        ("look_scale", ctypes.c_float),
        ("read_scale", ctypes.c_float),
        ("biases", ctypes.c_void_p),
        ("reach", ctypes.c_int64),
    )


class _CStack(ctypes.Structure):
    _fields_ = (
        ("embedding", Matrix),
        ("positions", ctypes.c_void_p),
        ("scale", ctypes.c_float),
        ("layers", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("first", _CNorm),
        ("last", _CNorm),
    )


class _CModel(ctypes.Structure):
    _fields_ = (("source", _CStack), ("target", _CStack), ("output", Matrix), ("width", ctypes.c_int64))


class NativeModel:
    """The structures of C, and the arrays that they point to."""

    def __init__(self, weights: TransformerWeights, packing: Packing) -> None:
        """``weights``: with shapes only, if ``packing`` has the numbers."""
        attended = len(weights.source.layers[0].attention.query.weight)
        self._shape = weights.num_heads, weights.width, attended
        self.start = weights.start
        self._packing = packing
        self._kept: list[object] = []  # keeps arrays alive while C has their addresses
        self.output = packing.matrix("output", weights.output)
        self._tables = {id(weights.output.weight): self.output}  # embeddings; a shared one is packed once
        self.longest_source, self.longest_target = _longest(weights.source), _longest(weights.target)
        self._sinusoids = weights.source.positions if isinstance(weights.source.positions, Sinusoids) else None
        self._table = None if self._sinusoids is None else self._sinusoids.table(FIRST_POSITIONS)  # of both stacks
        stacks = self._stack("source", weights.source), self._stack("target", weights.target)
        self._model = _CModel(*stacks, self.output, weights.width)
        self.address = ctypes.addressof(self._model)

    def reach(self, positions: int) -> None:
        """Extend the table of sinusoids to at least this number of positions; learned positions do not grow."""
        if self._sinusoids is None or self._table is None or positions <= len(self._table):
            return
        self._table = self._sinusoids.table(max(positions, 2 * len(self._table)))
        for stack in (self._model.source, self._model.target):
            stack.positions = address(self._table)

    def _stack(self, name: str, weights: StackWeights) -> _CStack:
        count = len(weights.layers)
        biases = self._biases(name, weights)
        every = (
            self._layer(f"{name}.{number}", weights.layers[number], weights.norm_first, biases)
            for number in range(count)
        )
        layers = (_CLayer * count)(*every)
        self._kept.append(layers)
        table = id(weights.embedding)
        if table not in self._tables:
            self._tables[table] = self._packing.matrix(f"{name}.embedding", LinearWeights(weights.embedding))
        positions = self._table
        if isinstance(weights.positions, np.ndarray):
            positions = self._packing.numbers(f"{name}.positions", weights.positions)
        norms = self._norm(f"{name}.first", weights.embedding_norm), self._norm(f"{name}.last", weights.norm)
        place = ctypes.addressof(layers)
        return _CStack(self._tables[table], address(positions), weights.scale, place, count, *norms)

    def _biases(self, name: str, weights: StackWeights) -> tuple[int | None, int]:
        """Return the biases of all distances up to the reach, divided by the scale of the scores, and the reach."""
        positions = weights.positions
        if not isinstance(positions, Buckets) or isinstance(weights.layers[0].self_attention, Recurrence):
            return None, 0
        distances = np.arange(-positions.reach, positions.reach + 1)
        ahead = weights.layers[0].cross_attention is None  # in an encoder
        buckets = bucket_of(distances, positions.table.shape[1], positions.reach, ahead=ahead)
        biases = self._packing.numbers(
            f"{name}.biases", positions.table[:, buckets] / weights.layers[0].attention.scale
        )
        return address(biases), positions.reach

    def _layer(self, name: str, layer: LayerWeights, norm_first: bool, biases: tuple[int | None, int]) -> _CLayer:
        look, read, feed = layer.self_attention, layer.cross_attention, layer.feed_forward
        looking: list[tuple[LinearWeights, ...]]
        if isinstance(look, Recurrence):
            looking, scale = [(look.forget, look.input), ()], 0.0
        else:
            looking, scale = [(look.query, look.key, look.value), (look.output,)], look.scale
        for each in (look, read):  # C computes addresses from this width
            if isinstance(each, Attention):
                widths = {len(linear.weight) for linear in (each.query, each.key, each.value)}
                assert widths == {self._shape[2]}, f"heads of {widths}, which C cannot read"
        reading = [(), (), ()] if read is None else [(read.query,), (read.key, read.value), (read.output,)]
        gate = () if feed.gate is None else (feed.gate,)
        parts = zip(_MATRICES, [*looking, *reading, (feed.inner,), gate, (feed.outer,)])
        norms = zip(_NORMS, (layer.self_norm, layer.cross_norm, layer.feed_forward_norm))
        return _CLayer(
            *(self._packing.matrix(f"{name}.{part}", *maps) if maps else Matrix() for part, maps in parts),
            *(self._norm(f"{name}.{part}", norm) for part, norm in norms),
            norm_first,
            _ACTIVATIONS.index(feed.activation.value),
            isinstance(look, Recurrence),
            *self._shape,
            scale,
            0.0 if read is None else read.scale,
            *biases,
        )

    def _norm(self, name: str, norm: NormWeights | None) -> _CNorm:
        if norm is None:
            return _CNorm()
        weight = self._packing.numbers(f"{name}.weight", norm.weight)
        bias = None if norm.bias is None else self._packing.numbers(f"{name}.bias", norm.bias)
        return _CNorm(address(weight), address(bias), norm.epsilon)


def _longest(stack: StackWeights) -> int | None:
    return len(stack.positions) if isinstance(stack.positions, np.ndarray) else None


class NativeEngine(Engine):
    """A model in one data type. Processes that are forked after it is made share its memory."""

    device = "cpu"
    usual_tokens = IN_C
    interleaves = True  # each batch has its own memory

    def __init__(self, weights: TransformerWeights, packing: Packing) -> None:
        self._model = NativeModel(weights, packing)
        self.longest_source = self._model.longest_source

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> NativeDecoding:
        return NativeDecoding(self._model, sources, beam, lists)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        limit = self._model.longest_target
        return None if limit is None else np.full_like(source_lengths, limit)


class NativeDecoding:
    """The hypotheses of a batch, in memory of C, which ``__del__`` frees."""

    leave_freely = True  # a finished sentence leaves without moving the others

    def __init__(self, model: NativeModel, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None) -> None:
        self._handle: int | None = None
        self._library, self._model = built(), model
        lengths = np.array([len(source) for source in sources])
        offsets = np.concatenate([[0], lengths.cumsum()])
        ids = np.concatenate([np.asarray(source, dtype=np.int64) for source in sources])
        positions = np.concatenate([np.arange(length) for length in lengths])
        self._longest = int(lengths.max())
        model.reach(self._longest)
        self._lists = None if lists is None else _padded(lists)  # [b, V'] the shortlist of each unfinished sentence
        self._own = None if lists is None else ShortlistMatrices(model.output, lists)
        self.pieces = model.output.outputs if self._own is None else self._own.longest
        own = None if self._own is None else ctypes.addressof(self._own.matrices)
        self.beam, self.sentences, self._steps = beam, len(sources), 0
        self._handle = self._library.begin_decoding(
            model.address, len(sources), beam, address(ids), address(positions), address(offsets), own, self.pieces
        )
        if not self._handle:
            raise MemoryError(f"no memory for {quantity(len(sources), 'sentence')}")
        rows = len(sources) * beam
        self._scores = _numbers_at(self._library.decoding_scores(self._handle), (rows, self.pieces))
        self._normaliser = _numbers_at(self._library.decoding_normaliser(self._handle), (rows,))

    def step(self, tokens: Ints, attention: bool = False) -> NativeScores:
        if self._lists is not None:
            tokens = np.take_along_axis(self._lists, tokens.reshape(self.sentences, -1), axis=1).ravel()
        if self._model.start != BOS:
            tokens = np.where(tokens == BOS, self._model.start, tokens)
        self._steps += 1
        self._model.reach(self._steps)
        weights = np.zeros((len(tokens), self._longest), dtype=np.float32) if attention else None
        if not self._library.decoding_step(self._handle, address(tokens), address(weights), self._longest):
            raise MemoryError(f"no memory for {self._steps} steps")
        return NativeScores(self, weights)

    def follow(self, parents: Ints, staying: Ints) -> None:
        parents = np.ascontiguousarray(parents)  # keep a reference: an address does not
        self._library.decoding_follow(self._handle, address(parents), address(staying), len(staying))
        if self._lists is not None and len(staying) < self.sentences:
            self._lists = self._lists[staying]
        self.sentences = len(staying)

    def best(self, totals: Floats, count: int, banned: bytes) -> Candidates:
        """Return the best ``count`` continuations of each sentence (ranking.c). ``banned``: a flag for each low id."""
        floats = np.empty((2, len(totals), count), dtype=np.float32)
        ints = np.empty((2, len(totals), count), dtype=np.int64)
        candidates = Candidates(floats[0], ints[0], ints[1], floats[1])
        places = (address(array) for array in candidates)
        self._library.decoding_best(self._handle, address(totals), count, banned, len(banned), *places)
        return candidates

    @property
    def scores(self) -> Floats:
        """[N, V] of the last step; the next step overwrites them."""
        return self._scores[: self.sentences * self.beam]

    @property
    def normaliser(self) -> Floats:
        """[N] the log-sum-exp of the scores."""
        return self._normaliser[: self.sentences * self.beam]

    def __del__(self) -> None:
        if self._handle:
            self._library.end_decoding(self._handle)
            self._handle = None


class NativeScores(CScores):
    """The scores of one step, and the maxima of their blocks, in memory of C."""

    def __init__(self, decoding: NativeDecoding, attention: Floats | None) -> None:
        super().__init__(decoding.scores, attention, normalized=False)
        self._normaliser = decoding.normaliser
        self._decoding = decoding

    def best(self, totals: Floats, count: int, banned: Sequence[int]) -> Candidates:
        if self._ranked is not self._scores:  # a search rule changed the scores
            return super().best(totals, count, banned)
        return self._decoding.best(np.ascontiguousarray(totals), count, flags_of(banned))


def _numbers_at(begin: int, shape: tuple[int, ...]) -> Floats:
    return np.ctypeslib.as_array(ctypes.cast(begin, ctypes.POINTER(ctypes.c_float)), shape)


def _padded(lists: Sequence[Ids]) -> Ints:
    longest = max(map(len, lists))
    whole = np.zeros((len(lists), longest), dtype=np.int64)
    for row, pieces in zip(whole, lists):
        row[: len(pieces)] = pieces
    return whole
