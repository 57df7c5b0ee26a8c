"""Training speed of one device: tokens a second, memory, share of its matrix-product rate, and losses next to fp32.

    python benchmarks/device_training.py CORPUS --generate 400000 --device cuda \
        --models transformer_base transformer_big
    python benchmarks/device_training.py CORPUS --generate 2000 --device cpu --models transformer_tiny \
        --precisions fp32 bf16_output --max-tokens 2048 --updates 12

CORPUS is a corpus folder; ``--generate N`` writes N pairs of random sentences there, with the lengths and the
vocabulary of WMT 2014 English-German. Arguments after ``--`` go to nmt-train, such as ``-- --compile step``. Each
model is trained in each precision from the same start on the same batches, by nmt-train in a separate process.

Prints two Markdown tables. The first has speeds over the second half of the updates, in target tokens (eos included,
padding excluded); the second has losses during training. The matrix-product rate is that of torch's product of two
large square matrices in the same data type, measured before.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.preprocessing.preprocess import preprocess

WORDS, MEAN_LENGTH, LONGEST = 33_000, 27.0, 175
LINES = 20  # lines of a log
FORMATS = {"fp32": torch.float32, "bf16_output": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Run:
    """Measurements of a training run."""

    speed: float  # target tokens a second
    memory: float  # peak in MB
    operations: float | None  # operations per target token; None: not counted
    losses: dict[int, float]  # nats per token, by update


def generate(corpus: Path, pairs: int) -> None:
    """Write a corpus with words by Zipf's law. A target is as long as its source, within three words."""
    draw = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, WORDS + 1)
    shares /= shares.sum()
    prefixes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for split, count in {"train": pairs, "valid": 200}.items():
            lengths = np.clip(draw.gamma(3.0, MEAN_LENGTH / 3.0, count).round(), 1, LONGEST).astype(int)
            others = np.clip(lengths + draw.integers(-3, 4, count), 1, LONGEST)
            for language, sizes in (("src", lengths), ("tgt", others)):
                words = draw.choice(WORDS, size=int(sizes.sum()), p=shares)
                ends = sizes.cumsum()
                lines = (" ".join(f"w{word}" for word in words[end - size : end]) for size, end in zip(sizes, ends))
                Path(folder, f"{split}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
            prefixes[f"{split}pref"] = str(Path(folder, split))
        config = PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), joined_dictionary=True, **prefixes)
        config.destdir = str(corpus)
        preprocess(config)


def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return operations per second, the best of ten measurements."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        synchronize(device)
        start = time.perf_counter()
        left @ right
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def train(arguments: argparse.Namespace, model: str, precision: str) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        every = max(1, arguments.updates // LINES)
        command = [sys.executable, "-m", "nmt_cli.train", arguments.corpus, f"model={model}", "--save-dir", folder]
        command += f"--device {arguments.device} --precision {precision} --max-tokens {arguments.max_tokens}".split()
        command += f"--max-update {arguments.updates} --warmup-updates {arguments.updates} --lr 0.0005".split()
        command += f"--log-interval {every} validation.interval=null validation.samples=0 --seed 1".split()
        print(f"{model}, {precision}", file=sys.stderr)
        done = subprocess.run([*command, *arguments.more], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"nmt-train ended with status {done.returncode}:\n{done.stderr[-3000:]}")
        lines = Path(folder, "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    (start,) = [event for event in events if event["event"] == "start"]
    trained = [event for event in events if event["event"] == "train"]
    speeds = [event["tokens_per_second"] for event in trained[len(trained) // 2 :]]
    losses = {event["update"]: event["nll"] for event in trained}
    return Run(statistics.median(speeds), trained[-1]["memory_mb"], start["flops_per_token"], losses)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="corpus folder")
    parser.add_argument(
        "--generate", type=int, metavar="N", help="if the corpus does not exist, first write one of N random pairs"
    )
    parser.add_argument("--models", nargs="+", default=["transformer_base", "transformer_big"], help="presets")
    parser.add_argument(
        "--precisions", nargs="+", default=["fp32", "bf16"], choices=list(FORMATS), help="precisions to measure"
    )
    parser.add_argument("--max-tokens", type=int, default=16384, help="maximum batch size in tokens, padding included")
    parser.add_argument("--updates", type=int, default=200, help="updates of each run")
    parser.add_argument("--device", default="cuda", help="device of all runs")
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    arguments = parser.parse_args(given[:end])
    arguments.more = given[end + 1 :]
    if arguments.generate is not None and not Path(arguments.corpus).exists():
        generate(Path(arguments.corpus), arguments.generate)
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    rates = {precision: matrix_rate(device, FORMATS[precision]) for precision in arguments.precisions}
    runs = {(model, p): train(arguments, model, p) for model in arguments.models for p in arguments.precisions}
    print(f"{name}, torch {torch.__version__}, batches of {arguments.max_tokens} tokens\n")
    print(
        "| model | precision | target tokens/s | MB | share of matrix rate | matrix rate, TFLOP/s "
        "|\n|---|---|---|---|---|---|"
    )
    for (model, precision), run in runs.items():
        share = "-" if run.operations is None else f"{run.operations * run.speed / rates[precision]:.0%}"
        rate = rates[precision] / 1e12
        print(f"| `{model}` | `{precision}` | {run.speed:,.0f} | {run.memory:,.0f} | {share} | {rate:.2f} |")
    print("\n| model | update | " + " | ".join(f"`{precision}`" for precision in arguments.precisions) + " |")
    print("|---|---|" + "---|" * len(arguments.precisions))
    for model in arguments.models:
        for update in sorted(runs[model, arguments.precisions[0]].losses):
            losses = " | ".join(f"{runs[model, precision].losses[update]:.4f}" for precision in arguments.precisions)
            print(f"| `{model}` | {update} | {losses} |")


if __name__ == "__main__":
    main()
