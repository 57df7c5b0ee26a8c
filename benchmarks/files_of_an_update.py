"""The files of nmt/ that an update and a translation call, in the order of their first call.

    python benchmarks/files_of_an_update.py [--output files.json]

Counts a file if one of its functions is called. Generates a corpus of random numbers in a temporary folder, trains a
small Transformer on it on the CPU, and counts

- one update in the middle of the run, from one announcement of batches to the next: gradients, optimizer step, log, and
  the batches of the update after it;
- one line translated by the trained model, by the engine that ``nmt-generate`` would choose, after a first line.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from unittest import mock

import nmt
from nmt.preprocessing.preprocess import preprocess
from nmt.training.assemble import train
from nmt.training.loop.batches import UpdateBatches
from nmt.training.loop.updater import Updater

ROOT = Path(nmt.__file__).parent
UPDATES = 10
COUNTED = 5  # the update whose files are counted: neither the first, nor one after which a checkpoint is written


class CalledFiles:
    """Record the files of nmt/ whose functions this thread calls, between ``start`` and ``stop``."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}  # in the order of their first call

    def start(self) -> None:
        sys.setprofile(self._note)

    def stop(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            self.names.setdefault(str(path.relative_to(ROOT.parent)))


def files_of_an_update(corpus: Path, run: Path) -> list[str]:
    """Train, and return the files of one update. Each update announces the batches of the next one once."""
    called, announcements = CalledFiles(), 0
    announce = Updater.announce

    def counted(self: Updater, updates: Sequence[UpdateBatches]) -> None:
        nonlocal announcements
        announcements += 1
        if announcements == COUNTED + 1:
            called.stop()
        announce(self, updates)
        if announcements == COUNTED:
            called.start()

    with mock.patch.object(Updater, "announce", counted):
        train(data=[str(corpus)], save_dir=str(run), model="transformer_tiny", max_update=UPDATES, max_tokens=500)
    return list(called.names)


def files_of_a_line(run: Path) -> list[str]:
    """Return the files of the translation of one line."""
    translator, called = nmt.load(str(run)), CalledFiles()
    translator.translate(["1 2 3"])
    called.start()
    try:
        translator.translate(["4 5 6 7"])
    finally:
        called.stop()
    return list(called.names)


def random_corpus(folder: Path) -> Path:
    """Return a corpus folder whose targets are the reversed sources."""
    draw = random.Random(1)
    for split, size in (("train", 500), ("valid", 20)):
        lines = [[str(draw.randrange(10)) for _ in range(draw.randint(3, 9))] for _ in range(size)]
        for language, step in (("a", 1), ("b", -1)):
            text = "".join(" ".join(line[::step]) + "\n" for line in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    preprocess(
        source_lang="a",
        target_lang="b",
        trainpref=str(folder / "train"),
        validpref=str(folder / "valid"),
        destdir=str(folder / "corpus"),
        tokenizer="words",
    )
    return folder / "corpus"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="also write the lists to this file, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        corpus, run = random_corpus(Path(name)), Path(name) / "run"
        counted = {"one update": files_of_an_update(corpus, run), "one line translated": files_of_a_line(run)}
    for subject, names in counted.items():
        print(f"{subject}: {len(names)} files")
        print("".join(f"  {name}\n" for name in names))
    if options.output is not None:
        options.output.write_text(json.dumps(counted, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
