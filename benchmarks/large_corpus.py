"""Cost of opening and shuffling a corpus of any size: time, and memory of each process.

    python benchmarks/large_corpus.py --pairs 10000000 --folder /tmp/large

Generates a corpus folder of random sentences as long as those of Multi30k, unless it exists. Then two processes, which
both live until the end, open it in turn, plan an epoch, and read some batches. Memory is measured by the system: "own"
is anonymous memory of the process beyond that before opening; "mapped" are pages of the files, which all processes
share and the system can take back.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import BatchingConfig
from nmt.data.batching.plan import plan_batches
from nmt.data.corpus.folder import FORMAT, KIND, Corpus
from nmt.data.corpus.rows import ragged_writer, sentence_files
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.vocabulary import EOS, Ids, Ints
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.files import MANIFEST, write_manifest
from nmt.storage.reading import read_json

PIECES, AT_ONCE = 8000, 2**20
BATCHES = 200  # batches to read


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=10_000_000, help="sentence pairs of the generated corpus")
    options.add_argument("--max-tokens", type=int, default=4096, help="maximum batch size in tokens")
    options.add_argument(
        "--folder", type=Path, default=Path("large-corpus"), help="corpus folder, written if it does not exist"
    )
    options.add_argument("--measure", action="store_true", help="internal: run as one of the two processes")
    given = options.parse_args()
    if given.measure:
        measure(given.folder, given.max_tokens)
        return
    if not (given.folder / MANIFEST).exists():
        began = time.monotonic()
        make(given.folder, given.pairs)
        print(f"wrote {given.pairs:,} pairs in {time.monotonic() - began:.0f} s: {given.folder}", flush=True)
    command = [sys.executable, __file__, "--measure", "--folder", str(given.folder)]
    command += ["--max-tokens", str(given.max_tokens)]
    waiting = []
    print("| | pairs | opening | planning | planning, CPU time | own memory | peak | mapped memory |")
    print("|---" * 8 + "|", flush=True)
    for name in ("first process", "second process"):
        waiting.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        out = waiting[-1].stdout
        assert out is not None
        print(f"| {name} | {' | '.join(told(json.loads(out.readline())))} |", flush=True)
    for process in waiting:
        process.communicate("\n")


def make(folder: Path, pairs: int) -> None:
    """Write a corpus of random sentences. Its vocabulary is from a text that has each word once."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    text = folder.parent / f"{folder.name}-vocabulary"
    for language in ("en", "de"):
        text.with_suffix(f".{language}").write_text("".join(f"w{number}\n" for number in range(PIECES)))
    config = PreprocessConfig("en", "de", trainpref=str(text), destdir=str(folder), tokenizer=WordsConfig())
    config.joined_dictionary = True
    preprocess(config)
    draw = np.random.Generator(np.random.PCG64(1))
    with (
        ragged_writer(*sentence_files(folder, "train", "en"), np.uint16) as source,
        ragged_writer(*sentence_files(folder, "train", "de"), np.uint16) as target,
    ):
        for start in range(0, pairs, AT_ONCE):
            count = min(AT_ONCE, pairs - start)
            lengths = np.clip(draw.normal(15.3, 4.7, count), 3, 60).round().astype(np.int64)
            source(*sentences(draw, lengths))
            target(*sentences(draw, np.clip(lengths + draw.normal(0.5, 2.7, count), 3, 70).round().astype(np.int64)))
    facts = read_json(folder / MANIFEST)
    for name in ("kind", "format", "written_by", "files", "text"):
        facts.pop(name, None)
    write_manifest(folder, KIND, FORMAT, **facts)


def sentences(draw: np.random.Generator, lengths: Ints) -> tuple[Ids, Ints]:
    ids = draw.integers(EOS + 1, PIECES, int(lengths.sum()), dtype=np.uint16)
    ids[lengths.cumsum() - 1] = EOS
    return ids, lengths


def measure(folder: Path, max_tokens: int) -> None:
    """Print time and memory of this process as JSON, and wait for a line of input."""
    before, facts = memory()["RssAnon"], dict[str, float]()
    watch = Watch()
    watch.start()
    began = time.monotonic()
    split = Corpus.open(folder).split("train")
    facts["opened"], began, processor = time.monotonic() - began, time.monotonic(), time.process_time()
    plan = plan_batches(split.source_lengths, split.target_lengths, BatchingConfig(max_tokens))
    facts["planned"], facts["peak"] = time.monotonic() - began, watch.most - before
    facts["processor"] = time.process_time() - processor
    for batch in plan[:BATCHES]:
        for number in batch.tolist():
            split.source(number), split.target(number)
    facts["pairs"] = len(split)
    now = memory()
    facts |= {"own": now["RssAnon"] - before, "mapped": now["RssFile"]}
    print(json.dumps(facts), flush=True)
    sys.stdin.readline()


def memory() -> dict[str, int]:
    """Return the memory of this process in bytes, as reported by Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: 1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssFile")}


class Watch(threading.Thread):
    """Record the peak of the process's anonymous memory, read every 5 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        while True:
            self.most = max(self.most, memory()["RssAnon"])
            time.sleep(0.005)


def told(facts: dict[str, float]) -> list[str]:
    """Return the cells of a row."""
    pairs = facts["pairs"]
    seconds = [f"{facts[name]:.2f} s" for name in ("opened", "planned", "processor")]
    memory = [f"{facts[name] / 1e6:.0f} MB, {facts[name] / pairs:.1f} bytes per pair" for name in ("own", "peak")]
    return [f"{pairs:,}", *seconds, *memory, f"{facts['mapped'] / 1e6:.0f} MB"]


if __name__ == "__main__":
    main()
