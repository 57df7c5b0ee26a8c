"""Read lines of text or a corpus split in windows, batch them by length, and return translations in the order of the
lines."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from nmt.config.choices import LongLines, PieceMarks
from nmt.config.sections import BatchingConfig
from nmt.config.translation import TranslationOptions
from nmt.data.batching.plan import plan_batches
from nmt.data.corpus.folder import Split
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import Direction, NoDirection, SourceToken, split_tag, tagged
from nmt.data.text.lines import PAUSE, require_text
from nmt.data.vocabulary import EOS, UNK, Ids
from nmt.errors import DataError, UsageError
from nmt.progress import Count
from nmt.search.constraints import clash, fits
from nmt.search.decoding import Engine
from nmt.search.requests import Phrase, Request
from nmt.translation.doubtful_lines import DoubtfulLines
from nmt.translation.lines import Line, LineOrPause, TranslatedText, split_line

LINE = "line"
_CHARACTERS = 64  # per allowed token: the beginning of a truncated line that is tokenized first. Few words are longer
logger = logging.getLogger("nmt.translation")


@dataclass(frozen=True)
class Source:
    """A line and the parts that are translated separately: none if it is empty, nearly always one."""

    number: int
    text: str
    parts: tuple[Ids, ...]  # without eos
    request: Request = Request()
    truncated: bool = False
    tags: int = 0  # language tokens at the beginning of each part
    direction: tuple[str, str] = ("", "")  # source and target language
    beginning: str = ""  # the tokenized text: all of it, unless the line is very long and truncated
    pieces: int = 0  # tokens of ``beginning``, without tags


@dataclass(frozen=True)
class SourcePart:
    """A part of a line, as it is batched."""

    line: int  # position in its window
    index: int  # among the parts of its line
    number: int  # of the line, for messages
    text: str  # the tokenized beginning of the line, nearly always the whole line
    first: int  # position of its first token in the line, without tags
    ids: Ids
    request: Request
    tags: int = 0
    num_text_pieces: int = 0  # tokens of ``text``, without tags
    direction: tuple[str, str] = ("", "")  # source and target language

    @property
    def pieces(self) -> int:
        """Tokens of the source, or of the scored target if it is longer."""
        return max(len(self.ids), len(self.request.target))


Batch = list[SourcePart]
Texts = list[list[TranslatedText]]  # by part of a batch, the hypotheses of each, best first
Answer = tuple[Source, list[list[TranslatedText]], bool]  # by part of a line; True: the last of its window
Run = Callable[[Iterator[Batch | None]], Iterator[tuple[Batch, Texts] | None]]


@dataclass
class SourceWindow:
    """Lines that are read together, and the translations found so far."""

    sources: Sequence[Source]
    pause: bool = False  # the input has paused: these lines must be answered before the next are read
    translations: dict[tuple[int, int], list[TranslatedText]] = field(default_factory=dict)

    @property
    def parts(self) -> Iterator[SourcePart]:
        """The parts of all lines. Each has the request of its line; only the first has the prefix."""
        for line, source in enumerate(self.sources):
            first, request = 0, source.request
            for index, ids in enumerate(source.parts):
                facts = source.tags, source.pieces, source.direction
                yield SourcePart(line, index, source.number, source.beginning, first, ids, request, *facts)
                first, request = first + len(ids) - source.tags, replace(request, prefix=())


def in_order(
    windows: Iterable[SourceWindow], plan: Callable[[list[SourcePart]], list[Batch]], run: Run, progress: Count
) -> Iterator[Answer]:
    """Yield lines with the translations of their parts, in the order of the windows; ``run`` may return batches in any
    order."""
    waiting: deque[SourceWindow] = deque()
    window_of: dict[int, SourceWindow] = {}  # by the identity of its batches

    def batches() -> Iterator[Batch | None]:
        for window in windows:
            waiting.append(window)
            planned = plan(list(window.parts))
            for batch in planned:
                window_of[id(batch)] = window
                yield batch
            if window.pause or not planned:
                yield None

    for result in run(batches()):
        if result is not None:
            batch, translations = result
            of_parts = {(part.line, part.index): texts for part, texts in zip(batch, translations)}
            window_of.pop(id(batch)).translations.update(of_parts)
            progress(sum(part.index == 0 for part in batch))
        while waiting and len(waiting[0].translations) == sum(len(source.parts) for source in waiting[0].sources):
            window = waiting.popleft()
            progress(sum(not source.parts for source in window.sources))
            for line, source in enumerate(window.sources):
                texts_of = [window.translations[line, index] for index in range(len(source.parts))]
                yield source, texts_of, line == len(window.sources) - 1


def batches_of(parts: list[SourcePart], max_tokens: int, batch_size: int | None) -> list[Batch]:
    """Batch parts of similar lengths, the longest first, so that a shortage of memory shows at once."""
    if not parts:
        return []
    sources = np.array([len(part.ids) + 1 for part in parts], dtype=np.int64)
    targets = np.array([len(part.request.target) + 1 for part in parts], dtype=np.int64)  # scored targets, if any
    budget = max(max_tokens, int(sources.max()), int(targets.max()))  # a single line always fits
    plan = plan_batches(sources, targets, BatchingConfig(budget, batch_size=batch_size), shuffle=False)
    return [[parts[index] for index in batch] for batch in reversed(plan)]


@dataclass(frozen=True)
class SourceReader:
    """Read lines for one model."""

    pair: LanguagePair
    options: TranslationOptions
    engine: Engine
    called: str = LINE  # noun for the lines in messages

    @cached_property
    def _doubtful(self) -> DoubtfulLines:
        return DoubtfulLines(self.pair)

    def windows_of_lines(self, lines: Iterable[LineOrPause], numbers: Iterable[int]) -> Iterator[SourceWindow]:
        """Yield windows. A window closes if it is full, and when the lines pause or end."""
        numbered, window = iter(numbers), list[Line]()
        for line in lines:
            if line is not PAUSE:
                window.append(line if isinstance(line, Line) else Line(line or ""))
            if line is PAUSE or len(window) == self.options.buffer_size:
                yield self._window(window, numbered, pause=line is PAUSE)
                window = []
        if window:
            yield self._window(window, numbered)
        self._doubtful.warn()

    @cached_property
    def _usual(self) -> Direction:
        return self.pair.direction(self.options.source_lang, self.options.target_lang)

    def windows_of_split(
        self, split: Split, numbers: Iterable[int], stored: Direction | None
    ) -> Iterator[SourceWindow]:
        """Yield windows. ``stored``: the direction of the sentences, whose sources have their language tokens; None: that of
        the options."""
        direction = stored or self._usual
        texts, remaining = split.sources.text(), iter(numbers)
        source = self.pair.source.joining(PieceMarks.none)  # sources are shown unchanged
        while numbered := list(itertools.islice(remaining, self.options.buffer_size)):
            window = []
            for number in numbered:
                tag, ids = self._split_stored(split.source(number)[:-1])
                text = texts[number] if texts is not None else source.decode(ids.tolist())
                target = tuple(split.target(number)[:-1].tolist()) if self.options.score_reference else ()
                own = replace(direction, source=tag) if stored else direction
                window.append(self._source(number, text, text, ids, Request(target=target), own))
            yield SourceWindow(window)
        self._doubtful.warn()

    def _window(self, lines: list[Line], numbers: Iterator[int], pause: bool = False) -> SourceWindow:
        texts, numbered = [line.text for line in lines], list(itertools.islice(numbers, len(lines)))
        require_text(texts, numbered[0] + 1 if numbered else 1)
        sources = []
        for number, line, (beginning, ids) in zip(numbered, lines, self._encoded(texts)):
            direction, rest = self._direction(line, ids, number + 1)
            sources.append(self._source(number, line.text, beginning, rest, self._request(line, number + 1), direction))
        return SourceWindow(sources, pause)

    def _encoded(self, texts: Sequence[str]) -> list[tuple[str, Ids]]:
        """Return the tokenized text of each line, and its ids. A blank line has none.

        If long lines are truncated, only the beginning of a very long line is tokenized: a slow tokenizer could take
        minutes for all of it.
        """
        if self.options.long_lines is LongLines.truncate:
            return self._beginnings(texts, _CHARACTERS * self.options.max_source_length)
        return list(zip(texts, self.pair.source.encode([text if text.strip() else "" for text in texts])))

    def _beginnings(self, texts: Sequence[str], characters: int) -> list[tuple[str, Ids]]:
        """Return the first ``characters`` of each text with their ids; more of a text that has too few ids in these, such
        as one that begins with a long run of spaces."""
        beginnings = [text[:characters] for text in texts]
        encoded = self.pair.source.encode([text if text.strip() else "" for text in beginnings])
        tokenized: list[tuple[str, Ids]] = list(zip(beginnings, encoded))
        # Twice the limit: the end of a beginning may have other pieces than it has in the line.
        enough = 2 * self.options.max_source_length
        short = [n for n, text in enumerate(texts) if len(text) > characters and len(encoded[n]) < enough]
        if short:
            for place, longer in zip(short, self._beginnings([texts[n] for n in short], 2 * characters)):
                tokenized[place] = longer
        return tokenized

    def _direction(self, line: Line, ids: Ids, number: int) -> tuple[Direction, Ids]:
        """Return the direction of a line, and its ids without a language token. The languages of the line come first, then a
        token that its text begins with, then the options."""
        typed, rest = self._split_typed(ids, line)
        token, options, direction = "", self.options, Direction("", "")
        if len(typed) and self.pair.languages is not None:
            (token,) = self.pair.source.pieces(typed[-1:].tolist())  # without the space that may be before it
        names_language = bool(line.source_lang or line.target_lang or token)
        try:
            if names_language:
                names = line.source_lang or options.source_lang, line.target_lang or token or options.target_lang
                direction = self.pair.direction(*names)
            elif len(rest):
                direction = self._usual
        except UsageError as error:
            if names_language or isinstance(error, NoDirection):
                raise DataError(f"line {number}: {error}") from None
            raise
        keeps_typed = len(typed) and not (token or line.target_lang)
        return replace(direction, source=typed) if keeps_typed else direction, rest

    def _split_stored(self, ids: Ids) -> tuple[Ids, Ids]:
        """Split the ids of a corpus into a language token, if there is one, and the rest."""
        languages = self.pair.languages
        if languages is None or not len(ids):
            return self._split_typed(ids, Line(""))
        first = self.pair.source.vocabulary.pieces[ids[0]]
        count = int(languages.source is not SourceToken.none and first in languages.tokens.values())
        return ids[:count], ids[count:]

    def _split_typed(self, ids: Ids, line: Line) -> tuple[Ids, Ids]:
        """Split ids into the token of the target language that a text begins with, if any, and the rest. For a model without
        languages, a line that is only a token is text, unless a language is requested."""
        languages = self.pair.languages
        if languages is not None and languages.source is SourceToken.source:
            return ids[:0], ids
        tag, rest = split_tag(ids, self.pair.source.vocabulary)
        requested = bool(line.target_lang or self.options.target_lang or languages)
        return (tag, rest) if len(rest) or requested else (rest, ids)

    def _request(self, line: Line, number: int) -> Request:
        reference = line.reference if self.options.score_reference else ""
        if not reference and not (line.prefix or line.include or line.exclude or line.min_length or line.max_length):
            return Request()
        texts = [line.prefix, reference, *line.include, *line.exclude]
        for text in texts:
            require_text([text], number)
        prefix, target, *phrases = (tuple(ids.tolist()) for ids in self.pair.target.encode(texts))
        include, exclude = phrases[: len(line.include)], phrases[len(line.include) :]
        required = [*zip(line.include, include), (line.prefix, prefix or (EOS,))]
        lacking = [text for text, ids in required if UNK in ids or not ids]
        lacking += [text for text, ids in zip(line.exclude, exclude) if not ids]
        if lacking:
            raise DataError(f"line {number}: the model's vocabulary has no tokens for {lacking[0]!r}; remove it")
        if line.max_length is not None and len(prefix) > line.max_length:
            raise DataError(
                f"line {number}: the prefix has {len(prefix)} tokens, more than max_length={line.max_length}; raise "
                f"max_length or shorten the prefix"
            )
        # Phrases with unknown tokens can never be written.
        possible = tuple(ids for ids in exclude if UNK not in ids)
        request = Request(prefix, tuple(include), possible, target, line.min_length, line.max_length)
        for text, excluded in zip(line.exclude, exclude):
            if any(_within(excluded, phrase) for phrase in (request.prefix, *request.include)):
                raise DataError(
                    f"line {number}: the excluded phrase {text!r} is part of a required one; remove one of them"
                )
        self._check_repetition(line.include, include, prefix, number)
        if not line.text.strip() and not reference:
            logger.warning(f"line {number} is empty; its constraints are ignored")
        return request

    def _check_repetition(self, texts: Sequence[str], phrases: Sequence[Phrase], prefix: Phrase, number: int) -> None:
        """Refuse phrases that --no-repeat-ngram-size makes impossible."""
        size = self.options.search_facts.no_repeat_ngram
        if not size:
            return
        for (first, phrase), (second, other_phrase) in itertools.combinations_with_replacement(enumerate(phrases), 2):
            again = first != second and phrase == other_phrase and len(phrase) >= size
            if again or clash(phrase, other_phrase, size):
                both = " and ".join(repr(texts[place]) for place in sorted({first, second}))
                raise _repetition(both, size, number)
        for text, phrase in zip(texts, phrases):
            if not fits(phrase, prefix, size):
                raise _repetition(f"{text!r} after the prefix", size, number)

    def _source(
        self, number: int, text: str, beginning: str, ids: Ids, request: Request, direction: Direction
    ) -> Source:
        """Divide or truncate a line that is too long to be translated at once, and warn about it.

        The tokens of ``direction`` are put before each part. ``beginning``: the text of ``ids``, all of ``text`` unless it
        is very long.
        """
        if self.called == LINE and len(ids):  # hypotheses of a reranker are not the input of the user
            self._doubtful.look_at(number + 1, text, ids, direction)
        tag = direction.source
        request = replace(request, start=direction.target) if direction.target else request
        limit, advice = self.options.max_source_length, "raise --max-source-length to translate more at once"
        longest = self.engine.longest_source
        if longest is not None and longest - 1 < limit:  # eos takes one position
            limit, advice = longest - 1, "the model's maximum"
        limit = max(1, limit - len(tag))
        if request.target:
            self._check_target(number, request, min(len(ids), limit) + len(tag))
        source = Source(number, text, (), request, False, len(tag), direction.names, beginning, len(ids))
        if len(ids) <= limit:
            return replace(source, parts=tuple(tagged([ids], tag)) if len(ids) else ())
        whole = len(beginning) == len(text)
        length = f"{len(ids)} tokens" if whole else f"{len(text)} characters"
        where, truncated = f"{self.called} {number + 1} has {length}", self.options.long_lines is LongLines.truncate
        if request.target and not truncated:
            raise DataError(f"{where}, more than {limit}, so its reference cannot be scored ({advice})")
        about_all = request.include or request.min_length is not None or request.max_length is not None
        if truncated or about_all:  # it is not known which part should contain a phrase, or how long each may be
            done = "read" if request.target else "translated"
            first = str(limit) if whole else f"{limit} tokens"
            logger.warning(f"{where}; only its first {first} are {done} ({advice})")
            return replace(source, parts=tuple(tagged([ids[:limit]], tag)), truncated=True)
        parts = split_line(ids, self.pair.source.pieces(ids.tolist()), limit)
        logger.warning(f"{where}; it is translated in {len(parts)} parts ({advice})")
        return replace(source, parts=tuple(tagged(parts, tag)))

    def _check_target(self, number: int, request: Request, pieces: int) -> None:
        """Refuse a target that is longer than the model can write for ``pieces`` source tokens, or warn that it is
        truncated."""
        limits, target = self.engine.longest_targets(np.array([pieces + 1])), request.target
        if limits is None or len(target) < limits[0] - len(request.start):  # eos takes one position
            return
        most = limits[0] - len(request.start) - 1
        where = (
            f"the reference of {self.called} {number + 1} has {len(target)} tokens, but the model writes at most {most}"
        )
        if self.options.long_lines is not LongLines.truncate:
            raise DataError(f"{where}; remove the line, or score only its beginning (--long-lines truncate)")
        logger.warning(f"{where}; only the first {most} are scored")


def _within(phrase: Sequence[int], whole: Sequence[int]) -> bool:
    return any(tuple(whole[at : at + len(phrase)]) == tuple(phrase) for at in range(len(whole) - len(phrase) + 1))


def _repetition(phrases: str, size: int, number: int) -> DataError:
    return DataError(
        f"line {number}: {phrases} would repeat an n-gram, which --no-repeat-ngram-size {size} forbids; omit that "
        "option"
    )
