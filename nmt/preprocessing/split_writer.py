"""The one writer of splits, for text, for shards that are merged and for folders of fairseq."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from nmt.data.corpus.rows import ragged_writer, sentence_files
from nmt.preprocessing.filters import PairFilter
from nmt.preprocessing.pairs import EncodedPairs, Side, Verdict, Verdicts, token_type
from nmt.preprocessing.tally import SplitTally
from nmt.progress import ReportPairs


def write_split(
    folder: Path,
    tally: SplitTally,
    sides: Sequence[Side],
    chunks: Iterable[EncodedPairs],
    *,
    count: int,
    progress: ReportPairs,
    filters: PairFilter | None = None,
    on_kept: Callable[[EncodedPairs], None] | None = None,
) -> Verdicts:
    """Filter, count and write a split of ``count`` pairs; return the verdict on each pair.

    Without ``filters`` all pairs are kept. ``on_kept`` receives the kept pairs of each chunk.
    """
    verdicts = [np.zeros(0, dtype=np.int8)]
    written = 0
    with contextlib.ExitStack() as stack:
        appends = [
            stack.enter_context(
                ragged_writer(*sentence_files(folder, tally.split, language), token_type(tokenizer.vocabulary))
            )
            for language, tokenizer in sides
        ]
        for pairs in chunks:
            verdicts.append(filters.judge(pairs) if filters else np.zeros(len(pairs), dtype=np.int8))
            kept = pairs.take(verdicts[-1] == Verdict.kept)
            tally.add(pairs, verdicts[-1], kept)
            for append, side in zip(appends, kept.sides):
                append(side.tokens, side.lengths)
            if on_kept is not None:
                on_kept(kept)
            written += len(pairs)
            progress(tally.split, written, count)
    return np.concatenate(verdicts)
