"""Training speed and memory next to other toolkits: the same tokens, model and token budget, in turns.

    python benchmarks/training_speed.py CORPUS --shape tiny --rounds 3 \
        --fairseq PEERS/fairseq/bin/python --marian PEERS/marian/bin --transformers PEERS/transformers/bin/python

CORPUS is a corpus folder with one joint vocabulary. Only the named toolkits run; benchmarks/peers/README.md has their
installation. Each toolkit makes some updates in a separate process, then the next one follows. A process reports equal
stretches of updates; the first stretch is dropped. "+ malloc" is the same toolkit with the allocator settings of nmt.

Prints a Markdown table: target tokens a second (eos included, padding excluded) as the median over the rounds of the
median within a round, the range over the rounds, the ratio of our first precision to the row (the median of the ratios
within a round), and the peak memory of a process with its children.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nmt.config.sections import BatchingConfig
from nmt.data.batching.plan import plan_batches
from nmt.data.corpus.folder import Corpus, Split
from nmt.data.vocabulary import SPECIALS

HERE = Path(__file__).resolve().parent
VARIABLE = "GLIBC_TUNABLES"
MALLOC = {VARIABLE: f"glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold={2**33}"}
BUDGET = 4096  # tokens per batch, padding included
SOURCE, TARGET = "src", "tgt"


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, and the updates of a round."""

    layers: int
    width: int
    inner: int
    heads: int
    dropout: float
    updates: int
    every: int  # updates per stretch


SHAPES = {
    "tiny": Shape(layers=4, width=128, inner=256, heads=4, dropout=0.3, updates=25, every=5),
    "base": Shape(layers=6, width=512, inner=2048, heads=8, dropout=0.1, updates=9, every=1),
    "smallest": Shape(layers=1, width=16, inner=32, heads=2, dropout=0.1, updates=6, every=2),  # to try the script
}


@dataclass
class Engine:
    """A toolkit and its command. ``read`` returns the speeds of its stretches from its log."""

    name: str
    command: Sequence[str]
    read: Callable[[str], list[float]]
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None  # output folder, emptied before each run so that the toolkit does not resume
    speeds: list[float] = field(default_factory=list)  # by round
    memory: int = 0

    def run(self, threads: int) -> None:
        outside = {name: value for name, value in os.environ.items() if name != VARIABLE}
        environment = {**outside, "OMP_NUM_THREADS": str(threads), **self.environment}
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            while process.poll() is None:
                self.memory = max(self.memory, resident(process.pid))
                time.sleep(0.2)
            log.seek(0)
            said = log.read()
        stretches = self.read(said)[1:] if process.returncode == 0 else []
        if process.returncode != 0 or not stretches:
            sys.exit(f"{self.name} failed with status {process.returncode}:\n{said[-3000:]}")
        self.speeds.append(statistics.median(stretches))
        print(f"{self.name}: {self.speeds[-1]:.0f} target tokens/s, {self.memory / 2**20:.0f} MiB", file=sys.stderr)


def resident(pid: int) -> int:
    """Return the resident memory of a process and its children in bytes."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") + sum(resident(int(child)) for child in children)


def program(path: str) -> str:
    """Return the path of an executable from the command line."""
    if not (Path(path).is_file() and os.access(path, os.X_OK)):
        raise argparse.ArgumentTypeError(f"{path} is not an executable; install it as in benchmarks/peers/README.md")
    return path


def marian_folder(path: str) -> str:
    program(str(Path(path) / "pymarian"))
    return path


def prepare(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a preparation of an engine, outside the measured time."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, **pipes, text=True, check=False, env={**os.environ, **(environment or {})})
    if done.returncode != 0:
        sys.exit(f"preparing {name} failed with status {done.returncode}:\n{done.stdout[-3000:]}")


def write_text(split: Split, pieces: Sequence[str], folder: Path) -> None:
    """Write the tokens of the training split as words, and ten of its lines for toolkits that need validation."""
    for language, side in ((SOURCE, split.source), (TARGET, split.target)):
        lines = [" ".join(pieces[number] for number in side(index)[:-1]) + "\n" for index in range(len(split))]
        (folder / f"train.{language}").write_text("".join(lines), encoding="utf-8")
        (folder / f"valid.{language}").write_text("".join(lines[:10]), encoding="utf-8")


def write_batches(split: Split, path: Path, count: int) -> None:
    """Write the batches of nmt, for toolkits that do not make batches."""
    plan = plan_batches(split.source_lengths, split.target_lengths, BatchingConfig(BUDGET))[:count]
    sides = {
        f"{language}{number}": np.concatenate([side(index) for index in batch])
        for number, batch in enumerate(plan)
        for language, side in ((SOURCE, split.source), (TARGET, split.target))
    }
    lengths = {
        f"{language}_lengths{number}": np.array([len(side(index)) for index in batch])
        for number, batch in enumerate(plan)
        for language, side in ((SOURCE, split.source), (TARGET, split.target))
    }
    np.savez(path, count=len(plan), **sides, **lengths)


def ours(corpus: Path, work: Path, shape: Shape, precision: str, threads: int, processes: int = 1) -> Engine:
    """Return the engine of nmt. Several processes share the budget, the threads and the gradient of an update."""
    run = work / f"run-{precision}-{processes}"
    model = [
        "model=transformer_base",
        f"model.encoder_layers={shape.layers}",
        f"model.decoder_layers={shape.layers}",
        f"model.d_model={shape.width}",
        f"model.d_ff={shape.inner}",
        f"model.num_heads={shape.heads}",
        f"model.dropout={shape.dropout}",
    ]
    options = (
        f"--max-tokens {BUDGET // processes} --max-update {shape.updates} --log-interval {shape.every} --lr 0.0005"
    )
    quiet = (
        "--no-html --no-count-flops --criterion label_smoothed_cross_entropy validation.interval=null --progress lines"
    )
    together = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    command = [sys.executable, *together, "-m", "nmt_cli.train", str(corpus), *model, *options.split(), *quiet.split()]
    command += ["--precision", precision, "--save-dir", str(run), "--threads", str(threads // processes)]
    command += ["--device", "cpu"]

    def read(_: str) -> list[float]:
        events = map(json.loads, (run / "log.jsonl").read_text().splitlines())
        return [event["tokens_per_second"] for event in events if event["event"] == "train"]

    name = f"nmt {precision}" if processes == 1 else f"nmt {precision}, {processes} processes"
    return Engine(name, command, read, {"PYTHONPATH": str(HERE.parent)}, run)


def fairseq(python: str, work: Path, pieces: Sequence[str], shape: Shape) -> Engine:
    """Return the engine of fairseq. It makes its own batches, by its option --max-tokens."""
    binary = work / "fairseq"
    (work / "dict.txt").write_text("".join(f"{piece} 1\n" for piece in pieces[len(SPECIALS) :]), encoding="utf-8")
    start = [python, str(HERE / "peers" / "fairseq_command.py")]
    given = f"--source-lang {SOURCE} --target-lang {TARGET} --trainpref {work}/train --validpref {work}/valid"
    given += f" --destdir {binary} --srcdict {work}/dict.txt --tgtdict {work}/dict.txt"
    prepare("fairseq", [*start, "preprocess", *given.split()])
    model = (
        f"--arch transformer --share-all-embeddings --dropout {shape.dropout} --encoder-layers {shape.layers} "
        f"--decoder-layers {shape.layers} --encoder-embed-dim {shape.width} --decoder-embed-dim {shape.width} "
        f"--encoder-ffn-embed-dim {shape.inner} --decoder-ffn-embed-dim {shape.inner} "
        f"--encoder-attention-heads {shape.heads} --decoder-attention-heads {shape.heads}"
    )
    options = (
        f"--cpu --optimizer adam --lr 0.0005 --lr-scheduler inverse_sqrt --criterion label_smoothed_cross_entropy "
        f"--label-smoothing 0.1 --max-tokens {BUDGET} --max-update {shape.updates} --log-interval {shape.every} "
        f"--log-format json --no-save --disable-validation --no-progress-bar --num-workers 0 --seed 1"
    )

    def read(said: str) -> list[float]:
        return [float(found) for found in re.findall(r'"wps": "([\d.]+)"', said)]

    return Engine("fairseq", [*start, "train", str(binary), *model.split(), *options.split()], read)


def marian(folder: str, work: Path, pieces: Sequence[str], shape: Shape, threads: int) -> Engine:
    """Return the engine of Marian: one synchronous worker per thread.

    Its budget counts source tokens without padding.
    """
    vocabulary = {"</s>": 0, "<unk>": 1}
    vocabulary |= {piece: number for number, piece in enumerate(pieces[len(SPECIALS) :], start=2)}
    (work / "vocab.yml").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    model = (
        f"--type transformer --tied-embeddings-all --dim-emb {shape.width} --transformer-dim-ffn {shape.inner} "
        f"--transformer-heads {shape.heads} --enc-depth {shape.layers} --dec-depth {shape.layers} "
        f"--transformer-dropout {shape.dropout} --label-smoothing 0.1"
    )
    options = (
        f"--model {work}/marian/model.npz --overwrite --train-sets {work}/train.{SOURCE} {work}/train.{TARGET} "
        f"--vocabs {work}/vocab.yml {work}/vocab.yml --cpu-threads {threads} --sync-sgd --workspace 3000 "
        f"--mini-batch-words {BUDGET} --mini-batch 10000 --learn-rate 0.0005 --after-batches {shape.updates} "
        f"--disp-freq {shape.every} --no-restore-corpus --seed 1"
    )

    def read(said: str) -> list[float]:
        return [float(found) for found in re.findall(r"([\d.]+) words/s", said)]

    command = [str(Path(folder) / "pymarian"), "train", *model.split(), *options.split()]
    return Engine("Marian", command, read, folder=work / "marian")


def transformers(python: str, work: Path, entries: int, shape: Shape, precision: str, threads: int) -> Engine:
    """Return the engine of Hugging Face: MarianMTModel on our batches, in a plain loop."""
    script = [python, str(HERE / "peers" / "transformers_train.py"), str(work / "batches.npz")]
    sizes = [shape.layers, shape.width, shape.inner, shape.heads, shape.dropout, entries, shape.updates, shape.every]
    return Engine(
        f"Hugging Face {precision}",
        [*script, *map(str, sizes), precision, str(threads)],
        lambda said: [float(found) for found in re.findall(r"^speed ([\d.]+)$", said, re.MULTILINE)],
    )


def with_malloc(engine: Engine) -> Engine:
    return Engine(
        f"{engine.name} + malloc", engine.command, engine.read, {**engine.environment, **MALLOC}, engine.folder
    )


def engines(arguments: argparse.Namespace, work: Path) -> list[Engine]:
    shape, corpus = SHAPES[arguments.shape], Corpus.open(arguments.corpus)
    pieces, split = corpus.pair.target.vocabulary.pieces, corpus.split("train")
    write_text(split, pieces, work)
    write_batches(split, work / "batches.npz", shape.updates)
    threads = arguments.threads
    found = [ours(arguments.corpus.resolve(), work, shape, precision, threads) for precision in arguments.precision]
    if arguments.side_by_side:
        found += [
            ours(arguments.corpus.resolve(), work, shape, precision, threads, threads)
            for precision in arguments.precision
        ]
    if arguments.fairseq:
        found.append(fairseq(arguments.fairseq, work, pieces, shape))
        found.append(with_malloc(found[-1]))
    if arguments.marian:
        found.append(marian(arguments.marian, work, pieces, shape, threads))
    if arguments.transformers:
        for precision in ("fp32", "bf16"):
            found.append(transformers(arguments.transformers, work, len(pieces), shape, precision, threads))
            found.append(with_malloc(found[-1]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare training speed and memory with other toolkits.")
    parser.add_argument("corpus", type=Path, help="corpus folder with one joint vocabulary")
    parser.add_argument("--shape", choices=SHAPES, default="tiny", help="sizes of the model (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each toolkit (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="number of threads (default: %(default)s)")
    parser.add_argument(
        "--precision", nargs="+", default=["fp32", "auto"], help="precisions of nmt (default: fp32 auto)"
    )
    parser.add_argument("--side-by-side", action="store_true", help="also run nmt as one process per thread")
    parser.add_argument("--fairseq", type=program, help="Python interpreter that has fairseq")
    parser.add_argument("--marian", type=marian_folder, help="folder that has the command pymarian")
    parser.add_argument("--transformers", type=program, help="Python interpreter that has transformers")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        all_engines = engines(arguments, Path(folder))
        for _ in range(arguments.rounds):
            for engine in all_engines:
                engine.run(arguments.threads)
    first = all_engines[0]
    print(f"| engine | target tokens/s | rounds | {first.name} / engine | memory, MiB |\n|---|---|---|---|---|")
    for engine in all_engines:
        speed = statistics.median(engine.speeds)
        rounds = f"{min(engine.speeds):,.0f} to {max(engine.speeds):,.0f}"
        ratio = faster_by(first.speeds, engine.speeds)
        print(f"| {engine.name} | {speed:,.0f} | {rounds} | {ratio:.2f} | {engine.memory / 2**20:,.0f} |")


def faster_by(speeds: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios within a round, since the load of the machine may change between rounds."""
    return statistics.median(speed / other for speed, other in zip(speeds, others))


if __name__ == "__main__":
    main()
