"""Share of padding in the batches of a corpus folder by batch limit, both sides together.

python benchmarks/padding.py data-bin/multi30k
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from nmt.config.sections import BatchingConfig
from nmt.data.batching.plan import plan_batches, split_batch
from nmt.data.corpus.folder import Corpus
from nmt.data.corpus.lengths import Lengths
from nmt.data.vocabulary import Ints

BUDGETS = {
    "--max-tokens 4096": BatchingConfig(4096),
    "--max-tokens 4096 --no-count-padding": BatchingConfig(4096, count_padding=False),
    "--max-tokens 25000": BatchingConfig(25_000),
    "--max-tokens 25000 --no-count-padding": BatchingConfig(25_000, count_padding=False),
}
MOST = 0.05  # value of --max-padding


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("corpus", type=Path, help="corpus folder")
    split = Corpus.open(options.parse_args().corpus).split("train")
    assert split.target_lengths is not None
    columns = [split.source_lengths, split.target_lengths]
    print(
        f"| batch limit | batches | padding | micro-batches with `--max-padding {MOST}` | padding "
        "|\n|---|---|---|---|---|"
    )
    for name, budget in BUDGETS.items():
        batches = plan_batches(*columns, budget)
        parts = [part for batch in batches for part in split_batch(batch, columns, MOST)]
        shares = [f"{100 * padding(cut, columns):.1f} %" for cut in (batches, parts)]
        print(f"| `{name}` | {len(batches)} | {shares[0]} | {len(parts)} | {shares[1]} |", flush=True)


def padding(batches: Iterable[Ints], columns: Sequence[Lengths]) -> float:
    """Return the share of padding in all positions."""
    positions = pieces = 0
    for batch in batches:
        lengths = np.stack([column[batch] for column in columns])
        positions += len(batch) * int(lengths.max(1).sum())
        pieces += int(lengths.sum())
    return 1 - pieces / positions


if __name__ == "__main__":
    main()
