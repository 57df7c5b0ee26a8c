"""An engine that calls a function before each search step. The function may do other work, or raise to end the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nmt.data.vocabulary import Floats, Ids, Ints
from nmt.search.decoding import Decoding, Engine, Scores

StepHook = Callable[[], None]


class HookedEngine:
    """Wrap an engine to call ``hook`` before each batch is encoded and before each search step."""

    def __init__(self, engine: Engine, hook: StepHook) -> None:
        self._engine = engine
        self._hook = hook
        self.device = engine.device
        self.longest_source = engine.longest_source
        self.usual_tokens = engine.usual_tokens
        self.interleaves = engine.interleaves

    def forget(self) -> None:
        self._engine.forget()

    def begin(self, sources: Sequence[Ids], beam: int, lists: Sequence[Ids] | None = None) -> Decoding:
        self._hook()
        return _HookedDecoding(self._engine.begin(sources, beam, lists), self._hook)

    def longest_targets(self, source_lengths: Ints) -> Ints | None:
        return self._engine.longest_targets(source_lengths)

    def target_scores(self, sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Floats] | None:
        return self._engine.target_scores(sources, targets)


class _HookedDecoding:
    def __init__(self, decoding: Decoding, hook: StepHook) -> None:
        self._decoding = decoding
        self._hook = hook
        self.leave_freely = decoding.leave_freely

    def step(self, tokens: Ints, attention: bool = False) -> Scores:
        self._hook()
        return self._decoding.step(tokens, attention)

    def follow(self, parents: Ints, staying: Ints) -> None:
        self._decoding.follow(parents, staying)
