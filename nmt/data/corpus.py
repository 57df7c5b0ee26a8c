"""A corpus folder: what nmt-preprocess writes and nmt-train maps into memory.

    report.html                         what was read and dropped, for people
    manifest.json                       languages, splits, sizes and checksums of all files
    tokenizer/                          see ``LanguagePair``
    <split>.<lang>.tokens.npy           all sentences in one array, each ending in eos
    <split>.<lang>.offsets.npy          where each sentence begins, and the end of the last
    <split>.<lang>.txt                  the lines as they were read; of the training split only with --keep-text
    <split>.<lang>.text-offsets.npy     only with --keep-text: where each line begins, see ``nmt.data.stored_text``
    <split>.alignments.npy              if there are any: pairs of source and target positions of pieces, one after the
    <split>.alignment-offsets.npy       other in one array, and where those of each sentence begin

Plain numpy files: no format of our own, and readable from anywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.language_pair import LanguagePair
from nmt.data.lengths import ChainedLengths, Lengths, StoredLengths, blocks
from nmt.data.shard_folders import shard_folders
from nmt.data.vocabulary import EOS, Ids, Ints, Vocabulary
from nmt.errors import DataError, did_you_mean
from nmt.storage.arrays import map_integers
from nmt.storage.files import MANIFEST, Verify, read_manifest, sha256
from nmt.storage.foreign import corpus_of_fairseq

KIND = "corpus"
PAGE = "report.html"
FORMAT = 1
# Beside the tokens.
_SMALL = ("*.offsets.npy", "*.text-offsets.npy", "*.alignment-offsets.npy", "tokenizer/*", "tokenizer/*/*")
LARGE = (
    2**27
)  # numbers of an array that are looked at when it is opened: a quarter of a gigabyte, some tenths of a second
logger = logging.getLogger("nmt.data.corpus")


class RaggedArray:
    """Two stored arrays, mapped and checked here; each row has at least ``least`` numbers. Files are replaced, never
    rewritten in place, so a mapped array stays what it was. Nothing is made that grows with the number of rows."""

    def __init__(self, values: Path, offsets: Path, least: int = 0) -> None:
        self.values, self.offsets = map_integers(values), map_integers(offsets)
        whole = len(self.offsets) > 0 and self.offsets[0] == 0 and self.offsets[-1] == len(self.values)
        self.lengths = StoredLengths(self.offsets)
        self.is_large = len(self.values) > LARGE  # to look at all numbers would take long: each row is, when it is read
        if not whole or any(bool(np.any(self.lengths[block] < least)) for block in blocks(len(self.lengths))):
            raise DataError(
                f"{offsets} is damaged: its offsets do not cut the {len(self.values)} numbers beside it into sentences"
            )

    def __getitem__(self, index: int) -> Ids:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    def text(self) -> list[str] | None:
        """The lines as they were before tokenization; None where they are not kept, as of the training split."""
        return None


class ChainedRows:
    """The rows of several parts, one part after the other."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        self._parts = parts
        lengths = ChainedLengths([part.lengths for part in parts])
        self.lengths: Lengths = lengths
        self._starts = lengths.starts

    def __getitem__(self, index: int) -> Ids:
        part = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._parts[part][index - int(self._starts[part])]

    def text(self) -> list[str] | None:
        texts = [part.text() for part in self._parts]
        return None if None in texts else [line for text in texts if text is not None for line in text]


Rows = RaggedArray | ChainedRows  # one row of integers for each sentence
Append = Callable[[Ids, Ints], None]


@contextlib.contextmanager
def ragged_writer(values: Path, offsets: Path, dtype: type[np.unsignedinteger]) -> Iterator[Append]:
    """Writes the two arrays while their size is still unknown: what it yields takes the numbers of some rows one after the
    other, and how many each has. Until the end, and after an error, the files say that they are empty."""
    written, index = np.dtype(dtype), np.dtype(np.int64)
    rows, end = 0, 0

    def append(numbers: Ids, lengths: Ints) -> None:
        nonlocal rows, end
        ends = end + np.cumsum(lengths, dtype=index)
        number_file.write(np.ascontiguousarray(numbers, dtype=written).data)
        end_file.write(ends.data)
        rows, end = rows + len(ends), int(ends[-1]) if len(ends) else end

    with open(values, "wb") as number_file, open(offsets, "wb") as end_file:
        number_file.write(_header(written, 0))
        end_file.write(_header(index, 0) + np.zeros(1, dtype=index).tobytes())
        yield append
        for file, kind, count in ((number_file, written, end), (end_file, index, rows + 1)):
            file.seek(0)
            file.write(_header(kind, count))


def _header(dtype: np.dtype[Any], count: int) -> bytes:
    """The first 128 bytes of an .npy file; numpy leaves room for any count."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})
    return file.getvalue()


@dataclass(frozen=True)
class Split:
    """Sentence pairs by number; the arrays stay on disk until they are touched."""

    name: str
    sources: Rows  # ids of each sentence, eos included
    targets: Rows | None  # None: a source to translate
    alignments: Rows | None = None  # [P, 2] of each pair: aligned source and target positions; None: made without

    def __len__(self) -> int:
        return len(self.sources.lengths)

    @property
    def source_lengths(self) -> Lengths:
        return self.sources.lengths

    @property
    def target_lengths(self) -> Lengths | None:
        return None if self.targets is None else self.targets.lengths

    def source(self, index: int) -> Ids:
        """Ids of a sentence, eos included."""
        return self.sources[index]

    def target(self, index: int) -> Ids:
        if self.targets is None:
            raise DataError(f"split '{self.name}' has no target side: it was made with only_source")
        return self.targets[index]


@dataclass(frozen=True)
class Corpus:
    """An opened corpus folder; ``open`` checks it against its manifest."""

    folder: Path
    pair: LanguagePair
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path, verify: Verify = Verify.fast) -> Corpus:
        """Of a corpus folder, or of a folder with all shards of one, which are read one after the other."""
        if not (folder / MANIFEST).is_file() and (paths := shard_folders(folder)):
            return ShardedCorpus.of(folder, [cls.open(path, verify) for path in paths])
        if not (folder / MANIFEST).is_file() and (found := corpus_of_fairseq(folder)) is not None:
            raise DataError(f"{folder} is {found}")
        manifest = read_manifest(folder, KIND, FORMAT, verify=verify, small=_SMALL, besides=(PAGE,))
        if not isinstance(manifest.get("splits"), list):
            raise DataError(f"{folder}: the manifest does not list the splits")
        _warn_of_newer_text(folder, manifest.get("text"))
        return cls(folder, LanguagePair.load(folder / "tokenizer"), manifest)

    @property
    def parts(self) -> tuple[Corpus, ...]:
        """The folders that it consists of, each as a corpus."""
        return (self,)

    @property
    def tokenizer(self) -> Path:
        """The folder of its pair."""
        return self.folder / "tokenizer"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest["splits"])

    @property
    def only_source(self) -> bool:
        return bool(self.manifest.get("only_source"))

    @property
    def report(self) -> dict[str, Any]:
        """What preprocessing found (``PreprocessReport`` as a plain tree); empty if the manifest does not hold it."""
        report = self.manifest.get("report")
        return report if isinstance(report, dict) else {}

    def split(self, name: str) -> Split:
        if name not in self.splits:
            raise DataError(
                f"{self.folder} has no split '{name}'{did_you_mean(name, self.splits)}; there are: {', '.join(self.splits)}"
            )
        if unlisted := [file for file in self._sentence_files(name) if file not in self.manifest["files"]]:
            raise DataError(f"{self.folder / MANIFEST} is damaged: it does not list {unlisted[0]}")
        source = StoredSentences(self.folder, name, self.pair.source_lang, self.pair.source.vocabulary)
        if self.only_source:
            return Split(name, source, None)
        target = StoredSentences(self.folder, name, self.pair.target_lang, self.pair.target.vocabulary)
        if len(source.lengths) != len(target.lengths):
            raise DataError(
                f"{self.folder}: split '{name}' has {len(source.lengths)} sources but {len(target.lengths)} targets"
            )
        alignments = None
        if self._alignment_files(name):
            alignments = StoredAlignments(self.folder, name, source.lengths, target.lengths)
        return Split(name, source, target, alignments)

    def fingerprint(self, split: str) -> str:
        """The identity of a split's ids and alignments and of both vocabularies."""
        names = (*self._sentence_files(split), *self._alignment_files(split))
        sums = [self.manifest["files"][name]["sha256"] for name in names]
        return hashlib.sha256(" ".join([self.pair.digest(), *sums]).encode()).hexdigest()

    def _sentence_files(self, split: str) -> list[str]:
        languages = [self.pair.source_lang] if self.only_source else [self.pair.source_lang, self.pair.target_lang]
        return [path.name for language in languages for path in sentence_files(self.folder, split, language)]

    def _alignment_files(self, split: str) -> tuple[str, ...]:
        """None or both."""
        return tuple(name for name in alignment_files(split) if name in self.manifest["files"])


@dataclass(frozen=True)
class ShardedCorpus(Corpus):
    """All shards of a corpus, read as one."""

    shards: tuple[Corpus, ...] = ()

    @classmethod
    def of(cls, folder: Path, shards: Sequence[Corpus]) -> ShardedCorpus:
        first = shards[0]
        for shard in shards[1:]:
            if shard.pair.digest() != first.pair.digest() or shard.pair.tag != first.pair.tag:
                raise DataError(f"{shard.folder} and {first.folder} have different vocabularies; prepare one again")
        splits = list(dict.fromkeys(split for shard in shards for split in shard.splits))
        return cls(folder, first.pair, {"splits": splits, "only_source": first.only_source}, tuple(shards))

    @property
    def parts(self) -> tuple[Corpus, ...]:
        return self.shards

    @property
    def tokenizer(self) -> Path:
        return self.shards[0].tokenizer

    def split(self, name: str) -> Split:
        having = [shard for shard in self.shards if name in shard.splits]
        return chain([shard.split(name) for shard in having]) if having else super().split(name)

    def fingerprint(self, split: str) -> str:
        found = [shard.fingerprint(split) for shard in self.shards if split in shard.splits]
        return hashlib.sha256(" ".join(found).encode()).hexdigest()


def sentence_files(folder: Path, split: str, language: str) -> tuple[Path, Path]:
    """The two arrays of one language of a split."""
    return folder / f"{split}.{language}.tokens.npy", folder / f"{split}.{language}.offsets.npy"


def alignment_files(split: str) -> tuple[str, str]:
    """Names of the two arrays of alignments."""
    return f"{split}.alignments.npy", f"{split}.alignment-offsets.npy"


class StoredSentences(RaggedArray):
    """One language of a split on disk."""

    def __init__(self, folder: Path, split: str, language: str, vocabulary: Vocabulary) -> None:
        self._text_path = folder / f"{split}.{language}.txt"
        tokens, offsets = sentence_files(folder, split, language)
        super().__init__(tokens, offsets, least=1)
        self._path, self._pieces = tokens, len(vocabulary)
        if not self.is_large:
            for block in blocks(len(self.lengths)):
                self._check(block)

    def __getitem__(self, index: int) -> Ids:
        ids = super().__getitem__(index)
        if self.is_large and (ids[-1] != EOS or max(ids.tolist()) >= self._pieces):
            self._check(slice(index, index + 1))
        return ids

    def _check(self, sentences: slice) -> None:
        """Refuse ids that are none, which would be an assertion of the GPU, and sentences without an end."""
        first, ends = self.offsets[sentences.start], self.offsets[sentences.start + 1 : sentences.stop + 1]
        ids = self.values[first : ends[-1]]
        highest = int(ids.max())
        if highest >= self._pieces or int(ids.min()) < 0:
            sentence = int(np.searchsorted(self.offsets, first + int(np.argmax(ids)), side="right"))
            beyond = f"sentence {sentence} holds id {highest}, beyond {self._pieces} pieces"
            raise DataError(f"{self._path} is damaged: {beyond}")
        if bool(np.any(self.values[ends - 1] != EOS)):
            raise DataError(f"{self._path} is damaged: a sentence does not end in eos")

    def text(self) -> list[str] | None:
        if not self._text_path.is_file():
            return None
        try:  # written by us: clean UTF-8, "\n" after every line and nowhere else
            lines = self._text_path.read_bytes().decode("utf-8").split("\n")[:-1]
        except UnicodeDecodeError as error:
            raise DataError(f"{self._text_path} is damaged: byte {error.start} is not UTF-8") from None
        if len(lines) != len(self.lengths):
            raise DataError(f"{self._text_path} is damaged: {len(lines)} lines instead of {len(self.lengths)}")
        return lines


class StoredAlignments(RaggedArray):
    """The alignments of a split on disk."""

    def __init__(self, folder: Path, split: str, source_lengths: Lengths, target_lengths: Lengths) -> None:
        positions, offsets = (folder / name for name in alignment_files(split))
        super().__init__(positions, offsets)
        self._path, self._sides = positions, (source_lengths, target_lengths)
        odd = (bool(np.any(self.lengths[block] % 2)) for block in blocks(len(self.lengths)))
        if len(self.lengths) != len(source_lengths) or any(odd):
            raise DataError(
                f"{offsets} is damaged: it does not hold pairs of positions of {len(source_lengths)} sentences"
            )
        if not self.is_large:
            for block in blocks(len(self.lengths)):
                self._check(block)

    def __getitem__(self, index: int) -> Ids:
        """[P, 2] source and target positions; P = 0 for a pair without any."""
        if self.is_large:
            self._check(slice(index, index + 1))
        return super().__getitem__(index).reshape(-1, 2)

    def _check(self, sentences: slice) -> None:
        """Refuse positions that a sentence does not have."""
        pairs = self.values[self.offsets[sentences.start] : self.offsets[sentences.stop]].reshape(-1, 2)
        counts = self.lengths[sentences] // 2
        for found, side in zip(pairs.T, self._sides):
            beyond = (found < 0) | (found >= np.repeat(side[sentences] - 1, counts))  # eos is not aligned
            if bool(beyond.any()):
                first = int(beyond.argmax())
                sentence = sentences.start + int(np.searchsorted(np.cumsum(counts), first, side="right"))
                raise DataError(
                    f"{self._path} is damaged: sentence {sentence} has a pair with position {int(found[first])}, but only "
                    f"{int(side[sentence]) - 1} pieces"
                )


def open_corpora(folders: Sequence[str | Path], verify: Verify = Verify.fast) -> list[Corpus]:
    """Several corpora for one model: their direction and their vocabularies must be the same."""
    corpora = [Corpus.open(Path(folder), verify) for folder in folders]
    for one, other in itertools.combinations(corpora, 2):
        if other.pair.is_reverse_of(one.pair) and None in (one.pair.tag, other.pair.tag):
            raise DataError(
                f"{one.folder} goes from {one.pair.source_lang} to {one.pair.target_lang}, and {other.folder} the other "
                f"way; a model learns one direction: leave one of them out, or make each with a language tag (--tag)"
            )
    for corpus in corpora[1:]:
        if corpus.pair.digest() != corpora[0].pair.digest():
            raise DataError(
                f"{corpus.folder} and {corpora[0].folder} have different vocabularies; preprocess one with the "
                f"tokenizer of the other: --srcdict {corpora[0].folder} --tgtdict {corpora[0].folder}"
            )
    return corpora


def chain(splits: Sequence[Split]) -> Split:
    """One split after the other, as one."""
    if len(splits) == 1:
        return splits[0]
    targets = [split.targets for split in splits if split.targets is not None]
    aligned = [split.alignments for split in splits if split.alignments is not None]
    return Split(
        name=splits[0].name,
        sources=ChainedRows([split.sources for split in splits]),
        targets=ChainedRows(targets) if len(targets) == len(splits) else None,
        alignments=ChainedRows(aligned) if len(aligned) == len(splits) else None,
    )


def _warn_of_newer_text(folder: Path, recorded: Any) -> None:
    """Compare the text that the corpus was made of, if it is still there. After a new time alone (a copy, a checkout) the
    contents decide."""
    for facts in recorded if isinstance(recorded, list) else []:
        with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
            now = Path(facts["path"]).stat()
            same = now.st_size == facts["bytes"] and (
                now.st_mtime_ns == facts["modified_ns"] or sha256(Path(facts["path"])) == facts["sha256"]
            )
            if not same:
                logger.warning(
                    f"{facts['path']} has changed since {folder} was made of it; run nmt-preprocess again if that matters"
                )
