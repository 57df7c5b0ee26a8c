"""Preprocessing speed and memory next to fairseq: the same text, repeated, in turns.

    python benchmarks/preprocess.py multi30k --pairs 580000 --rounds 3 --fairseq PEERS/fairseq/bin/python
    python benchmarks/preprocess.py multi30k --pairs 29000 145000 580000 --rounds 3

The first argument is a folder with train.en.gz and train.de.gz; its pairs are repeated up to the given number. The
script measures whole processes in these modes:

    learned   nmt-preprocess from raw text; learns 8,000 joint BPE tokens first
    given     nmt-preprocess from raw text, with the tokenizer learned before
    words     nmt-preprocess with tokenizer=words and a given vocabulary, from text that is already segmented
    fairseq   fairseq-preprocess with given dictionaries, from the same segmented text; only with --fairseq
              (benchmarks/peers/README.md has the installation)

Prints a Markdown table: pairs a second of wall time (the median of all rounds, and their range), CPU seconds, the
ratio to fairseq's speed (the median of the ratios within a round), and the peak memory of the process with its
children, with shared pages counted for each process or divided among them.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmt.data.language_pair import LanguagePair

HERE = Path(__file__).resolve().parent
LANGUAGES = ("en", "de")
OURS = ("-m", "nmt_cli.preprocess", "--source-lang", "en", "--target-lang", "de", "--progress", "none", "--overwrite")
WAYS, PEER = ("learned", "given", "words"), "fairseq"
EVERY = 0.05  # seconds between two measurements of memory


@dataclass
class Way:
    """A mode of preparing a number of pairs, with its measurements."""

    name: str
    pairs: int
    command: Sequence[object]
    result: Path  # output folder
    speeds: list[float] = field(default_factory=list)  # by round
    processor: list[float] = field(default_factory=list)
    memory: int = 0  # peak in bytes
    own_memory: int = 0

    def run(self) -> None:
        shutil.rmtree(self.result, ignore_errors=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        before, began = processor_time(), time.perf_counter()
        with tempfile.TemporaryFile("w+") as log:
            command = [*map(str, self.command)]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
            while process.poll() is None:
                resident, shares = memory_of(process.pid)
                self.memory, self.own_memory = max(self.memory, resident), max(self.own_memory, shares)
                time.sleep(EVERY)
            took = time.perf_counter() - began
            log.seek(0)
            said = log.read()
        if process.returncode != 0:
            sys.exit(f"{self.name} failed with status {process.returncode}:\n{said[-3000:]}")
        self.speeds.append(self.pairs / took)
        self.processor.append(processor_time() - before)
        print(f"{self.name}, {self.pairs:,} pairs: {took:.1f} s", file=sys.stderr)


def processor_time() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def memory_of(pid: int) -> tuple[int, int]:
    """Return the bytes of a process and its children, with shared pages counted for each process, and counted once."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0, 0
    fields = dict(line.split(":", 1) for line in lines)
    both = [
        (1024 * int(fields[name].split()[0]) for name in ("Rss", "Pss")),
        *(memory_of(int(one)) for one in children),
    ]
    resident, shares = (sum(column) for column in zip(*both))
    return resident, shares


def prepare(folder: Path, text: Path, sizes: Sequence[int], pieces: int) -> None:
    """Write the text in each size, raw and segmented, and the vocabularies for the modes."""
    lines = {one: gzip.decompress((text / f"train.{one}.gz").read_bytes()).decode().splitlines() for one in LANGUAGES}
    write(folder / "once", lines, len(lines["en"]))
    make(folder / "learned", "--trainpref", folder / "once", "tokenizer=bpe", "--vocab-size", pieces)
    pair = LanguagePair.load(folder / "learned" / "tokenizer")
    cut = {one: [" ".join(in_pieces(pair, line)) for line in lines[one]] for one in LANGUAGES}
    write(folder / "once-cut", cut, len(lines["en"]))
    make(folder / "words", "--trainpref", folder / "once-cut", "tokenizer=words")
    counts = Counter(piece for one in LANGUAGES for line in cut[one] for piece in line.split(" "))
    listed = "".join(f"{piece} {count}\n" for piece, count in counts.most_common())
    (folder / "dict.txt").write_text(listed, encoding="utf-8")
    for size in sizes:
        write(folder / f"raw-{size}", lines, size)
        write(folder / f"cut-{size}", cut, size)


def make(corpus: Path, *options: object) -> None:
    command = (sys.executable, *OURS, "--destdir", corpus, "--joined-dictionary", *options)
    subprocess.run([*map(str, command)], check=True)


def in_pieces(pair: LanguagePair, line: str) -> list[str]:
    return pair.source.pieces(pair.source.encode([line])[0].tolist())


def write(prefix: Path, lines: dict[str, list[str]], count: int) -> None:
    for language, some in lines.items():
        with open(f"{prefix}.{language}", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in itertools.islice(itertools.cycle(some), count))


def ways(folder: Path, size: int, given: argparse.Namespace) -> Iterator[Way]:
    result, raw, cut = folder / "result", folder / f"raw-{size}", folder / f"cut-{size}"
    options: dict[str, tuple[object, ...]] = {
        "learned": ("--trainpref", raw, "tokenizer=bpe", "--vocab-size", given.pieces),
        "given": ("--trainpref", raw, "--srcdict", folder / "learned", "--tgtdict", folder / "learned"),
        "words": ("--trainpref", cut, "--srcdict", folder / "words", "--tgtdict", folder / "words"),
    }
    for workers, name in itertools.product(given.workers, given.ways):
        command = (sys.executable, *OURS, "--destdir", result, "--joined-dictionary", "--workers", workers)
        yield Way(f"nmt {name}, --workers {workers}", size, (*command, *options[name]), result)
    if given.fairseq is not None:
        peer = (given.fairseq, HERE / "peers" / "fairseq_command.py", "preprocess", "-s", "en", "-t", "de")
        known = ("--srcdict", folder / "dict.txt", "--joined-dictionary", "--workers", 1)
        yield Way(PEER, size, (*peer, "--trainpref", cut, "--destdir", result, *known), result)


def rows(measured: Sequence[Way]) -> Iterator[str]:
    yield f"| | pairs | pairs/s | rounds | CPU s | pairs/s / {PEER}'s | memory, MiB | memory, shared pages counted once |"
    yield "|---" * 8 + "|"
    for way in measured:
        beside = next((other for other in measured if other.name == PEER and other.pairs == way.pairs), None)
        ratios = [] if beside is None else [speed / other for speed, other in zip(way.speeds, beside.speeds)]
        cells = (
            f"{way.pairs:,}",
            f"{statistics.median(way.speeds):,.0f}",
            f"{min(way.speeds):,.0f} to {max(way.speeds):,.0f}",
            f"{statistics.median(way.processor):.1f}",
            f"{statistics.median(ratios):.1f}" if ratios else "",
            f"{way.memory / 2**20:.0f}",
            f"{way.own_memory / 2**20:.0f}",
        )
        yield f"| {way.name} | {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="folder with train.en.gz and train.de.gz")
    parser.add_argument("--pairs", type=int, nargs="+", default=[580_000], help="sentence pairs to prepare")
    parser.add_argument("--pieces", type=int, default=8000, help="size of the learned vocabulary in tokens")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="worker processes of nmt-preprocess")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="modes of nmt-preprocess to measure")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each mode")
    parser.add_argument("--fairseq", type=Path, help="Python interpreter that has fairseq")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, given.text, given.pairs, given.pieces)
        measured = [way for size in given.pairs for way in ways(folder, size, given)]
        for number in range(given.rounds):
            for way in measured if number % 2 == 0 else reversed(measured):
                way.run()
    print("\n".join(rows(measured)))


if __name__ == "__main__":
    main()
