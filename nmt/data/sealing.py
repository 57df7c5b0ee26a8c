"""The last step of a corpus folder: its report, its page and its manifest."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.config.plain import to_plain
from nmt.data import corpus_page
from nmt.data.corpus import FORMAT, KIND
from nmt.data.corpus_page import Examples
from nmt.data.language_pair import LanguagePair
from nmt.data.report import PreprocessReport, SplitTally
from nmt.storage.files import write_manifest


def seal(
    folder: Path,
    pair: LanguagePair,
    tallies: Sequence[SplitTally],
    examples: Mapping[str, Examples],
    text: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
) -> PreprocessReport:
    """``text``: facts of the files that it was made of; ``config``: the options that it was made with, as a plain tree."""
    only_source = bool(config["only_source"])
    languages = (pair.source_lang,) if only_source else (pair.source_lang, pair.target_lang)
    report = PreprocessReport(
        folder=str(config["destdir"]),
        source_entries=len(pair.source.vocabulary),
        target_entries=len(pair.target.vocabulary),
        shared=pair.shared,
        splits=[tally.report(*languages) for tally in tallies],
        overlaps=[later.overlap(earlier) for earlier, later in itertools.combinations(tallies, 2)],
    )
    corpus_page.write(folder, pair, report, examples)
    write_manifest(
        folder,
        KIND,
        FORMAT,
        splits=[tally.split for tally in tallies],
        source_lang=pair.source_lang,
        target_lang=pair.target_lang,
        only_source=only_source,
        vocabularies=pair.digest(),
        report=to_plain(report),
        config=dict(config),
        text=list(text),
    )
    return report
