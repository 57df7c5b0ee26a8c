"""Speed of training on a corpus with weights of pairs or tokens, next to the same corpus without weights, in turns.

    python benchmarks/weights_speed.py TRAIN VALID --source-lang en --target-lang de --rounds 5 --threads 1

TRAIN and VALID are prefixes of plain parallel text. Makes three corpora of it in a temporary folder: without weights, with
a random weight for each pair, and with one for each token of the target. Each process makes some updates and reports equal
stretches of them; the first stretch is dropped. Prints a Markdown table: target tokens a second as the median over the
rounds of the median within a round, the range over the rounds, the ratio to training without weights (the median of the
ratios within a round), and the peak memory of a process.

``--paired N`` instead makes N updates of each kind in one process, each on the same sentences in turns, and prints the
median of the ratios of their CPU time with a 95% interval. Noise of the machine affects neighboring updates alike.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from adapter_speed import compare, training
from training_speed import HERE

_WARM = 10  # updates that are not measured
KINDS = {"without weights": None, "weights of pairs": "pair", "weights of tokens": "token"}


def prepare(kind: str | None, arguments: argparse.Namespace, work: Path) -> Path:
    """Make the corpus of a kind of weights."""
    text, draw = work / str(kind), random.Random(1)
    text.mkdir()
    languages = arguments.source_lang, arguments.target_lang
    for split, prefix in (("train", arguments.train), ("valid", arguments.valid)):
        for language in languages:
            shutil.copy(f"{prefix}.{language}", text / f"{split}.{language}")
        if kind is not None:
            lines = Path(f"{prefix}.{languages[1]}").read_text(encoding="utf-8").rstrip("\n").split("\n")
            counts = [1 if kind == "pair" else len([*filter(None, line.split(" "))]) for line in lines]
            rows = (" ".join(f"{draw.uniform(0.5, 1.5):.3f}" for _ in range(count)) for count in counts)
            (text / f"{split}.weight").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "nmt_cli.preprocess", "--source-lang", languages[0], "--target-lang", languages[1]]
    command += [
        "--trainpref",
        str(text / "train"),
        "--validpref",
        str(text / "valid"),
        "--destdir",
        str(text / "corpus"),
    ]
    command += ["--vocab-size", str(arguments.vocab_size), "--joined-dictionary"]
    if kind is not None:
        command += ["--weight-suffix", "weight", "--weight-kind", kind]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(HERE.parent)})
    return text / "corpus"


def paired(corpora: dict[str, Path], arguments: argparse.Namespace) -> None:
    """Print the CPU time of an update with weights, divided by that of the same update without."""
    import torch

    import nmt

    torch.set_num_threads(arguments.threads)
    criterion, steps = nmt.criterion(), {}
    for name, corpus in corpora.items():
        model = nmt.model("transformer_tiny", nmt.tokenizer(corpus))
        epochs = (nmt.batches(corpus, epoch=number, max_tokens=2048) for number in itertools.count(1))
        steps[name] = model, torch.optim.Adam(model.parameters(), 1e-3), itertools.chain.from_iterable(epochs)
    seconds: dict[str, list[float]] = {name: [] for name in corpora}
    for number in range(_WARM + arguments.paired):
        turn = number % len(corpora)
        for name in [*corpora][turn:] + [*corpora][:turn]:
            model, optimizer, batches = steps[name]
            begin = time.process_time()
            report = criterion(model, next(batches))
            optimizer.zero_grad()
            (report.loss_sum / report.denominator).backward()
            optimizer.step()
            seconds[name].append(time.process_time() - begin)
    print("| corpus | CPU time of an update / without weights | 95% interval |\n|---|---|---|")
    first, *others = (seconds[name][_WARM:] for name in corpora)
    for name, own in zip([*corpora][1:], others):
        ratios = sorted(weighted / without for weighted, without in zip(own, first))
        reach = 0.98 * len(ratios) ** 0.5  # of the ranks around the median
        low, high = (ratios[round(len(ratios) / 2 + side * reach)] for side in (-1, 1))
        print(f"| {name} | {ratios[len(ratios) // 2]:.4f} | {low:.4f} to {high:.4f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare training with weights with training without.")
    parser.add_argument("train", type=Path, help="prefix of the training text")
    parser.add_argument("valid", type=Path, help="prefix of the validation text")
    parser.add_argument("--source-lang", default="en", help="ending of the source files (default: %(default)s)")
    parser.add_argument("--target-lang", default="de", help="ending of the target files (default: %(default)s)")
    parser.add_argument("--vocab-size", type=int, default=8000, help="tokens of the vocabulary (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of each kind (default: %(default)s)")
    parser.add_argument("--updates", type=int, default=25, help="updates of a run (default: %(default)s)")
    parser.add_argument("--paired", type=int, help="number of updates of each kind, in turns in one process")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="number of threads (default: %(default)s)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        options = ["model=transformer_tiny", "--warmup-updates", "5"]
        corpora = {name: prepare(kind, arguments, work) for name, kind in KINDS.items()}
        if arguments.paired:
            paired(corpora, arguments)
            return
        engines = [training(name, corpus, options, arguments, work) for name, corpus in corpora.items()]
        compare(engines, arguments, "corpus")


if __name__ == "__main__":
    main()
