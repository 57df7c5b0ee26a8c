"""``--pairs``: several directions in one corpus, with one vocabulary and a token for each language.

The corpus folder holds a corpus folder for each direction, the tokenizer of all, and a manifest of all files. A zero-shot
direction has no training text.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from nmt.config.checks import Refusals
from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import FORMAT, KIND
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, piece_of
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import JsonLines, PairFile, ParallelText, TwoFiles, file_exists, form_of
from nmt.data.text.provenance import text_record
from nmt.errors import UsageError
from nmt.preprocessing.input_text import TRAIN, find_texts, names_of
from nmt.preprocessing.tokenization import TrainingText, language_pair, placed, with_marks
from nmt.preprocessing.writing import count_pairs, write_corpus
from nmt.progress import ReportPairs, going_on
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import check_destination, new_folder, write_manifest

# Options that name a single direction, or one file for all of them.
_OF_ONE = ("source_lang", "target_lang", "tag", "tsv", "fields", "only_source", "align_suffix", "keep_dropped", "shard")


def refusals_of_pairs(config: PreprocessConfig) -> Refusals:
    """Yield what is wrong with the options of ``--pairs``."""
    pairs, zero_shot = config.pairs, config.zero_shot
    named = [*(("--pairs", name) for name in pairs), *(("--zero-shot", name) for name in zero_shot)]
    languages = config.languages
    yield not pairs, f"--zero-shot {','.join(zero_shot)} needs the trained directions too; add --pairs"
    for flag, name in named:
        sides = name.split("-")
        yield (
            len(sides) != 2 or not all(sides) or "/" in name or sides[0] == sides[1],
            f"{flag} {name} is not a direction; write two languages, which are suffixes of files, such as en-de",
        )
        yield (
            flag == "--zero-shot" and name not in pairs and not {*sides} <= {*languages},
            f"--zero-shot {name} must have two languages of --pairs, which are {', '.join(languages)}",
        )
        yield (
            [name for _, name in named].count(name) > 1,
            f"direction {name} is named twice; name each once, trained or zero-shot",
        )
    yield zero_shot and not (config.validpref or config.testpref), "--zero-shot needs text to score; give --validpref"
    for name in _OF_ONE:
        flag = f"--{name.replace('_', '-')}"
        yield (
            getattr(config, name),
            f"--pairs excludes {flag}; omit it, or make a corpus for each direction with --tag",
        )
    filters = config.filters
    yield (
        filters.source_script or filters.target_script,
        "--pairs excludes --source-script and --target-script; omit them, or make a corpus for each direction with --tag",
    )
    texts = itertools.chain.from_iterable(map(names_of, (config.trainpref, config.validpref, config.testpref)))
    for text in texts:
        form = form_of(text)
        yield (
            form is not None and form.value == "tsv",
            f"--pairs cannot read the columns of {text}; give a file for each language",
        )


def config_of_direction(config: PreprocessConfig, direction: str) -> PreprocessConfig:
    source, target = direction.split("-")

    def of_direction(names: str | None) -> str | None:
        """Return the prefixes of the text: ``PREFIX.en-de`` or ``PREFIX.de-en`` if there is such a file, else ``PREFIX``."""
        return ",".join(_prefix(name, source, target) for name in names_of(names)) or None

    return dataclasses.replace(
        config,
        source_lang=source,
        target_lang=target,
        tag=target,
        joined_dictionary=True,
        trainpref=of_direction(config.trainpref) if direction in config.pairs else None,
        validpref=of_direction(config.validpref),
        testpref=of_direction(config.testpref),
        pairs=[],
        zero_shot=[],
    )


def make_pairs(config: PreprocessConfig, destination: Path, progress: ReportPairs) -> PreprocessReport:
    configs = {name: config_of_direction(config, name) for name in (*config.pairs, *config.zero_shot)}
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    texts = {name: find_texts(own, Path()) for name, own in configs.items()}
    with going_on("reading the text", config.progress):
        counts = {name: count_pairs(of_direction, reading, config.weight_kind) for name, of_direction in texts.items()}
        provenance = {
            name: [text_record(path) for path in dict.fromkeys(path for text in own for path in text.files)]
            for name, own in texts.items()
        }
    pair = _joint_pair(config, [text for own in texts.values() for text in own], reading, counts)
    reports = dict[str, PreprocessReport]()
    with new_folder(destination, overwrite=config.overwrite) as folder:
        pair.save(folder / "tokenizer")
        for name, own in configs.items():
            directed = dataclasses.replace(pair, source_lang=own.source_lang, target_lang=own.target_lang)
            arguments = own, directed, texts[name], counts[name], partial(_named_progress, progress, name)
            reports[name] = write_corpus(folder / name, destination / name, *arguments, text=provenance[name])
        write_manifest(
            folder,
            KIND,
            FORMAT,
            pairs=config.pairs,
            zero_shot=config.zero_shot,
            vocabularies=pair.digest(),
            config=to_plain(dataclasses.replace(config, destdir=str(destination))),
        )
        check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)
    return _joined(reports, destination)


def _prefix(name: str, source: str, target: str) -> str:
    own = (f"{name}.{first}-{second}" for first, second in ((source, target), (target, source)))
    return next((prefix for prefix in own if form_of(name) is None and file_exists(prefix, source)), name)


def _named_progress(progress: ReportPairs, direction: str, split: str, done: int, total: int) -> None:
    progress(f"{direction} {split}", done, total)


def _joint_pair(
    config: PreprocessConfig, texts: Sequence[ParallelText], reading: Reading, counts: dict[str, dict[str, int]]
) -> LanguagePair:
    """Return the tokenizer of all languages, with their tokens: existing, or learned from all training text."""
    source, target = config.pairs[0].split("-")
    config = dataclasses.replace(config, source_lang=source, target_lang=target, joined_dictionary=True)
    sides = ParallelText(TRAIN, tuple(dict.fromkeys(_sides(text for text in texts if text.split == TRAIN))), False)
    most = 2 * sum(of_splits.get(TRAIN, 0) for of_splits in counts.values())
    pair = language_pair(config, TrainingText(sides, reading, most) if sides.parts else None)
    pair = with_marks(pair, config.pieces, sides if sides.parts else texts[0], reading)
    known, codes = pair.languages, config.languages
    if known is None or not {*codes} <= known.tokens.keys():
        lacking = [code for code in codes if piece_of(code) not in pair.source.vocabulary.pieces]
        if known is not None and lacking:
            raise known.refusal(lacking[0])
        known = LanguageTokens({code: piece_of(code) for code in codes})
    languages = dataclasses.replace(
        placed(known, config.tag_side), trained=tuple(config.pairs), zero_shot=tuple(config.zero_shot)
    )
    try:
        return dataclasses.replace(pair, languages=languages).checked()
    except UsageError as error:
        symbols = ",".join(map(piece_of, codes))
        raise UsageError(f"{error}; a learned vocabulary gets it with --user-defined-symbols '{symbols}'") from None


def _sides(texts: Iterator[ParallelText]) -> Iterator[PairFile]:
    """Yield each side of the text by itself: a file that several directions share is learned from once."""
    for part in itertools.chain.from_iterable(text.parts for text in texts):
        if isinstance(part, JsonLines):
            yield from (JsonLines(part.path, part.name, (field,)) for field in part.fields)
        else:
            yield from (TwoFiles(path, None) for path in part.files)


def _joined(reports: dict[str, PreprocessReport], destination: Path) -> PreprocessReport:
    """Return one report, whose splits are named by their directions."""
    named = [
        dataclasses.replace(split, split=f"{name} {split.split}")
        for name, report in reports.items()
        for split in report.splits
    ]
    overlaps = [
        dataclasses.replace(overlap, split=f"{name} {overlap.split}")
        for name, report in reports.items()
        for overlap in report.overlaps
    ]
    first = next(iter(reports.values()))
    return dataclasses.replace(first, folder=str(destination), splits=named, overlaps=overlaps)
