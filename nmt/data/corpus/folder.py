"""A corpus folder: what nmt-preprocess writes and nmt-train maps into memory.

    report.html                         the report, for users
    manifest.json                       languages, splits, sizes and checksums of all files
    tokenizer/                          see ``LanguagePair``
    <split>.<lang>.tokens.npy           all sentences in one array, each ending in eos
    <split>.<lang>.offsets.npy          where each sentence begins, and the end of the last
    <split>.<lang>.txt                  the lines as they were read; for the training split only with --keep-text
    <split>.<lang>.text-offsets.npy     only with --keep-text: where each line begins, see ``nmt.data.corpus.stored_text``
    <split>.alignments.npy              if there are any: all pairs of source and target positions of tokens, and
    <split>.alignment-offsets.npy       where those of each sentence begin
    <split>.weights.npy                 if there are any: the weight of each pair, or of each token of its target, and
    <split>.weight-offsets.npy          where those of each pair begin

    <source>-<target>/                  of a corpus of several directions, instead of all splits: a corpus folder for each

Plain numpy files: no format of our own, and readable from anywhere.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.data.corpus.lengths import Lengths
from nmt.data.corpus.rows import (
    ChainedRows,
    ChainedWeights,
    Rows,
    StoredAlignments,
    StoredSentences,
    StoredWeights,
    Weights,
    alignment_files,
    sentence_files,
    weight_files,
)
from nmt.data.corpus.shard_folders import shard_folders
from nmt.data.language_pair import LanguagePair
from nmt.data.text.provenance import changed_text
from nmt.data.vocabulary import Ids
from nmt.errors import DataError, did_you_mean, quantity
from nmt.storage.files import MANIFEST, Verify, read_manifest
from nmt.storage.foreign import corpus_of_fairseq
from nmt.storage.reading import read_json

KIND = "corpus"
PAGE = "report.html"
FORMAT = 1
# Files that a fast check reads.
_OFFSETS = ("*.offsets.npy", "*.text-offsets.npy", "*.alignment-offsets.npy", "*.weight-offsets.npy")
_SMALL = (*_OFFSETS, "tokenizer/*", "tokenizer/*/*")
logger = logging.getLogger("nmt.data.corpus.folder")


@dataclass(frozen=True)
class Split:
    """Sentence pairs by number, mapped from disk."""

    name: str
    sources: Rows  # ids of each sentence, eos included
    targets: Rows | None  # None: a source to translate
    alignments: Rows | None = None  # [P, 2] of each pair: aligned source and target positions; None: made without
    started: int = 0  # tokens of languages at the beginning of each target
    weights: Weights | None = None  # None: all are 1

    def __len__(self) -> int:
        return len(self.sources.lengths)

    def __repr__(self) -> str:
        return f"<Split {self.name}: {quantity(len(self), 'line' if self.targets is None else 'pair')}>"

    @property
    def source_lengths(self) -> Lengths:
        return self.sources.lengths

    @property
    def target_lengths(self) -> Lengths | None:
        return None if self.targets is None else self.targets.lengths

    def source(self, index: int) -> Ids:
        """Return the ids of a source, eos included."""
        return self.sources[index]

    def target(self, index: int) -> Ids:
        """Return the ids of a target, eos included, without the tokens that all targets start with."""
        if self.targets is None:
            raise DataError(f"split '{self.name}' has no target side: it was made with --only-source")
        return self.targets[index][self.started :]


@dataclass(frozen=True)
class Corpus:
    """A corpus folder; ``open`` checks it against its manifest."""

    folder: Path
    pair: LanguagePair
    manifest: dict[str, Any]

    @classmethod
    def open(cls, folder: Path, verify: Verify = Verify.fast) -> Corpus:
        """Open a corpus folder, or a folder with all shards of a corpus, which are concatenated."""
        if not (folder / MANIFEST).is_file() and (paths := shard_folders(folder)):
            return ShardedCorpus.of(folder, [cls.open(path, verify) for path in paths])
        if not (folder / MANIFEST).is_file() and (description := corpus_of_fairseq(folder)) is not None:
            raise DataError(f"{folder} is {description}")
        manifest = read_manifest(folder, KIND, FORMAT, verify=verify, small=_SMALL, unchecked=(PAGE,))
        if names := _directions(manifest):
            raise _several(folder, names)
        if not isinstance(manifest.get("splits"), list):
            raise DataError(f"{folder}: the manifest does not list the splits")
        for path in changed_text(manifest.get("text")):
            logger.warning(
                f"{path} has changed since {folder} was made from it; run nmt-preprocess again if that matters"
            )
        return cls(folder, LanguagePair.load(folder / "tokenizer"), manifest)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.folder}: {self.direction}, {', '.join(self.splits)}>"

    @classmethod
    def open_all(cls, folder: Path, verify: Verify = Verify.fast) -> list[Corpus]:
        """Open a corpus folder, or those of all its directions."""
        if (folder / MANIFEST).is_file() and (names := _directions(read_json(folder / MANIFEST))):
            pages = [f"{name}/{PAGE}" for name in names]
            read_manifest(folder, KIND, FORMAT, small=("tokenizer/*", f"*/{MANIFEST}"), unchecked=pages)
            return [cls.open(folder / name, verify) for name in names]
        return [cls.open(folder, verify)]

    @classmethod
    def open_one(cls, folder: Path, source_lang: str | None = None, target_lang: str | None = None) -> Corpus:
        """Open a corpus folder, or that of the one of its directions which has these languages."""
        names = _directions(read_json(folder / MANIFEST)) if (folder / MANIFEST).is_file() else []
        fitting = [
            name
            for name in names
            if all(lang in (None, own) for lang, own in zip((source_lang, target_lang), name.split("-")))
        ]
        if names and len(fitting) != 1:
            raise _several(folder, names)
        return cls.open(folder / fitting[0] if fitting else folder)

    @property
    def direction(self) -> str:
        """Its languages, such as ``en-de``."""
        return f"{self.pair.source_lang}-{self.pair.target_lang}"

    @property
    def is_zero_shot(self) -> bool:
        """Whether it is only to be validated and tested, never trained."""
        return self.pair.languages is not None and self.direction in self.pair.languages.zero_shot

    @property
    def parts(self) -> tuple[Corpus, ...]:
        """The corpora of its folders: itself, or its shards."""
        return (self,)

    @property
    def tokenizer(self) -> Path:
        """The folder of its tokenizers."""
        return self.folder / "tokenizer"

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest["splits"])

    @property
    def only_source(self) -> bool:
        return bool(self.manifest.get("only_source"))

    @property
    def report(self) -> dict[str, Any]:
        """The ``PreprocessReport`` as a plain tree; empty if the manifest has none."""
        report = self.manifest.get("report")
        return report if isinstance(report, dict) else {}

    @property
    def started(self) -> int:
        """The number of language tokens before each target."""
        return int(self.pair.languages is not None and self.pair.languages.target)

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
        if self._column_files(name, alignment_files):
            alignments = StoredAlignments(self.folder, name, source.lengths, target.lengths)
        weights = None
        if self._column_files(name, weight_files):
            weights = StoredWeights(self.folder, name, target.lengths, self.started)
        return Split(name, source, target, alignments, self.started, weights)

    def fingerprint(self, split: str) -> str:
        """Return a checksum of a split's ids, alignments and weights and of both vocabularies."""
        columns = (self._column_files(split, files) for files in (alignment_files, weight_files))
        names = (*self._sentence_files(split), *itertools.chain.from_iterable(columns))
        sums = [self.manifest["files"][name]["sha256"] for name in names]
        return hashlib.sha256(" ".join([self.pair.digest(), *sums]).encode()).hexdigest()

    def _sentence_files(self, split: str) -> list[str]:
        languages = [self.pair.source_lang] if self.only_source else [self.pair.source_lang, self.pair.target_lang]
        return [path.name for language in languages for path in sentence_files(self.folder, split, language)]

    def _column_files(self, split: str, files: Callable[[str], tuple[str, str]]) -> tuple[str, ...]:
        """Return both files, or none."""
        return tuple(name for name in files(split) if name in self.manifest["files"])


@dataclass(frozen=True, repr=False)
class ShardedCorpus(Corpus):
    """The concatenated shards of a corpus."""

    shards: tuple[Corpus, ...] = ()

    @classmethod
    def of(cls, folder: Path, shards: Sequence[Corpus]) -> ShardedCorpus:
        first = shards[0]
        for shard in shards[1:]:
            if shard.pair.digest() != first.pair.digest() or shard.pair.languages != first.pair.languages:
                raise DataError(
                    f"{shard.folder} and {first.folder} have different vocabularies; prepare one of these shards again"
                )
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
        fingerprints = [shard.fingerprint(split) for shard in self.shards if split in shard.splits]
        return hashlib.sha256(" ".join(fingerprints).encode()).hexdigest()


def open_corpora(folders: Sequence[str | Path], verify: Verify = Verify.fast) -> list[Corpus]:
    """Open corpora for one model. Their vocabularies must be the same, and without tokens of languages their direction."""
    corpora = [corpus for folder in folders for corpus in Corpus.open_all(Path(folder), verify)]
    for first, second in itertools.combinations(corpora, 2):
        if second.pair.is_reverse_of(first.pair) and None in (first.pair.languages, second.pair.languages):
            raise DataError(
                f"{first.folder} goes from {first.pair.source_lang} to {first.pair.target_lang}, {second.folder} in "
                f"the opposite direction; omit one of them, or make each with a language token (--tag)"
            )
    for corpus in corpora[1:]:
        if corpus.pair.digest() != corpora[0].pair.digest():
            raise DataError(
                f"{corpus.folder} and {corpora[0].folder} have different vocabularies; preprocess one with the "
                f"tokenizer of the other: --srcdict {corpora[0].folder} --tgtdict {corpora[0].folder}"
            )
        both = [languages for languages in (corpora[0].pair.languages, corpus.pair.languages) if languages is not None]
        if corpus.started != corpora[0].started or len({(known.source, known.target) for known in both}) > 1:
            raise DataError(
                f"{corpora[0].folder} and {corpus.folder} have language tokens in different places; make both with the same "
                f"--tag-side"
            )
    return corpora


def chain(splits: Sequence[Split]) -> Split:
    """Concatenate splits."""
    if len(splits) == 1:
        return splits[0]
    targets = [split.targets for split in splits if split.targets is not None]
    aligned = [split.alignments for split in splits if split.alignments is not None]
    weights = [split.weights for split in splits]
    return Split(
        name=splits[0].name,
        sources=ChainedRows([split.sources for split in splits]),
        targets=ChainedRows(targets) if len(targets) == len(splits) else None,
        alignments=ChainedRows(aligned) if len(aligned) == len(splits) else None,
        started=splits[0].started,
        weights=ChainedWeights(weights, list(map(len, splits))) if any(part is not None for part in weights) else None,
    )


def _directions(manifest: Any) -> list[str]:
    """Return the names of the folders of a corpus of several directions; empty: it has one."""
    listed = [manifest.get(name) for name in ("pairs", "zero_shot")] if isinstance(manifest, dict) else []
    names = [Path(str(name)).name for names in listed if isinstance(names, list) for name in names]
    return [name for name in names if name]


def _several(folder: Path, names: Sequence[str]) -> DataError:
    return DataError(
        f"{folder} has the directions {', '.join(names)}; name the folder of one, such as {folder / names[0]} (in "
        "nmt-generate also with --source-lang and --target-lang)"
    )
