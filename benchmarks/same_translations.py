"""Translations of a model that another toolkit trained: by that toolkit, and by nmt after nmt-import.

    python benchmarks/same_translations.py DATA/multi30k --work FOLDER --fairseq PEERS/fairseq/bin/python \
        --marian PEERS/marian/bin

DATA/multi30k has train, val and test_2016_flickr as .en.gz and .de.gz. Each named toolkit trains a small Transformer
on sentencepiece tokens and translates the test set; benchmarks/peers/README.md has their installation. nmt imports the
model and translates the same lines from text. Finished steps in FOLDER are reused. Prints a Markdown table:
translations with the same tokens, and the largest difference between the log-probabilities (natural, per token) of
such a translation.
"""

from __future__ import annotations

import argparse
import gzip
import io
import math
import os
import re
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
from training_speed import HERE, marian_folder, prepare, program

SOURCE, TARGET = "en", "de"
SPLITS = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
PIECES = 8000
BEAM = 5
# Tokens, for every source: in some toolkits, a limit by source length would use the longest source of a batch.
LONGEST = 200
_HYPOTHESIS = re.compile(r"H-(\d+)\t(\S+)\t(.*)")


@dataclass(frozen=True)
class Answer:
    """A translation."""

    pieces: str
    score: float  # natural log-probability per token


@dataclass(frozen=True)
class Task:
    """Text and sizes for training and translation, for all toolkits."""

    text: Path
    work: Path
    updates: int
    lines: int

    def raw(self, split: str, language: str) -> list[str]:
        packed = (self.text / f"{SPLITS[split]}.{language}.gz").read_bytes()
        found = gzip.decompress(packed).decode().split("\n")[:-1]
        return found[: self.lines] if split == "test" else found

    @property
    def model(self) -> Path:
        """The sentencepiece model for both languages."""
        path = self.work / "bpe.model"
        if not path.exists():
            written = io.BytesIO()
            text = (line for language in (SOURCE, TARGET) for line in self.raw("train", language))
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=text, model_writer=written, model_type="bpe", vocab_size=PIECES, minloglevel=2
            )
            path.write_bytes(written.getvalue())
        return path

    def cut(self, split: str) -> Path:
        """Write the tokens of a split. Return the path without the language."""
        path = self.work / f"{split}.bpe"
        model = sentencepiece.SentencePieceProcessor(model_file=str(self.model))
        for language in (SOURCE, TARGET):
            cut = model.encode(self.raw(split, language), out_type=str)
            Path(f"{path}.{language}").write_text("".join(" ".join(line) + "\n" for line in cut), encoding="utf-8")
        return path

    @property
    def source(self) -> Path:
        """File with the text of the test set."""
        path = self.work / f"test.{SOURCE}"
        path.write_text("".join(f"{line}\n" for line in self.raw("test", SOURCE)), encoding="utf-8")
        return path


class Toolkit(ABC):
    """A toolkit that trains in a separate folder, and translates with the trained model."""

    name: str

    def __init__(self, task: Task) -> None:
        self.task = task
        self.folder = task.work / self.name
        self.folder.mkdir(exist_ok=True)

    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def train(self) -> None:
        """Train a model, unless it exists."""

    @abstractmethod
    def translate(self) -> Mapping[int, Answer]:
        """Return the translations by line number, from 0."""

    @abstractmethod
    def imported(self) -> Sequence[str]:
        """Return the options of nmt-import."""

    @abstractmethod
    def search(self) -> Sequence[str]:
        """Return the options of nmt-generate for the same search."""


class Fairseq(Toolkit):
    name = "fairseq"

    def __init__(self, task: Task, python: str) -> None:
        super().__init__(task)
        self._python = python
        self._binary, self._checkpoint = self.folder / "binary", self.folder / "checkpoint_last.pt"

    def version(self) -> str:
        command = [self._python, "-c", "from importlib.metadata import version; print(version('fairseq'))"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def train(self) -> None:
        if self._checkpoint.exists():
            return
        prefixes = " ".join(f"--{split}pref {self.task.cut(split)}" for split in SPLITS)
        given = f"--source-lang {SOURCE} --target-lang {TARGET} --destdir {self._binary} --joined-dictionary"
        self._run("preprocess", f"{given} {prefixes}")
        model = "--arch transformer --share-all-embeddings --dropout 0.1"
        for side in ("encoder", "decoder"):
            model += f" --{side}-layers 2 --{side}-embed-dim 128 --{side}-ffn-embed-dim 256 --{side}-attention-heads 4"
        options = (
            f"--cpu --optimizer adam --lr 0.003 --lr-scheduler inverse_sqrt --warmup-updates 300 --clip-norm 1 "
            f"--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --max-tokens 2048 "
            f"--max-update {self.task.updates} --disable-validation --num-workers 0 --seed 1 --log-format simple "
            f"--log-interval 100 --save-dir {self.folder} --no-epoch-checkpoints --save-interval 10000"  # only at the end
        )
        self._run("train", f"{self._binary} {model} {options}")

    def translate(self) -> Mapping[int, Answer]:
        options = f"--path {self._checkpoint} --cpu --batch-size 64 --beam {BEAM} --lenpen 1"
        limits = f"--max-len-a 0 --max-len-b {LONGEST} --results-path {self.folder} --no-progress-bar"
        self._run("generate", f"{self._binary} {options} {limits}")
        return answers((self.folder / "generate-test.txt").read_text(encoding="utf-8"))

    def imported(self) -> Sequence[str]:
        dictionary = self._binary / f"dict.{SOURCE}.txt"
        given = f"--from fairseq --path {self._checkpoint} --srcdict {dictionary} --bpe sentencepiece"
        return [*given.split(), "--bpe-model", str(self.task.model)]

    def search(self) -> Sequence[str]:
        return f"--beam {BEAM} --lenpen 1 --length-penalty power --stop first".split()

    def _run(self, command: str, options: str) -> None:
        script = HERE / "peers" / "fairseq_command.py"
        prepare(f"fairseq-{command}", [self._python, str(script), command, *options.split()])


class Marian(Toolkit):
    name = "marian"

    def __init__(self, task: Task, folder: str) -> None:
        super().__init__(task)
        self._program = str(Path(folder) / "pymarian")
        self._model, self._vocabulary = self.folder / "model.npz", self.folder / "vocab.yml"

    def version(self) -> str:
        command = [self._program, "--version"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
        return done.stdout.split()[0].removeprefix("v")

    def train(self) -> None:
        if self._model.exists():
            return
        cut = self.task.cut("train")
        files = f"--model {self._model} --vocabs {self._vocabulary} {self._vocabulary}"
        files += f" --train-sets {cut}.{SOURCE} {cut}.{TARGET}"
        model = "--type transformer --tied-embeddings-all --enc-depth 2 --dec-depth 2 --dim-emb 128"
        options = (
            f"--transformer-dim-ffn 256 --transformer-heads 4 --transformer-dropout 0.1 "
            f"--label-smoothing 0.1 --learn-rate 0.003 --lr-warmup 300 "
            f"--lr-decay-inv-sqrt 300 --clip-norm 1 --mini-batch 1000 --mini-batch-words 2048 --cpu-threads 1 -w 2000 "
            f"--after-batches {self.task.updates} --disp-freq 100 --seed 1"
        )
        prepare("marian-train", [self._program, "train", *f"{files} {model} {options}".split()])

    def translate(self) -> Mapping[int, Answer]:
        written = self.folder / "translated"
        files = f"-m {self._model} -v {self._vocabulary} {self._vocabulary} -i {self.task.cut('test')}.{SOURCE} -o {written}"
        options = f"--beam-size {BEAM} --normalize 1 --n-best --max-length-factor 20 --cpu-threads 1"
        prepare("marian-decode", [self._program, "decode", *f"{files} {options}".split()])
        return answers_of_marian(written.read_text(encoding="utf-8"))

    def imported(self) -> Sequence[str]:
        given = f"--from marian --path {self._model} --srcdict {self._vocabulary} --bpe sentencepiece"
        return [*given.split(), "--bpe-model", str(self.task.model)]

    def search(self) -> Sequence[str]:
        return f"--beam {BEAM} --lenpen 1".split()  # the other options are imported


def answers_of_marian(written: str) -> dict[int, Answer]:
    """Parse an n-best list: return the first hypothesis of each line, with its score per token (``normalize`` 1)."""
    found: dict[int, Answer] = {}
    for line in written.split("\n")[:-1]:
        number, pieces, _, score = line.split(" ||| ")
        found.setdefault(int(number), Answer(pieces, float(score)))
    return found


def answers(written: str) -> dict[int, Answer]:
    """Parse the output of fairseq-generate, or of nmt-generate --format fairseq.

    With a length penalty of 1, the H- lines have scores per token, in bits.
    """
    found = map(_HYPOTHESIS.fullmatch, written.split("\n"))
    return {int(match[1]): Answer(match[3], float(match[2]) * math.log(2)) for match in found if match}


def ours(toolkit: Toolkit) -> Mapping[int, Answer]:
    """Import the model and translate the test set."""
    model, task = toolkit.folder / "imported", toolkit.task
    languages = ["--source-lang", SOURCE, "--target-lang", TARGET]
    _nmt("import_", *toolkit.imported(), *languages, "--output", str(model), "--overwrite")
    limits = f"--max-len-a 0 --max-len-b {LONGEST} --device cpu --format fairseq"
    given = ["--path", str(model), "--input", str(task.source), *toolkit.search(), *limits.split()]
    return answers(_nmt("generate", *given))


def _nmt(command: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    line = [sys.executable, "-m", f"nmt_cli.{command}", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        sys.exit(f"nmt {command} failed with status {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


@dataclass(frozen=True)
class Comparison:
    lines: int
    same: tuple[int, ...]  # line numbers
    difference: float  # largest difference of the scores of a line

    @classmethod
    def of(cls, theirs: Mapping[int, Answer], here: Mapping[int, Answer]) -> Comparison:
        assert theirs.keys() == here.keys(), "both translate the same lines"
        same = tuple(number for number in theirs if theirs[number].pieces == here[number].pieces)
        return cls(
            len(theirs),
            same,
            max((abs(theirs[number].score - here[number].score) for number in same), default=math.nan),
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare translations of a model by the toolkit that trained it and by nmt."
    )
    parser.add_argument("text", type=Path, help="folder that holds Multi30k")
    parser.add_argument("--work", type=Path, help="folder for models and translations (default: a temporary one)")
    parser.add_argument("--updates", type=int, default=1000, help="updates of training (default: %(default)s)")
    parser.add_argument("--lines", type=int, default=1000, help="lines of the test set (default: %(default)s)")
    parser.add_argument("--fairseq", type=program, help="Python interpreter that has fairseq")
    parser.add_argument("--marian", type=marian_folder, help="folder that has the command pymarian")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) if arguments.work is None else arguments.work.resolve()
        work.mkdir(parents=True, exist_ok=True)
        task = Task(arguments.text, work, arguments.updates, arguments.lines)
        toolkits: list[Toolkit] = []
        if arguments.fairseq:
            toolkits.append(Fairseq(task, arguments.fairseq))
        if arguments.marian:
            toolkits.append(Marian(task, arguments.marian))
        if not toolkits:
            parser.error("name a toolkit, such as --marian PEERS/marian/bin")
        print("| toolkit | lines | same tokens | largest difference of log-probability per token |\n|---|---|---|---|")
        for toolkit in toolkits:
            toolkit.train()
            theirs, here = toolkit.translate(), ours(toolkit)
            found = Comparison.of(theirs, here)
            name = f"{toolkit.name} {toolkit.version()}"
            print(f"| {name} | {found.lines:,} | {len(found.same):,} | {found.difference:.1e} |")
            for number in sorted(theirs.keys() - set(found.same))[:5]:
                print(f"line {number}:\n  {theirs[number]}\n  {here[number]}", file=sys.stderr)


if __name__ == "__main__":
    main()
