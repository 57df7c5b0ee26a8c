"""Print a table of the runs of adapters.sh: scores, trained parameters, memory, speed and size of a checkpoint.

python examples/finetuning/adapters_table.py runs/adapters
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

from nmt.reporting.run_record import read_events
from nmt.storage.run_folder import resolve
from nmt.storage.tensor_file import mapped_tensors

COLUMNS = ("run", "domain", "other captions", "French", "trained parameters", "checkpoint, MB", "tokens/s", "peak, MB")


def row(output: Path, run: Path) -> list[str]:
    """Return the figures of a run. Parameters of a checkpoint without adapters are all trained, except with --train-only."""
    checkpoint = resolve(run)
    *_, end = (event for event in read_events(run / "log.jsonl") if event["event"] == "end")
    tensors = mapped_tensors(checkpoint / "model.safetensors")
    biases = run.name.endswith("biases")
    count = sum(math.prod(array.shape) for name, array in tensors.items() if not biases or name.endswith("bias"))
    return [
        run.name,
        *(_score(output / f"{run.name}.{test}.json") for test in ("water", "land", "french")),
        f"{count:,}",
        f"{(checkpoint / 'model.safetensors').stat().st_size / 1e6:.2f}",
        f"{end['tokens'] / end['seconds']:,.0f}",
        f"{end['memory_mb']:,.0f}",
    ]


def _score(path: Path) -> str:
    if not path.exists():
        return ""
    (bleu,) = json.loads(path.read_text(encoding="utf-8"))["scores"]
    return f"{bleu['score']:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a table of the runs of adapters.sh.")
    parser.add_argument("output", type=Path, help="folder of the runs")
    output = parser.parse_args().output
    runs = sorted((path.parent for path in output.glob("*/log.jsonl")), key=lambda run: run.stat().st_mtime)
    for cells in (COLUMNS, ["---"] * len(COLUMNS), *(row(output, run) for run in runs)):
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
