"""The last files of a corpus folder: its page and its manifest with the report."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt.config.plain import to_plain
from nmt.data.corpus.folder import FORMAT, KIND
from nmt.data.language_pair import LanguagePair
from nmt.preprocessing.tally import SplitTally
from nmt.reporting import corpus_page
from nmt.reporting.preprocess_report import PreprocessReport
from nmt.storage.files import write_manifest


def complete_corpus(
    folder: Path,
    pair: LanguagePair,
    tallies: Sequence[SplitTally],
    *,
    destination: str,
    only_source: bool,
    examples: Mapping[str, corpus_page.Examples] | None = None,
    **entries: Any,
) -> PreprocessReport:
    """Write the manifest of ``folder``, which becomes ``destination``, and return its report.

    ``examples``: dropped pairs of each split, for the page; None: no page. ``entries``: further entries of the manifest.
    """
    languages = [language for language, _ in pair.sides(only_source)]
    report = PreprocessReport(
        folder=destination,
        source_entries=len(pair.source.vocabulary),
        target_entries=len(pair.target.vocabulary),
        shared=pair.shared,
        splits=[tally.report(languages) for tally in tallies],
        overlaps=[later.overlap(earlier) for earlier, later in itertools.combinations(tallies, 2)],
    )
    if examples is not None:
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
        **entries,
    )
    return report
