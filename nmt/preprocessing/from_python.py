"""``nmt.preprocess``: a corpus folder from data of a Python program, or what nmt-preprocess does.

Data is read once and stored next to the corpus while that is made, since preprocessing reads text several times.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import json
import logging
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmt.config.composing.composition import from_keywords
from nmt.config.plain import flattened, to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import KIND
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.text.parallel import JsonLines, ParallelText, TextForm, form_of
from nmt.errors import DataError, UsageError, quantity
from nmt.keywords import configured, with_default_components
from nmt.plugins import load_plugins, preset_folders
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.preprocess import ProgramText
from nmt.preprocessing.preprocess import preprocess as preprocess_text
from nmt.preprocessing.program_data import SIDES, Pair, Pairs, file_pairs, is_paths, paths_in, program_pairs
from nmt.progress import announce, going_on, show_splits
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import MANIFEST, check_destination, explained_os_errors, temporary
from nmt.storage.lock import remove_leftovers_of
from nmt.storage.reading import read_mapping

logger = logging.getLogger("nmt.preprocessing")

VALID = "valid"
# Options of nmt-preprocess that parameters of the function replace, or that need files of their own.
REPLACED = (
    "trainpref validpref testpref tsv jsonl shard merge only_source align_suffix weight_suffix weight_column weight_field "
    "pairs zero_shot"
).split()
_LANGUAGES = ("source_lang", "target_lang")
_WITHOUT_EFFECT = {"workers", "progress", "overwrite", "destdir"}  # on the corpus
_OF_VOCABULARY = {"vocab_size", "hard_vocab_limit", "srcdict", "tgtdict", "bpe"}  # options that set its size
_HELD_OUT, _MOST_HELD_OUT = 0.05, 1000  # default share of the pairs for validation, and their number at most
_COMPARED = 100  # pairs that are read twice, to see whether a second reading gives the same
_CHARACTERS_OF_TOKEN = 100  # of the text for each token of a learned vocabulary: about 25 occurrences of 4 characters


def preprocess(
    data: Any = None,
    *,
    valid: Any = None,
    valid_share: float | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    tokenizer: Any = None,
    destdir: str | os.PathLike[str] | None = None,
    **options: Any,
) -> PreprocessReport:
    """Make the corpus folder ``destdir`` of sentence pairs, and return the report, whose ``folder`` is the corpus.

    ``data``: pairs of strings, rows with named columns (a data set or data frame), or text files. Or a ``PreprocessConfig``.
    ``valid``: validation data in one of these forms; None: hold out ``valid_share`` of ``data`` (None: 5%, at most 1,000
    pairs). ``source_lang``, ``target_lang``: the languages, also the columns of the data or the suffixes of its files.
    ``tokenizer``: a preset, its options, a ``LanguagePair``, or a corpus or run folder with existing tokenizers.
    ``options``: further options of nmt-preprocess, such as ``vocab_size`` and ``joined_dictionary``.
    """
    named = {"source_lang": source_lang, "target_lang": target_lang, "destdir": destdir}
    options |= {name: value for name, value in named.items() if value is not None}
    if data is not None and not isinstance(data, PreprocessConfig):
        preparation = Preparation.of(data, valid, valid_share, tokenizer, options, "preprocess")
        return preparation.make(Path(preparation.config.destdir))
    if valid is not None or valid_share is not None:
        raise UsageError("preprocess: valid= and valid_share= need pairs or text in data=; give it, or use validpref=")
    options |= {} if tokenizer is None else {"tokenizer": tokenizer}
    config = with_default_components(configured(PreprocessConfig, data, options, "preprocess"))
    with show_splits(config.progress) as show:
        return preprocess_text(config, show)


@dataclass
class Summary:
    """What is known of the text after one reading."""

    joint: bool  # one vocabulary for both sides
    digest: Any = field(default_factory=hashlib.sha256)  # of all pairs with their splits
    pairs: Counter[str] = field(default_factory=Counter)  # by split
    characters: list[int] = field(default_factory=lambda: [0, 0])  # of training text, for each vocabulary
    alphabets: list[set[str]] = field(default_factory=lambda: [set(), set()])  # for each vocabulary
    first: list[tuple[str, Pair]] = field(default_factory=list)  # pairs with their splits

    def add(self, split: str, line: bytes, pair: Pair) -> None:
        self.digest.update(split.encode() + b"\t" + line)
        self.pairs[split] += 1
        if len(self.first) < _COMPARED:
            self.first.append((split, pair))
        if split == TRAIN:
            for vocabulary, text in zip((0, 0) if self.joint else (0, 1), pair):
                self.characters[vocabulary] += len(text)
                self.alphabets[vocabulary].update(text)


@dataclass(frozen=True)
class Preparation:
    """Data that becomes a corpus folder, with the options for it."""

    train: Pairs
    valid: Pairs | None
    held_out: frozenset[int]  # numbers of the pairs for validation
    config: PreprocessConfig
    pair: LanguagePair | None  # existing tokenizers
    adapts: bool  # whether the size of the vocabulary depends on the text

    @classmethod
    def of(
        cls, data: Any, valid: Any, share: float | None, tokenizer: Any, options: Mapping[str, Any], called: str
    ) -> Preparation:
        """Open the data and compose the options. ``called``: the function, for messages."""
        for name in options:
            if name in REPLACED:
                raise UsageError(
                    f"{called} has no option '{name}'; give text as data= and valid=, or make a corpus of files first: "
                    f"nmt.preprocess(trainpref=...)"
                )
        load_plugins(options.get("user_dir"))
        pair = _existing_tokenizers(tokenizer)
        if tokenizer is not None and pair is None:
            options = {
                **options,
                "tokenizer": os.fspath(tokenizer) if isinstance(tokenizer, os.PathLike) else tokenizer,
            }
        languages = [options[name] for name in _LANGUAGES if options.get(name)]
        rows = None if is_paths(data) else program_pairs(data, "data", options.get("fields", ()), languages)
        names = rows and rows.languages or pair and (pair.source_lang, pair.target_lang)
        if not (rows or languages or pair or all(form_of(path) is TextForm.tsv for path in paths_in(data))):
            raise UsageError(
                f"data={paths_in(data)[0]!r} is not a corpus folder, and text needs source_lang= and target_lang=, the "
                f"suffixes of its files"
            )
        options = dict(zip(_LANGUAGES, names or SIDES)) | dict(options)
        config = from_keywords(PreprocessConfig, options, called, folders=preset_folders())
        train = rows or file_pairs(data, config)
        validation = None
        if valid is not None and is_paths(valid):
            validation = file_pairs(valid, config)
        elif valid is not None:
            columns = options.get("fields", ()) if rows is None or rows.columns is None else rows.columns
            validation = program_pairs(valid, "valid", columns, languages)
        if pair is not None:
            turned = (config.source_lang, config.target_lang) == (pair.target_lang, pair.source_lang)
            sides = (pair.target, pair.source) if turned else (pair.source, pair.target)
            pair = LanguagePair(config.source_lang, config.target_lang, *sides, pair.shared, pair.languages)
        adapts = pair is None and isinstance(options.get("tokenizer", ""), str)
        adapts &= _OF_VOCABULARY.isdisjoint(name.rpartition(".")[2] for name in options)
        adapts &= hasattr(config.tokenizer, "hard_vocab_limit")
        held_out = frozenset[int]() if validation else _held_out(train.count, share, config.seed)
        return cls(train, validation, held_out, config, pair, adapts)

    def ensure(self, destination: Path, *, replace: bool) -> None:
        """Make the corpus folder, unless it holds this data already. ``replace``: replace one of other data, else refuse."""
        manifest = read_mapping(destination / MANIFEST) if (destination / MANIFEST).is_file() else {}
        if "program" not in manifest:
            self.make(destination)
        elif not (changes := self._changes(manifest)):
            announce(logger, f"{destination} holds this data already")
        elif replace:
            self.make(destination, overwrite=True)
        else:
            raise UsageError(
                f"{destination.parent} was trained on other data ({changes}); choose another save_dir, or resume with the "
                f"stored pairs: data={str(destination)!r}"
            )

    def make(self, destination: Path, *, overwrite: bool = False) -> PreprocessReport:
        """Make the corpus folder, and log what was decided."""
        parent, text = destination.parent, destination.with_name(f"{destination.name}-text")
        is_new, overwrite = not parent.exists(), overwrite or self.config.overwrite
        check_destination(destination, KIND, "--destdir", overwrite=overwrite)  # before the data is read
        remove_leftovers_of(text)
        folder = temporary(text)
        try:
            with explained_os_errors(destination):
                folder.mkdir(parents=True)
                summary = self._read(folder)
            repeatable = summary.first == list(itertools.islice(self._splits(), _COMPARED))
            config = dataclasses.replace(self._adapted(summary), destdir=str(destination), overwrite=overwrite)
            splits = [split for split in (TRAIN, VALID) if summary.pairs[split]]
            texts = [ParallelText(split, (JsonLines(folder / split, "data", SIDES),)) for split in splits]
            program = ProgramText(texts, {**self._record(summary), "repeatable": repeatable}, self.pair)
            with show_splits(config.progress) as show:
                report = preprocess_text(config, show, program)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # it has the corpus, if all went well
                if is_new:
                    parent.rmdir()
        self._log(config, summary, report)
        if not repeatable:
            logger.warning(
                f"data differs at each reading: {destination} keeps the first one, and a resumed run trains on it without "
                f"a check whether the data changed"
            )
        return report

    def _splits(self) -> Iterator[tuple[str, Pair]]:
        for number, pair in enumerate(self.train.read()):
            yield VALID if number in self.held_out else TRAIN, pair
        if self.valid is not None:
            yield from ((VALID, pair) for pair in self.valid.read())

    def _read(self, folder: Path | None = None) -> Summary:
        """Read all pairs once, and store them in ``folder``, a file for each split."""
        summary = Summary(self.config.joined_dictionary)
        with contextlib.ExitStack() as stack, going_on("reading the data", self.config.progress):
            places = {split: os.devnull if folder is None else folder / split for split in (TRAIN, VALID)}
            files = {split: stack.enter_context(open(place, "wb")) for split, place in places.items()}
            for split, pair in self._splits():
                line = json.dumps(dict(zip(SIDES, pair)), ensure_ascii=False).encode() + b"\n"
                summary.add(split, line, pair)
                files[split].write(line)
        return summary

    def _adapted(self, summary: Summary) -> PreprocessConfig:
        """Return the options with a vocabulary that is not too large for the text, unless they set its size."""
        if not self.adapts:
            return self.config
        tokenizer = self.config.tokenizer
        least = 4 * max(map(len, summary.alphabets))
        size = min(tokenizer.vocab_size, max(max(summary.characters) // _CHARACTERS_OF_TOKEN, least))
        adapted = dataclasses.replace(tokenizer, vocab_size=size, hard_vocab_limit=False)
        return dataclasses.replace(self.config, tokenizer=adapted)

    def _record(self, summary: Summary) -> dict[str, Any]:
        """Return what the manifest says about the data."""
        tokenizers = None if self.pair is None else self.pair.digest()
        counts = {"pairs": summary.pairs.total(), "valid": summary.pairs[VALID], "held_out": len(self.held_out)}
        return {**counts, "sha256": summary.digest.hexdigest(), "tokenizers": tokenizers}

    def _changes(self, manifest: Mapping[str, Any]) -> str:
        """Return what differs from a corpus, in words; empty: nothing."""
        summary, record = self._read(), manifest["program"]
        theirs = flattened(manifest.get("config") or {}) | record
        ours = flattened(to_plain(self._adapted(summary))) | self._record(summary)
        ignored = set(_WITHOUT_EFFECT)
        if not record.get("repeatable", True):
            ignored |= {"sha256", "tokenizer.vocab_size"} if self.adapts else {"sha256"}
        changed = [key for key in ours if key in theirs and theirs[key] != ours[key] and key not in ignored]
        return "; ".join(
            "data: the pairs differ" if key == "sha256" else f"{key}: {theirs[key]} -> {ours[key]}" for key in changed
        )

    def _log(self, config: PreprocessConfig, summary: Summary, report: PreprocessReport) -> None:
        if self.held_out:
            announce(
                logger,
                f"held out {len(self.held_out):,} of {quantity(self.train.count, 'pair')} for validation, chosen by seed "
                f"{config.seed}; valid= gives other validation data",
            )
        usual = self.config.tokenizer.vocab_size if self.adapts else 0
        if max(report.source_entries, report.target_entries) < usual:
            announce(
                logger,
                f"{report.lines()[0]} instead of {usual:,}, because a side of the text has only "
                f"{quantity(max(summary.characters), 'character')}; vocab_size= sets the size",
            )
        report.log(logger)


def _held_out(count: int, share: float | None, seed: int) -> frozenset[int]:
    """Choose the numbers of the pairs for validation. ``share``: None: the default share and limit."""
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"valid_share={share} must be at least 0 and below 1; 0 holds out nothing")
    size = min(round(_HELD_OUT * count), _MOST_HELD_OUT) if share is None else round(share * count)
    if share == 0:
        return frozenset()
    if count < 2:
        raise DataError("data has a single pair, so none can be held out for validation; give more pairs, or valid=")
    return frozenset(random.Random(seed).sample(range(count), min(max(size, 1), count - 1)))


def _existing_tokenizers(tokenizer: Any) -> LanguagePair | None:
    """Return the tokenizers that ``tokenizer`` holds or whose folder it names; None: it has the options of new ones."""
    if isinstance(tokenizer, LanguagePair):
        return tokenizer
    folder = find_pair(Path(tokenizer)) if isinstance(tokenizer, (str, os.PathLike)) else None
    return None if folder is None else LanguagePair.load(folder)
