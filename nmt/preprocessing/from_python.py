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
from nmt.config.composing.presets import component_names, preset_names
from nmt.config.plain import flattened, to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.language_pair import LanguagePair, find_pair
from nmt.data.text.parallel import JsonLines, ParallelText
from nmt.errors import DataError, UsageError, did_you_mean, quantity
from nmt.keywords import configured, with_default_components
from nmt.plugins import load_plugins, preset_folders
from nmt.preprocessing.input_text import TRAIN
from nmt.preprocessing.preprocess import ProgramText
from nmt.preprocessing.preprocess import preprocess as preprocess_text
from nmt.preprocessing.program_data import FileReader, Pair, PairReader, ProgramReader, is_paths
from nmt.progress import announce, going_on, show_splits
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import MANIFEST, explained_os_errors, temporary
from nmt.storage.lock import remove_leftovers_of
from nmt.storage.reading import read_mapping

logger = logging.getLogger("nmt.preprocessing")

VALID = "valid"
_SIDES = ("source", "target")
# Options of nmt-preprocess that parameters of the function replace, or that need files of their own.
REPLACED = "trainpref validpref testpref tsv jsonl shard merge only_source align_suffix".split()
_WITHOUT_EFFECT = ("workers", "progress", "overwrite", "destdir")  # on the corpus
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
    config: PreprocessConfig | None = None,
    **options: Any,
) -> PreprocessReport:
    """Make the corpus folder ``destdir`` of sentence pairs, and return the report, whose ``folder`` is the corpus.

    ``data``: pairs of strings, rows with named columns (a data set or data frame), or text files. Or a ``PreprocessConfig``.
    ``valid``: validation data in one of these forms; None: hold out ``valid_share`` of ``data`` (None: 5 %, at most 1,000
    pairs). ``source_lang``, ``target_lang``: the languages, also the columns of the data or the suffixes of its files.
    ``tokenizer``: a preset, its options, a ``LanguagePair``, or a corpus or run folder with existing tokenizers.
    ``options``: further options of nmt-preprocess, such as ``vocab_size`` and ``joined_dictionary``.
    """
    if isinstance(data, PreprocessConfig):
        config, data = data, None
    named = {"source_lang": source_lang, "target_lang": target_lang, "destdir": destdir}
    options |= {name: value for name, value in named.items() if value is not None}
    if data is not None:
        if config is not None:
            raise UsageError(
                "preprocess takes data and keyword arguments, or a dataclass of options; give one of the two"
            )
        preparation = Preparation.of(data, valid, valid_share, tokenizer, options, "preprocess")
        return preparation.make(Path(preparation.config.destdir))
    if valid is not None or valid_share is not None:
        raise UsageError("preprocess holds out validation data only of data=; give it, or name files with validpref=")
    if tokenizer is not None:
        options["tokenizer"] = tokenizer
    config = with_default_components(configured(PreprocessConfig, config, options, "preprocess"))
    with show_splits(config.progress) as show:
        return preprocess_text(config, show)


@dataclass
class Summary:
    """What is known of the text after one reading."""

    digest: Any = field(default_factory=hashlib.sha256)  # of all pairs with their splits
    pairs: Counter[str] = field(default_factory=Counter)  # by split
    characters: list[int] = field(default_factory=lambda: [0, 0])  # of training text, source and target
    alphabets: list[set[str]] = field(default_factory=lambda: [set(), set()])
    first: list[tuple[str, Pair]] = field(default_factory=list)  # pairs with their splits

    def add(self, split: str, line: bytes, pair: Pair) -> None:
        self.digest.update(split.encode() + b"\t" + line)
        self.pairs[split] += 1
        if len(self.first) < _COMPARED:
            self.first.append((split, pair))
        if split == TRAIN:
            for side, text in enumerate(pair):
                self.characters[side] += len(text)
                self.alphabets[side].update(text)


@dataclass(frozen=True)
class Preparation:
    """Data that becomes a corpus folder, with the options for it."""

    train: PairReader
    valid: PairReader | None
    held_out: frozenset[int]  # numbers of the pairs for validation
    config: PreprocessConfig
    pair: LanguagePair | None  # existing tokenizers
    fixed_size: bool  # whether the options set the size of the vocabulary

    @classmethod
    def of(
        cls, data: Any, valid: Any, share: float | None, tokenizer: Any, options: Mapping[str, Any], called: str
    ) -> Preparation:
        """Open the data and compose the options. ``called``: the function, for messages."""
        for name in options:
            if name in REPLACED:
                raise UsageError(f"{called} has no option '{name}'; give text as data= and valid=")
        load_plugins(options.get("user_dir"))
        pair, named = _existing_tokenizers(tokenizer)
        options = dict(options) | ({} if named is None else {"tokenizer": named})
        languages = [options[name] for name in ("source_lang", "target_lang") if options.get(name)]
        columns = options.get("fields", ())
        rows = None if is_paths(data) else ProgramReader(data, "data", columns, languages)
        names = FileReader.languages(data, languages) if rows is None else rows.languages
        if pair is not None and (rows is None or rows.columns is None):
            names = pair.source_lang, pair.target_lang
        options = dict(zip(("source_lang", "target_lang"), names)) | options
        config = from_keywords(PreprocessConfig, options, called, folders=preset_folders())
        train = FileReader(data, config) if rows is None else rows
        validation: PairReader | None = None
        if valid is not None:
            columns = rows.columns if rows is not None and rows.columns else columns
            of_files = is_paths(valid)
            validation = FileReader(valid, config) if of_files else ProgramReader(valid, "valid", columns, languages)
        held_out = frozenset[int]() if validation else _held_out(train.count, share, config.seed)
        fixed = pair is not None or not isinstance(options.get("tokenizer", ""), str)
        fixed |= not _OF_VOCABULARY.isdisjoint(name.rpartition(".")[2] for name in options)
        return cls(train, validation, held_out, config, None if pair is None else _renamed(pair, config), fixed)

    def ensure(self, destination: Path, *, replace: bool) -> None:
        """Make the corpus folder, unless it holds this data already. ``replace``: replace one of other data, else refuse."""
        manifest = read_mapping(destination / MANIFEST) if (destination / MANIFEST).is_file() else {}
        record = manifest.get("program")
        if not isinstance(record, dict):
            self.make(destination)
            return
        changed = self._changes(record, manifest.get("config"))
        if not changed:
            announce(logger, f"{destination} holds this data already")
        elif replace:
            self.make(destination, overwrite=True)
        else:
            listed = "; ".join(f"{key}: {change}" for key, change in changed.items())
            raise UsageError(
                f"{destination.parent} was trained on other data ({listed}); choose another save_dir, or resume with the "
                f"stored pairs: data={str(destination)!r}"
            )

    def make(self, destination: Path, *, overwrite: bool = False) -> PreprocessReport:
        """Make the corpus folder, and log what was decided."""
        parent = destination.parent
        is_new = not parent.exists()
        beside = destination.with_name(f"{destination.name}-text")
        remove_leftovers_of(beside)
        folder = temporary(beside)
        try:
            with explained_os_errors(destination):
                folder.mkdir(parents=True)
                summary = self._read(folder)
            repeatable = summary.first == list(itertools.islice(self._splits(), _COMPARED))
            config = dataclasses.replace(self._adapted(summary), destdir=str(destination))
            config.overwrite |= overwrite
            splits = [split for split in (TRAIN, VALID) if summary.pairs[split]]
            texts = [ParallelText(split, (JsonLines(folder / split, "data", _SIDES),)) for split in splits]
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
        """Read all pairs, each with its split."""
        for number, pair in enumerate(self.train.pairs()):
            yield VALID if number in self.held_out else TRAIN, pair
        if self.valid is not None:
            yield from ((VALID, pair) for pair in self.valid.pairs())

    def _read(self, folder: Path | None = None) -> Summary:
        """Read all pairs once, and store them in ``folder``, a file for each split."""
        summary = Summary()
        with contextlib.ExitStack() as stack, going_on("reading the data", self.config.progress):
            splits = () if folder is None else (TRAIN, VALID)
            files = {split: stack.enter_context(open(Path(folder or "", split), "wb")) for split in splits}
            for split, pair in self._splits():
                line = json.dumps(dict(zip(_SIDES, pair)), ensure_ascii=False).encode() + b"\n"
                summary.add(split, line, pair)
                if files:
                    files[split].write(line)
        return summary

    def _adapted(self, summary: Summary) -> PreprocessConfig:
        """Return the options with a vocabulary that is not too large for the text, unless they set its size."""
        tokenizer, joint = self.config.tokenizer, self.config.joined_dictionary
        if self.fixed_size or not hasattr(tokenizer, "hard_vocab_limit"):
            return self.config
        letters = len(set.union(*summary.alphabets)) if joint else max(map(len, summary.alphabets))
        size = min(tokenizer.vocab_size, max(self._characters(summary) // _CHARACTERS_OF_TOKEN, 4 * letters))
        return dataclasses.replace(
            self.config, tokenizer=dataclasses.replace(tokenizer, vocab_size=size, hard_vocab_limit=False)
        )

    def _characters(self, summary: Summary) -> int:
        return sum(summary.characters) if self.config.joined_dictionary else max(summary.characters)

    def _record(self, summary: Summary) -> dict[str, Any]:
        """Return what the manifest says about the data."""
        tokenizers = None if self.pair is None else self.pair.digest()
        counts = {"pairs": summary.pairs.total(), "valid": summary.pairs[VALID], "held_out": len(self.held_out)}
        return {**counts, "sha256": summary.digest.hexdigest(), "tokenizers": tokenizers}

    def _changes(self, record: Mapping[str, Any], config: Any) -> dict[str, str]:
        """Return what differs from the manifest of a corpus, each with ``old -> new``."""
        summary = self._read()
        adapted = self._adapted(summary)
        usual = PreprocessConfig(tokenizer=None if adapted.tokenizer is None else type(adapted.tokenizer)())
        theirs = flattened(to_plain(usual)) | flattened(config if isinstance(config, dict) else {}) | dict(record)
        ours = flattened(to_plain(adapted)) | self._record(summary)
        if not record.get("repeatable", True):
            of_reading = ("sha256",) if self.fixed_size else ("sha256", "tokenizer.vocab_size")
            ours |= {name: theirs.get(name) for name in of_reading}
        changed = {key: f"{theirs.get(key)} -> {value}" for key, value in ours.items() if theirs.get(key) != value}
        changed = {key: change for key, change in changed.items() if key not in _WITHOUT_EFFECT}
        if changed.pop("sha256", None):
            changed["data"] = "the pairs differ"
        return changed

    def _log(self, config: PreprocessConfig, summary: Summary, report: PreprocessReport) -> None:
        if self.held_out:
            announce(
                logger,
                f"held out {len(self.held_out):,} of {quantity(self.train.count, 'pair')} for validation, chosen by seed "
                f"{config.seed}; valid= gives other validation data",
            )
        usual = 0 if self.fixed_size else getattr(self.config.tokenizer, "vocab_size", 0)
        if max(report.source_entries, report.target_entries) < usual:
            announce(
                logger,
                f"{report.lines()[0]} instead of {usual:,}, because a side of the text has only "
                f"{quantity(self._characters(summary), 'character')}; vocab_size= sets the size",
            )
        for line in report.lines():
            logger.info(line)
        for warning in report.warnings():
            logger.warning(warning)


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


def _existing_tokenizers(tokenizer: Any) -> tuple[LanguagePair | None, Any]:
    """Return the tokenizers that ``tokenizer`` holds or whose folder it names, or else the options of new ones."""
    if isinstance(tokenizer, LanguagePair):
        return tokenizer, None
    if not isinstance(tokenizer, (str, os.PathLike)):
        return None, tokenizer
    name, names = str(tokenizer), [*preset_names("tokenizer", preset_folders()), *component_names("tokenizer")]
    if name in names:
        return None, name
    if (folder := find_pair(Path(tokenizer))) is None:
        raise UsageError(
            f"tokenizer={name!r} is neither a tokenizer{did_you_mean(name, names)} nor a corpus or run folder; there are: "
            f"{', '.join(names)}"
        )
    return LanguagePair.load(folder), None


def _renamed(pair: LanguagePair, config: PreprocessConfig) -> LanguagePair:
    """Return existing tokenizers with the languages of the text; those of the reverse pair are swapped."""
    turned = (config.source_lang, config.target_lang) == (pair.target_lang, pair.source_lang)
    sides = (pair.target, pair.source) if turned else (pair.source, pair.target)
    return LanguagePair(config.source_lang, config.target_lang, *sides, pair.shared, pair.languages)
