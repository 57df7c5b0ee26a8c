"""Write one corpus folder: encoded text with its report, page and manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.config.plain import to_plain
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.text.parallel import ParallelText
from nmt.preprocessing.alignments import check_alignments
from nmt.preprocessing.manifest import complete_corpus
from nmt.preprocessing.sharding import Shard, write_record
from nmt.preprocessing.text_splits import TextSplits
from nmt.progress import ReportPairs
from nmt.reporting.preprocess_report import PreprocessReport


def count_pairs(texts: Sequence[ParallelText], reading: Reading) -> dict[str, int]:
    """Read all text once and return the pairs of each split; faulty text is an error."""
    counts = {text.split: text.count(reading) for text in texts}
    for text in texts:
        for path, aligned in zip(text.alignments, text.parts):
            check_alignments(path, aligned, reading)
    return counts


def write_corpus(
    folder: Path,
    destination: Path,
    config: PreprocessConfig,
    pair: LanguagePair,
    texts: Sequence[ParallelText],
    counts: Mapping[str, int],
    progress: ReportPairs,
    shard: Shard | None = None,
    **entries: Any,
) -> PreprocessReport:
    """Write ``texts`` to ``folder``, which becomes ``destination``. ``entries``: further entries of the manifest."""
    reading = Reading(config.on_invalid_utf8, config.max_line_bytes)
    pair.save(folder / "tokenizer")
    written = TextSplits(folder, pair, config, reading, progress, shard).write(texts, counts)
    tallies = list(written.values())
    examples = {text.split: tally.read_examples(text, reading) for text, tally in written.items()}
    if shard is not None:
        write_record(folder, shard, tallies, examples)
    return complete_corpus(
        folder,
        pair,
        tallies,
        destination=str(destination),
        only_source=config.only_source,
        examples=examples,
        config=to_plain(dataclasses.replace(config, destdir=str(destination))),
        **entries,
    )
