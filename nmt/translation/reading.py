"""From lines of text, or a split of a corpus, to windows of pieces, to batches of like lengths, and back to the order of the
lines."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nmt.config.choices import LongLines, PieceMarks
from nmt.config.commands import GenerateConfig
from nmt.config.sections import BatchingConfig
from nmt.data.batching import plan_batches
from nmt.data.corpus import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.tags import apart, tag_id, tagged
from nmt.data.text import PAUSE, require_text
from nmt.data.vocabulary import EOS, UNK, Ids
from nmt.errors import DataError, UsageError
from nmt.search.decoding import Engine
from nmt.search.requests import Phrase, Request, clash, fits
from nmt.translation.lines import Given, Line, TranslatedText, divided

Progress = Callable[[int], None]  # called with the number of lines that were just translated
logger = logging.getLogger("nmt.translation")


@dataclass(frozen=True)
class Source:
    """One line, in the parts that are translated one by one: none if there is nothing to translate, nearly always one."""

    number: int
    text: str
    parts: tuple[Ids, ...]  # without eos
    request: Request = Request()
    cut: bool = False  # its end is left out
    tags: int = 0  # pieces at the beginning of each part that say which language is wanted
    pieces: int = 0  # of the whole line, tags left out


@dataclass(frozen=True)
class Part:
    """What goes into a batch."""

    line: int  # counted from the first of its window
    index: int  # among the parts of its line
    number: int  # of the line, for messages
    text: str  # of the whole line
    first: int  # piece of the line, tags left out
    ids: Ids
    request: Request
    tags: int = 0
    of: int = 0  # pieces of the line, tags left out

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
    def parts(self) -> Iterator[Part]:
        """Of a part's translation is asked what is asked of the whole one, which begins with the first part."""
        for line, source in enumerate(self.sources):
            first, asked = 0, source.request
            for index, ids in enumerate(source.parts):
                yield Part(line, index, source.number, source.text, first, ids, asked, source.tags, source.pieces)
                first, asked = first + len(ids) - source.tags, replace(asked, prefix=())


def in_order(
    windows: Iterable[Window], plan: Callable[[list[Part]], list[Batch]], run: Run, progress: Progress
) -> Iterator[Answer]:
    """Lines with the translations of their parts, in the order of the windows, whatever ``run`` does side by side."""
    waiting: deque[Window] = deque()
    window_of: dict[int, Window] = {}  # by the identity of its batches

    def batches() -> Iterator[Batch | None]:
        for window in windows:
            waiting.append(window)
            planned = plan(list(window.parts))
            for batch in planned:
                window_of[id(batch)] = window
                yield batch
            if window.pause or not planned:
                yield None

    for done in run(batches()):
        if done is not None:
            batch, found = done
            of_parts = {(part.line, part.index): texts for part, texts in zip(batch, found)}
            window_of.pop(id(batch)).found.update(of_parts)
            progress(sum(part.index == 0 for part in batch))
        while waiting and len(waiting[0].found) == sum(len(source.parts) for source in waiting[0].sources):
            window = waiting.popleft()
            progress(sum(not source.parts for source in window.sources))
            for line, source in enumerate(window.sources):
                texts_of = [window.found[line, index] for index in range(len(source.parts))]
                yield source, texts_of, line == len(window.sources) - 1


def batches_of(parts: list[Part], max_tokens: int, batch_size: int | None) -> list[Batch]:
    """Of like lengths, the longest first: if memory is short, that shows at once."""
    if not parts:
        return []
    sources = np.array([len(part.ids) + 1 for part in parts], dtype=np.int64)
    targets = np.array([len(part.request.target) + 1 for part in parts], dtype=np.int64)  # what is scored, if anything
    budget = max(max_tokens, int(sources.max()), int(targets.max()))  # a line alone is always let through
    plan = plan_batches(sources, targets, BatchingConfig(budget, batch_size=batch_size), shuffle=False)
    return [[parts[index] for index in batch] for batch in reversed(plan)]


@dataclass(frozen=True)
class Reader:
    """Reads for one model."""

    pair: LanguagePair
    config: GenerateConfig
    engine: Engine
    called: str = "line"  # what messages call the lines

    def windows_of_lines(self, lines: Iterable[Given], numbers: Iterable[int]) -> Iterator[Window]:
        """A window closes when it is full, at the end, and when the lines pause."""
        numbered, window = iter(numbers), list[Line]()
        for line in lines:
            if line is not PAUSE:
                window.append(line if isinstance(line, Line) else Line(line or ""))
            if line is PAUSE or len(window) == self.config.buffer_size:
                yield self._window(window, numbered, pause=line is PAUSE)
                window = []
        if window:
            yield self._window(window, numbered)

    def windows_of_split(self, split: Split, numbers: Iterable[int]) -> Iterator[Window]:
        texts, remaining = split.sources.text(), iter(numbers)
        source = self.pair.source.joining(PieceMarks.none)  # a source is shown as it was given
        while numbered := list(itertools.islice(remaining, self.config.buffer_size)):
            window = []
            for number in numbered:
                tag, ids = self._apart(split.source(number)[:-1], asked=self.config.tag is not None)
                text = texts[number] if texts is not None else source.decode(ids.tolist())
                target = tuple(split.target(number)[:-1].tolist()) if self.config.score_reference else ()
                window.append(self._source(number, text, ids, Request(target=target), self._tag(tag, self.config.tag)))
            yield Window(window)

    def _window(self, lines: list[Line], numbers: Iterator[int], pause: bool = False) -> Window:
        texts, numbered = [line.text for line in lines], list(itertools.islice(numbers, len(lines)))
        require_text(texts, numbered[0] + 1 if numbered else 1)
        encoded = self.pair.source.encode([text if text.strip() else "" for text in texts])
        sources = []
        for number, line, ids in zip(numbered, lines, encoded):
            tag, rest = self._apart(ids, asked=bool(line.tag) or self.config.tag is not None)
            tag = self._line_tag(line, tag, number + 1)
            sources.append(self._source(number, line.text, rest, self._request(line, number + 1), tag))
        return Window(sources, pause)

    def _apart(self, ids: Ids, *, asked: bool) -> tuple[Ids, Ids]:
        """The tag that a line begins with, if it does, and the rest. A model that was made without reads a line that is
        nothing but that as it stands, unless a tag is ``asked`` for."""
        tag, rest = apart(ids, self.pair.source.vocabulary)
        return (tag, rest) if len(rest) or asked or self.pair.tag is not None else (rest, ids)

    def _line_tag(self, line: Line, typed: Ids, number: int) -> Ids:
        if self.pair.tag is not None:
            typed = typed[-1:]  # no space stood before it when the model was trained
        if not line.tag:
            return typed if len(typed) else self._tag(self.pair.before_sources(), self.config.tag)
        try:
            return self._tag(typed, line.tag)
        except UsageError as error:
            raise DataError(f"line {number}: {error}") from None

    def _tag(self, usual: Ids, asked: str | None) -> Ids:
        """The id of the tag that is asked for, or what is ``usual``."""
        return usual if asked is None else np.array([tag_id(self.pair.source.vocabulary, asked)], dtype=np.int64)

    def _request(self, line: Line, number: int) -> Request:
        reference = line.reference if self.config.score_reference else ""
        if not reference and line == Line(line.text, reference=line.reference, tag=line.tag):
            return Request()
        texts = [line.prefix, reference, *line.include, *line.exclude]
        for text in texts:
            require_text([text], number)
        prefix, target, *phrases = (tuple(ids.tolist()) for ids in self.pair.target.encode(texts))
        include, exclude = phrases[: len(line.include)], phrases[len(line.include) :]
        wanted = [*zip(line.include, include), (line.prefix, prefix or (EOS,))]
        lacking = [text for text, ids in wanted if UNK in ids or not ids]
        lacking += [text for text, ids in zip(line.exclude, exclude) if not ids]
        if lacking:
            raise DataError(f"line {number}: the model's vocabulary has no pieces for {lacking[0]!r}; leave it out")
        if line.max_length is not None and len(prefix) > line.max_length:
            raise DataError(
                f"line {number}: its prefix has {len(prefix)} pieces, more than its max_length of {line.max_length}; "
                f"raise that, or shorten the prefix"
            )
        # What the vocabulary cannot write is left out in any case.
        possible = tuple(ids for ids in exclude if UNK not in ids)
        request = Request(prefix, tuple(include), possible, target, line.min_length, line.max_length)
        for text, excluded in zip(line.exclude, exclude):
            if any(_within(excluded, asked) for asked in (request.prefix, *request.include)):
                raise DataError(f"line {number}: {text!r} is to be left out, and is part of what is asked for")
        self._check_repetition(line.include, include, prefix, number)
        if not line.text.strip() and not reference:
            logger.warning(f"line {number} is empty, so nothing is made of what is asked of its translation")
        return request

    def _check_repetition(self, texts: Sequence[str], phrases: Sequence[Phrase], prefix: Phrase, number: int) -> None:
        """What the rule about n-grams would never let a search write."""
        size = self.config.search_facts.no_repeat_ngram
        if not size:
            return
        for (first, one), (second, other) in itertools.combinations_with_replacement(enumerate(phrases), 2):
            again = first != second and one == other and len(one) >= size
            if again or clash(one, other, size):
                both = " beside ".join(repr(texts[place]) for place in sorted({first, second}))
                raise _repetition(both, size, number)
        for text, phrase in zip(texts, phrases):
            if not fits(phrase, prefix, size):
                raise _repetition(f"{text!r} after the prefix", size, number)

    def _source(self, number: int, text: str, ids: Ids, request: Request, tag: Ids) -> Source:
        """A line that is too long to be translated at once is divided or loses its end, and the user is told. The ``tag``
        stands before each part."""
        limit, advice = self.config.max_source_length, "raise --max-source-length to translate more at once"
        longest = self.engine.longest_source
        if longest is not None and longest - 1 < limit:  # eos takes one position
            limit, advice = longest - 1, "the model has no positions for more"
        limit = max(1, limit - len(tag))
        if request.target:
            self._check_target(number, request.target, min(len(ids), limit) + len(tag))
        source = Source(number, text, (), request, tags=len(tag), pieces=len(ids))
        if len(ids) <= limit:
            return replace(source, parts=tuple(tagged([ids], tag)) if len(ids) else ())
        where, cut = f"{self.called} {number + 1} has {len(ids)} pieces", self.config.long_lines is LongLines.truncate
        if request.target and not cut:
            raise DataError(f"{where}, more than {limit}, so its reference cannot be scored ({advice})")
        whole = request.include or request.min_length is not None or request.max_length is not None
        if cut or whole:  # nobody knows which of the parts is to contain a phrase, or how long each may be
            done = "read" if request.target else "translated"
            logger.warning(f"{where}; only its first {limit} are {done} ({advice})")
            return replace(source, parts=tuple(tagged([ids[:limit]], tag)), cut=True)
        parts = divided(ids, self.pair.source.pieces(ids.tolist()), limit)
        logger.warning(f"{where}; it is translated in {len(parts)} parts ({advice})")
        return replace(source, parts=tuple(tagged(parts, tag)))

    def _check_target(self, number: int, target: Sequence[int], pieces: int) -> None:
        """What a model cannot write for so many ``pieces`` of a source has no score; truncated, it is scored so far."""
        limits = self.engine.longest_targets(np.array([pieces + 1]))
        if limits is None or len(target) < limits[0]:  # eos takes one position
            return
        written = f"the model writes at most {limits[0] - 1}"
        where = f"{self.called} {number + 1} has a reference of {len(target)} pieces, and {written}"
        if self.config.long_lines is not LongLines.truncate:
            raise DataError(f"{where}; leave the line out, or let its beginning be scored (--long-lines truncate)")
        logger.warning(f"{where}; only these are scored")


def _within(phrase: Sequence[int], whole: Sequence[int]) -> bool:
    return any(tuple(whole[at : at + len(phrase)]) == tuple(phrase) for at in range(len(whole) - len(phrase) + 1))


def _repetition(asked: str, size: int, number: int) -> DataError:
    return DataError(
        f"line {number}: {asked} would repeat what --no-repeat-ngram-size {size} lets stand only once; leave it out"
    )
