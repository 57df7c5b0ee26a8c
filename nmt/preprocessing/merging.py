"""nmt-preprocess --merge: join shards into the corpus that one run would have made.

All files are byte-identical except manifest.json. The manifest stores the name of the merged folder, and the options of the
first shard, such as the number of workers.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.config.plain import flattened, to_plain
from nmt.config.preprocessing import FilterConfig, PreprocessConfig
from nmt.data.corpus.folder import KIND, Corpus
from nmt.data.corpus.rows import (
    Append,
    RaggedArray,
    alignment_files,
    alignment_writer,
    sentence_files,
    weight_files,
    weight_writer,
)
from nmt.data.corpus.shard_folders import shard_folders
from nmt.data.corpus.stored_text import StoredLines, text_files, write_text
from nmt.data.vocabulary import Flags
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.preprocessing.corpus_writer import EXAMPLES, CorpusWriter
from nmt.preprocessing.filters import PairFilter
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.pairs import EncodedPairs, EncodedSide, Verdict
from nmt.preprocessing.sharding import RECORD, Shard, ShardSplit, read_columns, read_record
from nmt.progress import ReportPairs
from nmt.reporting.corpus_page import Example, Examples
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.arrays import map_weights
from nmt.storage.files import Verify, check_destination, new_folder

_CHUNK = 50_000  # pairs
_LONGEST = 2**31 - 1  # tokens: the shards were filtered by length before
# Options in which shards may differ.
_DIFFERENT = ("shard", "destdir", "workers", "progress", "overwrite", "keep_dropped", "max_line_bytes")


@dataclass(frozen=True)
class _PreparedShard:
    """The corpus of a shard, and its record."""

    shard: Shard
    corpus: Corpus
    splits: dict[str, ShardSplit]

    @property
    def folder(self) -> Path:
        return self.corpus.folder

    @property
    def options(self) -> dict[str, object]:
        """The options that all shards must share."""
        return {name: value for name, value in self.corpus.manifest["config"].items() if name not in _DIFFERENT}


def merge(config: PreprocessConfig, progress: ReportPairs) -> PreprocessReport:
    """Join the shards in the folder ``config.merge`` to the corpus ``config.destdir``."""
    shards = _read_shards(Path(str(config.merge)))
    first, destination = shards[0].corpus, Path(config.destdir)
    options = first.manifest["config"] | {"shard": None, "destdir": config.destdir}
    _require_same_options(config, first)
    with new_folder(destination, overwrite=config.overwrite) as folder:
        writer = CorpusWriter(folder, first.pair, progress, only_source=first.only_source)
        examples: dict[str, Examples] = {}
        for split in first.splits:
            of_split = [shard for shard in shards if split in shard.corpus.splits]
            _merge_split(writer, split, of_split)
            examples[split] = _first_examples([shard.splits[split].examples for shard in of_split])
        report = writer.complete(config.destdir, examples, config=options, text=first.manifest["text"])
        check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)
    return report


def _require_same_options(config: PreprocessConfig, first: Corpus) -> None:
    """Refuse options that differ from those of the shards: a merge cannot apply them."""
    set_now, default, of_shards = (
        flattened(options) for options in (to_plain(config), to_plain(PreprocessConfig()), first.manifest["config"])
    )
    for name in set_now.keys() - {*_DIFFERENT, "merge"}:
        if set_now[name] not in (default.get(name), of_shards.get(name)) and not name.startswith("tokenizer"):
            raise UsageError(
                f"--merge does not change the shards, which were made with {name}={of_shards.get(name)}; omit "
                f"{name}={set_now[name]}, or make the shards again with it"
            )


def _read_shards(folder: Path) -> list[_PreparedShard]:
    """Open all shards, in their order. All bytes are verified: the merged corpus gets new checksums."""
    shards = []
    for path in shard_folders(folder):
        if not (path / RECORD).is_file():
            raise DataError(f"{path} is not a shard of a corpus: {RECORD} is missing; shards are made with --shard i/n")
        corpus = Corpus.open(path, Verify.full)
        shard, splits = read_record(path)
        shards.append(_PreparedShard(shard, corpus, splits))
    if not shards:
        raise MissingInputError(f"{folder} holds no shards; name the --destdir that was used with --shard i/n")
    for prepared in shards:
        shard = prepared.shard
        if shard.folder(folder) != prepared.folder:
            raise DataError(
                f"{prepared.folder} holds shard {shard.number} of {shard.count}; rename it to {shard.folder(folder).name}"
            )
    first = shards[0]
    for other in shards[1:]:
        for what, value, expected in (
            ("vocabularies", other.corpus.pair.digest(), first.corpus.pair.digest()),
            ("text", other.corpus.manifest["text"], first.corpus.manifest["text"]),
            ("options", other.options, first.options),
        ):
            if value != expected:
                raise DataError(
                    f"{other.folder} and {first.folder} were made with different {what}; prepare one of these shards again"
                )
    return shards


def _merge_split(writer: CorpusWriter, split: str, shards: Sequence[_PreparedShard]) -> None:
    drops_duplicates = split == TRAIN and shards[0].corpus.manifest["config"]["filters"]["drop_duplicates"]
    filters = PairFilter(FilterConfig(max_length=_LONGEST, drop_duplicates=True)) if drops_duplicates else None
    chunks = itertools.chain.from_iterable(_chunks(shard, split, writer.languages) for shard in shards)
    kept = writer.write(split, chunks, sum(shard.splits[split].read for shard in shards), filters) == Verdict.kept
    tally = writer.tallies[split]
    for shard in shards:
        tally.add_shard(shard.splits[split].dropped)
    writer.progress(split, tally.counts["read"], tally.counts["read"])
    if split == TRAIN:
        tally.require_enough()
    for language in writer.languages:
        _merge_lines(writer.folder, split, language, shards, kept)
    _merge_alignments(writer, split, shards, kept)
    _merge_weights(writer, split, shards, kept)


def _chunks(shard: _PreparedShard, split: str, languages: Sequence[str]) -> Iterator[EncodedPairs]:
    sides = [RaggedArray(*sentence_files(shard.folder, split, language), least=1) for language in languages]
    count = len(sides[0].lengths)
    for begin in range(0, max(count, 1), _CHUNK):
        end = min(begin + _CHUNK, count)
        yield EncodedPairs(
            [
                EncodedSide(side.values[side.offsets[begin] : side.offsets[end]], side.lengths[begin:end])
                for side in sides
            ],
            read_columns(shard.folder, split, begin, end, count),
        )


def _merge_lines(folder: Path, split: str, language: str, shards: Sequence[_PreparedShard], kept: Flags) -> None:
    """Join the stored text. Only training text is split between shards."""
    text, offsets = text_files(split, language)
    stored = [name for name in (text, offsets) if (shards[0].folder / name).is_file()]
    if split != TRAIN:
        for name in stored:
            shutil.copyfile(shards[0].folder / name, folder / name)
    elif len(stored) == 2:
        lines = itertools.chain.from_iterable(StoredLines(shard.folder, split, language) for shard in shards)
        write_text(folder, split, language, itertools.compress(lines, kept), offsets=True)


def _merge_alignments(writer: CorpusWriter, split: str, shards: Sequence[_PreparedShard], kept: Flags) -> None:
    values, offsets = alignment_files(split)
    if not all((shards[0].folder / name).is_file() for name in (values, offsets)):
        return
    written = [RaggedArray(*sentence_files(writer.folder, split, language)) for language in writer.languages]
    longest = max(int(side.lengths.max()) for side in written)
    with alignment_writer(writer.folder, split, longest) as append:
        _append_kept(append, [RaggedArray(shard.folder / values, shard.folder / offsets) for shard in shards], kept)


def _merge_weights(writer: CorpusWriter, split: str, shards: Sequence[_PreparedShard], kept: Flags) -> None:
    values, offsets = weight_files(split)
    if all((shards[0].folder / name).is_file() for name in (values, offsets)):
        rows = [RaggedArray(shard.folder / values, shard.folder / offsets, read=map_weights) for shard in shards]
        with weight_writer(writer.folder, split) as append:
            _append_kept(append, rows, kept)


def _append_kept(append: Append, shards: Sequence[RaggedArray], kept: Flags) -> None:
    begin = 0
    for rows in shards:
        lengths = rows.lengths[:]
        kept_here = kept[begin : begin + len(lengths)]
        append(rows.values[np.repeat(kept_here, lengths)], lengths[kept_here])
        begin += len(lengths)


def _first_examples(examples: Sequence[Examples]) -> Examples:
    """Return the first dropped pairs for each filter, over all shards."""
    joined: dict[str, list[Example]] = {}
    for message, shown in itertools.chain.from_iterable(of_shard.items() for of_shard in examples):
        joined.setdefault(message, []).extend(shown)
    return {message: sorted(shown, key=lambda example: example.number)[:EXAMPLES] for message, shown in joined.items()}
