"""nmt-preprocess --merge: shards of a corpus become the corpus that one run would have made, byte for byte."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config.plain import to_plain
from nmt.config.preprocessing import FilterConfig, PreprocessConfig
from nmt.data.corpus import KIND, Corpus, RaggedArray, alignment_files, ragged_writer, sentence_files
from nmt.data.corpus_page import Example, Examples
from nmt.data.encoding import EncodedPairs, EncodedSide, token_type
from nmt.data.filters import PairFilter, Reason
from nmt.data.finding_text import TRAIN
from nmt.data.report import EXAMPLES, PreprocessReport, SplitTally
from nmt.data.sealing import seal
from nmt.data.shard_folders import shard_folders
from nmt.data.sharding import FACTS, Facts, Shard, Tallied, facts_file, read_tallies, require_shard
from nmt.data.stored_text import StoredLines, text_files, write_text
from nmt.data.vocabulary import Flags
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.progress import ReportPairs
from nmt.storage.arrays import map_array
from nmt.storage.files import Verify, check_destination, new_folder

_CHUNK = 50_000  # pairs
_LONGEST = 2**31 - 1  # pieces: every length was judged before
# Options in which shards may differ.
_OF_ONE = ("shard", "destdir", "workers", "progress", "overwrite", "keep_dropped", "max_line_bytes")


@dataclass(frozen=True)
class _Part:
    """A shard that was read."""

    shard: Shard
    corpus: Corpus
    tallied: dict[str, Tallied]

    @property
    def folder(self) -> Path:
        return self.corpus.folder


def _require_same_options(config: PreprocessConfig, first: Corpus) -> None:
    """What is said beside --merge and would change nothing is an error, unless it was said of the shards too."""
    given, default, made = (
        _flat(one) for one in (to_plain(config), to_plain(PreprocessConfig()), first.manifest["config"])
    )
    for name in given.keys() - {*_OF_ONE, "merge"}:
        if given[name] not in (default.get(name), made.get(name)) and not name.startswith("tokenizer"):
            raise UsageError(
                f"--merge joins shards as they are, and they were made with {name}={made.get(name)}; leave "
                f"{name}={given[name]} out, or make the shards again with it"
            )


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """By names with points."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def merge(config: PreprocessConfig, progress: ReportPairs) -> PreprocessReport:
    """Join the shards in the folder ``config.merge`` to the corpus ``config.destdir``."""
    parts = _parts(Path(str(config.merge)))
    first, destination = parts[0].corpus, Path(config.destdir)
    _require_same_options(config, first)
    drops = bool(first.manifest["config"]["filters"]["drop_duplicates"])
    with new_folder(destination, overwrite=config.overwrite) as folder:
        first.pair.save(folder / "tokenizer")
        tallies = [_Split(folder, split, parts, drops).write(progress) for split in first.splits]
        examples = {
            split: _examples([part.tallied[split] for part in _holding(parts, split)]) for split in first.splits
        }
        tree = first.manifest["config"] | {"shard": None, "destdir": config.destdir}
        report = seal(folder, first.pair, tallies, examples, first.manifest["text"], tree)
        check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)
    return report


def _parts(folder: Path) -> list[_Part]:
    """All shards, in their order."""
    found = [_part(path) for path in shard_folders(folder)]
    if not found:
        raise MissingInputError(f"{folder} holds no shards; name the folder that --shard i/n was given as --destdir")
    for part in found:
        if part.shard.folder(folder) != part.folder:
            raise DataError(f"{part.folder} holds shard {part.shard.number} of {part.shard.of}; name it so again")
    for part in found[1:]:
        for what, one, other in (
            ("vocabularies", part.corpus.pair.digest(), found[0].corpus.pair.digest()),
            ("text", part.corpus.manifest["text"], found[0].corpus.manifest["text"]),
            ("options", _compared(part), _compared(found[0])),
        ):
            if one != other:
                raise DataError(
                    f"{part.folder} and {found[0].folder} were made with different {what}; prepare one again"
                )
    return found


def _part(path: Path) -> _Part:
    """What is joined has new checksums, so that nothing damaged may be: all bytes are compared first."""
    require_shard(path)
    corpus = Corpus.open(path, Verify.full)
    shard, tallied = read_tallies(path)
    return _Part(shard, corpus, tallied)


def _compared(part: _Part) -> dict[str, object]:
    return {name: value for name, value in part.corpus.manifest["config"].items() if name not in _OF_ONE}


def _holding(parts: Sequence[_Part], split: str) -> list[_Part]:
    return [part for part in parts if split in part.corpus.splits]


class _Split:
    """One split, shard after shard."""

    def __init__(self, folder: Path, split: str, parts: Sequence[_Part], drops_duplicates: bool) -> None:
        self._folder, self._split, self._parts = folder, split, _holding(parts, split)
        corpus = parts[0].corpus
        self._pair, languages = corpus.pair, (corpus.pair.source_lang, corpus.pair.target_lang)
        self._languages = languages[: 2 - corpus.only_source]
        self._rules = None
        if split == TRAIN and drops_duplicates:
            self._rules = PairFilter(FilterConfig(max_length=_LONGEST, drop_duplicates=True))

    def write(self, progress: ReportPairs) -> SplitTally:
        tally, kept = SplitTally(self._split), list[Flags]()
        total = sum(part.tallied[self._split].read for part in self._parts)
        vocabularies = self._pair.source.vocabulary, self._pair.target.vocabulary
        with contextlib.ExitStack() as stack:
            appending = [
                stack.enter_context(
                    ragged_writer(*sentence_files(self._folder, self._split, language), token_type(vocabulary))
                )
                for language, vocabulary in zip(self._languages, vocabularies)
            ]
            for part in self._parts:
                for facts, pairs in self._chunks(part):
                    codes = np.zeros(len(facts), dtype=np.int8) if self._rules is None else self._rules.judge(pairs)
                    kept.append(codes == Reason.kept)
                    remaining = pairs.take(kept[-1])
                    tally.drop(codes, facts["number"])
                    tally.keep(remaining)
                    for append, side in zip(appending, (remaining.source, remaining.target)):
                        assert side is not None
                        append(side.tokens, side.lengths)
                tallied = part.tallied[self._split]
                tally.counts["read"] += tallied.read
                for reason, dropped in tallied.dropped.items():
                    tally.drop_more(reason, dropped)
                progress(self._split, tally.counts["read"], total)
        if self._split == TRAIN:
            tally.require_enough()
        every = np.concatenate([np.zeros(0, dtype=np.bool_), *kept])
        self._text(every)
        self._alignments(every)
        return tally

    def _text(self, kept: Flags) -> None:
        for language in self._languages:
            text, offsets = text_files(self._split, language)
            has = [(self._parts[0].folder / name).is_file() for name in (text, offsets)]
            if self._split == TRAIN and all(has):
                stored = (StoredLines(part.folder, self._split, language) for part in self._parts)
                lines = itertools.compress(itertools.chain.from_iterable(stored), kept)
                write_text(self._folder, self._split, language, lines, offsets=True)
            elif self._split != TRAIN:
                for name in itertools.compress((text, offsets), has):
                    shutil.copyfile(self._parts[0].folder / name, self._folder / name)

    def _chunks(self, part: _Part) -> Iterator[tuple[Facts, EncodedPairs]]:
        sides = [
            RaggedArray(*sentence_files(part.folder, self._split, language), least=1) for language in self._languages
        ]
        facts = _facts(part.folder, self._split, len(sides[0].lengths))
        for begin in range(0, len(facts), _CHUNK):
            some = facts[begin : begin + _CHUNK]
            source, *target = (_rows(side, begin, begin + len(some)) for side in sides)
            yield (
                some,
                EncodedPairs(
                    source=source,
                    target=target[0] if target else None,
                    invalid=np.zeros(len(some), dtype=np.bool_),
                    blank_source=some["blank_source"],
                    blank_target=some["blank_target"],
                    copied=some["copied"],
                    source_keys=some["source_key"],
                    pair_keys=some["pair_key"],
                    source_words=some["source_words"],
                    target_words=some["target_words"],
                    text_reasons=np.zeros(len(some), dtype=np.int8),
                ),
            )

    def _alignments(self, kept: Flags) -> None:
        names = alignment_files(self._split)
        if not all((self._parts[0].folder / name).is_file() for name in names):
            return
        written = [RaggedArray(*sentence_files(self._folder, self._split, language)) for language in self._languages]
        longest = max(int(side.lengths[:].max(initial=0)) for side in written)
        values, offsets = (self._folder / name for name in names)
        begin = 0
        with ragged_writer(values, offsets, np.uint16 if longest < 2**16 else np.uint32) as append:
            for part in self._parts:
                rows = RaggedArray(part.folder / names[0], part.folder / names[1])
                lengths = rows.lengths[:]
                own = kept[begin : begin + len(lengths)]
                append(rows.values[np.repeat(own, lengths)], lengths[own])
                begin += len(lengths)


def _facts(folder: Path, split: str, count: int) -> Facts:
    path = facts_file(folder, split)
    facts: Facts = map_array(path)
    if facts.dtype != FACTS or facts.shape != (count,):
        raise DataError(f"{path} is damaged: it should hold facts of {count} pairs; prepare the shard again")
    return facts


def _rows(side: RaggedArray, begin: int, end: int) -> EncodedSide:
    return EncodedSide(side.values[side.offsets[begin] : side.offsets[end]], side.lengths[begin:end])


def _examples(tallied: Sequence[Tallied]) -> Examples:
    """The first of each reason, over all shards."""
    every: dict[str, list[Example]] = {}
    for reason, some in itertools.chain.from_iterable(one.examples.items() for one in tallied):
        every.setdefault(reason, []).extend(Example(*one) for one in some)
    return {reason: sorted(some, key=lambda one: one.number)[:EXAMPLES] for reason, some in every.items()}
