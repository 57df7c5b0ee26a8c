"""Lines in windows, windows in batches of like lengths, and translations in the order of the lines again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nmt.data.batching import plan_batches
from nmt.data.hypothesis import Ids
from nmt.search.requests import Request
from nmt.translation.lines import TranslatedText

Progress = Callable[[int], None]  # called with the number of lines that were just translated


@dataclass(frozen=True)
class Source:
    """One line, in the parts that are translated one by one: none if there is nothing to translate, nearly always one."""

    number: int
    text: str
    parts: tuple[Ids, ...]  # without eos
    request: Request = Request()
    cut: bool = False  # its end is left out

    def asked(self, part: int) -> Request:
        """Of a part's translation what is asked of the whole one, which begins with the first."""
        return self.request if part == 0 else replace(self.request, prefix=())


@dataclass(frozen=True)
class Part:
    """What goes into a batch."""

    line: int  # counted from the first of its window
    index: int  # among the parts of its line
    number: int  # of the line, for messages
    text: str  # of the whole line
    first: int  # piece of the line
    ids: Ids
    request: Request

    @property
    def pieces(self) -> int:
        """Of the source, or of what is scored if that is longer."""
        return max(len(self.ids), len(self.request.target))


Batch = list[Part]
Found = list[list[TranslatedText]]  # by part of a batch, the translations of each, best first
Answer = tuple[Source, list[list[TranslatedText]], bool]  # by part of a line; True: the last of its window
Run = Callable[[Iterator[Batch | None]], Iterator[tuple[Batch, Found] | None]]


@dataclass
class Window:
    """Lines that are read together, and what is known of their translations."""

    sources: Sequence[Source]
    pause: bool = False  # nothing more is at hand: these lines are to be answered before the next are read
    found: dict[tuple[int, int], list[TranslatedText]] = field(default_factory=dict)

    @property
    def parts(self) -> list[Part]:
        return [
            Part(line, index, source.number, source.text, sum(map(len, source.parts[:index])), ids, source.asked(index))
            for line, source in enumerate(self.sources)
            for index, ids in enumerate(source.parts)
        ]

    @property
    def complete(self) -> bool:
        return len(self.found) == sum(len(source.parts) for source in self.sources)

    def add(self, batch: Batch, found: Found) -> None:
        self.found |= {(part.line, part.index): texts for part, texts in zip(batch, found)}

    def answers(self) -> Iterator[Answer]:
        """Each line and the translations of its parts."""
        for line, source in enumerate(self.sources):
            yield source, [self.found[line, index] for index in range(len(source.parts))], line == len(self.sources) - 1


def in_order(
    windows: Iterable[Window], plan: Callable[[list[Part]], list[Batch]], run: Run, progress: Progress | None
) -> Iterator[Answer]:
    """Lines with the translations of their parts, in the order of the windows, whatever ``run`` does side by side."""
    waiting: deque[Window] = deque()
    window_of: dict[int, Window] = {}  # by the identity of its batches

    def batches() -> Iterator[Batch | None]:
        for window in windows:
            waiting.append(window)
            planned = plan(window.parts)
            for batch in planned:
                window_of[id(batch)] = window
                yield batch
            if window.pause or not planned:
                yield None

    for done in run(batches()):
        if done is not None:
            batch, found = done
            window_of.pop(id(batch)).add(batch, found)
            if progress is not None:
                progress(sum(part.index == 0 for part in batch))
        while waiting and waiting[0].complete:
            window = waiting.popleft()
            if progress is not None:
                progress(sum(not source.parts for source in window.sources))
            yield from window.answers()


def batches_of(parts: list[Part], max_tokens: int, batch_size: int | None) -> list[Batch]:
    """Of like lengths, the longest first: if memory is short, that shows at once."""
    if not parts:
        return []
    sources = np.array([len(part.ids) + 1 for part in parts], dtype=np.int64)
    targets = np.array([len(part.request.target) + 1 for part in parts], dtype=np.int64)  # what is scored, if anything
    budget = max(max_tokens, int(sources.max()), int(targets.max()))  # a line alone is always let through
    plan = plan_batches(sources, targets, max_tokens=budget, batch_size=batch_size, shuffle=False)
    return [[parts[index] for index in batch] for batch in reversed(plan)]
