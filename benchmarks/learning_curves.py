"""Validation loss by updates of each precision, next to plain float32.

    python benchmarks/learning_curves.py CORPUS RUNS --shape tiny --tokens 5000000 --paths plain fp32 bf16_output bf16

CORPUS is a corpus folder with a validation split, RUNS a folder that receives a run folder for each path. The same
command resumes an interrupted call. All paths start from the same parameters and make the same updates from the same
batches. ``plain`` is float32 with torch's dropout, attention and cross-entropy (peers/plain_training.py); the others
are nmt-train with ``--precision``. Arguments after ``--`` go to nmt-train. Prints a Markdown table of the validation
loss (negative log-likelihood in nats per target token, without smoothing); its last line has the difference of each
path to the first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from training_speed import BUDGET, HERE, SHAPES, Shape

from nmt.config.sections import BatchingConfig
from nmt.data.batching.plan import plan_batches
from nmt.data.corpus.folder import Corpus

RATES = {"tiny": (0.003, 400), "base": (0.0007, 800), "smallest": (0.01, 4)}  # peak learning rate, and warmup updates
PLAIN = "plain"


def updates_for(corpus: Path, tokens: int) -> int:
    """Return the number of updates for these target tokens, eos included and padding excluded."""
    split = Corpus.open(corpus).split("train")
    plan = plan_batches(split.source_lengths, split.target_lengths, BatchingConfig(BUDGET))
    assert split.target_lengths is not None
    return math.ceil(tokens * len(plan) / int(split.target_lengths.sum()))


def train(path: str, arguments: argparse.Namespace, updates: int, more: Sequence[str]) -> dict[int, float]:
    """Train one path and return its validation losses by update."""
    shape: Shape = SHAPES[arguments.shape]
    rate, warmup = RATES[arguments.shape]
    run = arguments.runs / path
    start = [str(HERE / "peers" / "plain_training.py")] if path == PLAIN else ["-m", "nmt_cli.train"]
    model = (
        f"model=transformer_base model.encoder_layers={shape.layers} model.decoder_layers={shape.layers} "
        f"model.d_model={shape.width} model.d_ff={shape.inner} model.num_heads={shape.heads} model.dropout={shape.dropout}"
    )
    options = (
        f"--max-tokens {BUDGET} --max-update {updates} --lr {rate} --warmup-updates {warmup} --lr-scheduler inverse_sqrt "
        f"--criterion label_smoothed_cross_entropy --validate-interval-updates {arguments.every} "
        f"validation.interval=null validation.samples=0 --seed {arguments.seed} --device cpu --threads {arguments.threads} "
        f"--precision {'fp32' if path == PLAIN else path} --save-interval-minutes 5 checkpoint.save_interval=null "
        f"--keep-interval-updates 1 --progress lines"
    )
    command = [sys.executable, *start, str(arguments.corpus), *model.split(), *options.split(), "--save-dir", str(run)]
    subprocess.run([*command, *more], check=True, env={**os.environ, "PYTHONPATH": str(HERE.parent)}, stdout=sys.stderr)
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return {event["update"]: event["nll"] for event in events if event["event"] == "valid"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare learning curves of the precisions with plain float32.")
    parser.add_argument("corpus", type=Path, help="corpus folder with a validation split")
    parser.add_argument("runs", type=Path, help="folder for the run folders")
    parser.add_argument("--shape", choices=SHAPES, default="tiny", help="sizes of the model (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=5_000_000, help="target tokens (default: %(default)s)")
    parser.add_argument("--every", type=int, default=200, help="updates between validations (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="number of threads (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="random seed of parameters, batches and dropout (default: %(default)s)"
    )
    parser.add_argument(
        "--paths", nargs="+", default=[PLAIN, "fp32", "bf16_output", "bf16"], help="precisions to compare"
    )
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, more = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    arguments.corpus, arguments.runs = arguments.corpus.resolve(), arguments.runs.resolve()
    updates = updates_for(arguments.corpus, arguments.tokens)
    curves = {path: train(path, arguments, updates, more) for path in arguments.paths}
    first = curves[arguments.paths[0]]
    print(f"| updates | {' | '.join(curves)} |\n|---|{'---|' * len(curves)}")
    for update in first:
        print(f"| {update:,} | {' | '.join(f'{curve[update]:.4f}' for curve in curves.values())} |")
    last = max(first)
    differences = [f"{curve[last] - first[last]:+.4f}" for curve in curves.values()]
    print(f"| end, minus {arguments.paths[0]} | {' | '.join(differences)} |")


if __name__ == "__main__":
    main()
