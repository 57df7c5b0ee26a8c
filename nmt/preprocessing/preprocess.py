"""From parallel text to a corpus folder: read, learn tokenizers or load them, encode, filter, write, report.

Text is streamed. Memory holds 17 bytes a pair (to count duplicates), 16 for its lengths, and with
``filters.drop_duplicates`` some 80 more. All text is read once before anything is written, so faulty text leaves no files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.config.checks import Refusals, refuse, require_positive
from nmt.config.choices import Segmentation, WeightKind
from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import KIND
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.data.text.provenance import changed_text, text_record
from nmt.errors import OutputError
from nmt.keywords import configured
from nmt.preprocessing.filters import TextFilter
from nmt.preprocessing.input_text import TRAIN, find_texts, kept_standard_input
from nmt.preprocessing.many_pairs import config_of_direction, make_pairs, refusals_of_pairs
from nmt.preprocessing.merging import merge
from nmt.preprocessing.sharding import Shard
from nmt.preprocessing.tokenization import TrainingText, language_pair, with_marks
from nmt.preprocessing.writing import count_pairs, write_corpus
from nmt.progress import ReportPairs, going_on, unseen
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import MANIFEST, check_destination, new_folder
from nmt.storage.lock import claimed, remove_leftovers_of
from nmt.storage.reading import read_json


@dataclass(frozen=True)
class ProgramText:
    """Text of a Python program, stored in files for the time of preprocessing."""

    texts: Sequence[ParallelText]  # the training text first
    record: Mapping[str, Any]  # what the manifest says about the text
    pair: LanguagePair | None = None  # existing tokenizers; None: by the options


def preprocess(
    config: PreprocessConfig | None = None,
    progress: ReportPairs = unseen,
    program: ProgramText | None = None,
    **options: Any,
) -> PreprocessReport:
    """Make the corpus folder ``config.destdir``; it appears when it is complete, or not at all.

    ``program``: text that replaces the files that ``config`` names. ``options``: options of nmt-preprocess, instead of
    ``config``.
    """
    config = configured(PreprocessConfig, config, options, "preprocess")
    check_options(config)
    shard = None if config.shard is None else Shard.parse(config.shard)
    destination = Path(config.destdir) if shard is None else shard.folder(Path(config.destdir))
    remove_leftovers_of(destination)
    check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)
    if config.merge is not None:
        return merge(config, progress)
    if config.pairs:
        return make_pairs(config, destination, progress)
    with kept_standard_input(config) as standard_input:
        texts = find_texts(config, standard_input) if program is None else list(program.texts)
        files = dict.fromkeys(
            path for text in texts for path in text.files if path != standard_input and program is None
        )
        with contextlib.ExitStack() as stack:
            if config.keep_dropped is not None:
                dropped = Path(config.keep_dropped)
                _check_dropped(dropped, destination, files, config)
                stack.enter_context(claimed(dropped, overwrite=config.overwrite, option="--keep-dropped"))
            return _make(config, shard, destination, texts, files, progress, program)


def check_options(config: PreprocessConfig) -> None:
    """Refuse wrong options before the text is read."""
    require_positive("", workers=config.workers, max_line_bytes=config.max_line_bytes)
    if config.merge is not None:
        refuse(*_without_effect_on_a_merge(config))
        return
    refuse(*(refusals_of_pairs(config) if config.pairs or config.zero_shot else ()))
    for direction in (*config.pairs, *config.zero_shot):
        refuse(*_contradictions(config_of_direction(config, direction)))
    refuse(*(() if config.pairs else _contradictions(config)))
    places_nothing = config.tag_side is not None and config.tag is None and not config.pairs
    refuse((places_nothing, "--tag-side needs a language token; add --tag LANGUAGE or --pairs"))
    TextFilter(config.filters)  # refuses unknown scripts
    _require_symbols(config)


def _require_symbols(config: PreprocessConfig) -> None:
    """Refuse user-defined symbols that existing vocabularies lack: nothing is learned then."""
    symbols, named = getattr(config.tokenizer, "user_defined_symbols", []), (config.srcdict, config.tgtdict)
    is_learned = not all(named) and not (config.joined_dictionary and any(named))
    if is_learned or not symbols or config.pairs:
        return
    known = {piece for _, side in language_pair(config, None).sides() for piece in side.vocabulary.pieces}
    lacking = [symbol for symbol in symbols if symbol not in known]
    names = " and ".join(dict.fromkeys(name for name in named if name))
    advice = "name tokens that it has, or omit --srcdict and --tgtdict to learn a vocabulary"
    refuse((lacking, f"{names} lacks {' '.join(lacking)} (--user-defined-symbols); {advice}"))


def finished_shard(config: PreprocessConfig) -> Path | None:
    """Return the folder of the shard if this command made it before, from the same text and with the same options."""
    if config.shard is None or config.overwrite:
        return None
    folder = Shard.parse(config.shard).folder(Path(config.destdir))
    if not (folder / MANIFEST).is_file():
        return None
    manifest = read_json(folder / MANIFEST)
    ours, theirs = to_plain(dataclasses.replace(config, destdir=str(folder))), dict(manifest.get("config") or {})
    for options in (ours, theirs):
        for name in ("workers", "progress", "overwrite"):  # change nothing in the corpus
            options.pop(name, None)
    return folder if ours == theirs and not changed_text(manifest.get("text")) else None


def _make(
    config: PreprocessConfig,
    shard: Shard | None,
    destination: Path,
    texts: list[ParallelText],
    files: Iterable[Path],
    progress: ReportPairs,
    program: ProgramText | None,
) -> PreprocessReport:
    """``files``: the files of the text, without temporary ones."""
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    with going_on("reading the text", config.progress):
        provenance = [text_record(path) for path in files]  # shows a later change
        counts = count_pairs(texts, reading, config.weight_kind)
    training = next((TrainingText(text, reading, counts[TRAIN]) for text in texts if text.split == TRAIN), None)
    pair = language_pair(config, training, None if program is None else program.pair)
    pair = with_marks(pair, config.pieces, texts[0], reading)  # the first is the training text, if there is any
    with new_folder(destination, overwrite=config.overwrite) as folder:
        entries = {"text": provenance, **({} if program is None else {"program": dict(program.record)})}
        report = write_corpus(folder, destination, config, pair, texts, counts, progress, shard, **entries)
        check_destination(destination, KIND, "--destdir", overwrite=config.overwrite)  # it may exist by now
    return report


def _check_dropped(dropped: Path, destination: Path, files: Iterable[Path], config: PreprocessConfig) -> None:
    """Refuse a file of dropped pairs that would replace something needed, or that another shard writes."""
    real = Path(os.path.realpath(dropped))
    if Path(os.path.realpath(destination)) in real.parents:
        raise OutputError(
            f"--keep-dropped {dropped} is inside the corpus folder; choose a file outside of {destination}"
        )
    if any(os.path.realpath(file) == str(real) for file in files):
        raise OutputError(f"--keep-dropped {dropped} is an input file; choose another")
    if config.shard is not None and dropped.exists():
        raise OutputError(
            f"{dropped} exists already, and shards must not share it; delete it, or choose another --keep-dropped"
        )


def _without_effect_on_a_merge(config: PreprocessConfig) -> Refusals:
    """Options about text, which a merge does not read."""
    for name in ("trainpref", "validpref", "testpref", "tsv", "jsonl", "keep_dropped", "tag", "tag_side", "pairs"):
        flag = f"--{name.replace('_', '-')}"
        yield getattr(config, name) not in (None, []), f"--merge joins shards and reads no text; omit {flag}"
    yield config.shard is not None, "--shard and --merge exclude each other: shards are made first, then joined"


def _contradictions(config: PreprocessConfig) -> Refusals:
    languages, suffix = (config.source_lang, config.target_lang), config.align_suffix
    for flag, language in zip(("--source-lang", "--target-lang"), languages):
        yield (
            not language and not (config.only_source and flag == "--target-lang"),
            f"{flag} is missing; name the language of each side, which is the suffix of its files",
        )
        yield "/" in language, f"{flag} {language} cannot contain '/', because it is the suffix of file names"
    if suffix is not None:
        yield (
            not suffix or "/" in suffix or suffix in languages,
            f"--align-suffix {suffix}: give the suffix of files that hold word alignments, such as align",
        )
        yield config.only_source, "--align-suffix and --only-source exclude each other: an alignment needs both sides"
    weights = config.weight_suffix, config.weight_column, config.weight_field
    yield (
        config.only_source and weights != (None, None, None),
        "weights are for training, but --only-source prepares text to translate; omit one of these options",
    )
    yield (
        config.weight_column is not None and config.weight_column < 1,
        f"weight_column={config.weight_column} must be at least 1 (--weight-column)",
    )
    yield (
        config.weight_suffix is not None and (not config.weight_suffix or config.weight_suffix in languages),
        f"--weight-suffix {config.weight_suffix} is not a suffix of weight files; give one such as weight",
    )
    yield (
        config.weight_kind is not WeightKind.pair and weights == (None, None, None),
        "--weight-kind token needs weights; name them with --weight-suffix, --weight-column or --weight-field",
    )
    yield (
        config.source_lang and config.source_lang == config.target_lang,
        f"source and target language are both '{config.source_lang}'; give the files other suffixes",
    )
    yield (
        len(config.columns) not in (2, 2 - config.only_source) or min(config.columns, default=0) < 1,
        f"columns={config.columns} must be two numbers from 1 on, of source and target (--columns 1,2)",
    )
    yield (
        len(config.fields) not in (0, 2, 2 - config.only_source),
        f"fields={config.fields} must be two names, of source and target (--fields en,de)",
    )
    for name, value in (("bpe_model", config.bpe_model), ("target_bpe_model", config.target_bpe_model)):
        flag = f"--{name.replace('_', '-')}"
        yield (
            value is not None and config.bpe is Segmentation.none,
            f"give the kind of {flag} {value}: --bpe sentencepiece, subword_nmt or fastbpe",
        )
    yield (
        config.moses and config.bpe is Segmentation.none,
        "--moses needs --bpe subword_nmt or fastbpe; give one of them, or omit --moses",
    )
    yield (
        config.shard is not None and not (config.trainpref or config.tsv or config.jsonl),
        f"--shard {config.shard} needs training text; give --trainpref",
    )
    has_tokenizers = bool(config.srcdict and (config.tgtdict or config.joined_dictionary or config.only_source))
    yield (
        config.shard is not None and not has_tokenizers,
        "--shard needs existing vocabularies, the same for all shards; give --srcdict and --tgtdict (files, or a corpus or "
        "run folder)",
    )
    yield (
        config.tag is not None and (not config.tag or len(config.tag.split()) != 1),
        f"--tag {config.tag!r} must be one word, such as de",
    )
    yield config.seed < 0, f"seed={config.seed} must not be negative (--seed)"
