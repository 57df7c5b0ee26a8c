"""Decoding speed next to other engines with the same weights, in turns.

    python benchmarks/decoding_speed.py MODEL TEXT --references REFERENCES --rounds 3 \
        --ctranslate2 PEERS/ctranslate2/bin/python --fairseq PEERS/fairseq/bin/python \
        --transformers PEERS/transformers/bin/python

MODEL is a run folder or checkpoint of the paper's Transformer with a joint vocabulary; TEXT and REFERENCES are plain
or gzipped. nmt-export converts the model for CTranslate2 and compares both, so this environment needs ctranslate2 too.
The script stops if the BLEU of an engine differs by more than 1 from that of our first setting, since the models must
differ. All engines search with beam 4, divide a score by the length, allow 255 tokens and stop at four finished
hypotheses.

Each engine translates the whole text in a separate process, then the next one follows. Start-up and loading do not
count; fairseq and nmt report their speed themselves. nmt gets text, the others get tokens. ``--ours`` has the options
of nmt-generate, one setting per argument; on a GPU (``--device cuda``) try "--precision fp16" and "--precision fp16
--cuda-graphs". ``--shortlist`` also gives CTranslate2 our shortlist, as its vocabulary map.

Prints a Markdown table: lines a second (the median of the rounds, and their range), the ratio of our first setting to
the row (the median of the ratios within a round), BLEU, the share of lines with the text of our first setting, and the
peak memory of a process with its children.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sacrebleu
from training_speed import HERE, MALLOC, VARIABLE, faster_by, prepare, program, resident

from nmt.data.corpus.shortlist import Shortlist
from nmt.data.language_pair import LanguagePair
from nmt.storage.run_folder import resolve, tokenizer_folder

BEAM, LIMIT = 4, 255
MOST_APART = 1.0  # BLEU between two engines with the same weights: quantization and shortlists differ by less
COMMON = f"--beam {BEAM} --length-penalty power --lenpen 1 --max-len-a 0"
NUMBER = r"([\d.,]+)"
SPEED = rf"translated [\d,]+ of [\d,]+ lines \({NUMBER} a second"  # in the log of nmt-generate


@dataclass
class Engine:
    """An engine and its command. ``speed`` matches lines per second in its log; ``texts`` returns its translations."""

    name: str
    command: Sequence[str]
    speed: str
    texts: Callable[[], list[str]]
    environment: dict[str, str] = field(default_factory=dict)
    speeds: list[float] = field(default_factory=list)  # by round
    memory: int = 0

    def run(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in (VARIABLE, "OMP_NUM_THREADS")}
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, env={**environment, **self.environment}
            )
            while process.poll() is None:
                self.memory = max(self.memory, resident(process.pid))
                time.sleep(0.1)
            log.seek(0)
            said = log.read()
        found = re.findall(self.speed, said)
        if process.returncode != 0 or not found:
            sys.exit(f"{self.name} failed with status {process.returncode}:\n{said[-3000:]}")
        self.speeds.append(float(found[-1].replace(",", "")))
        print(f"{self.name}: {self.speeds[-1]:.0f} lines/s, {self.memory / 2**20:.0f} MiB", file=sys.stderr)


@dataclass(frozen=True)
class Task:
    """A model and the text to translate."""

    model: Path  # a checkpoint
    text: Path
    work: Path
    threads: int
    device: str
    length: int | None = None  # length of every translation in tokens, eos included; None: free
    shortlist: Path | None = None

    @property
    def longest(self) -> int:
        return self.length or LIMIT

    @property
    def lengths(self) -> str:
        """Options for the length in nmt and fairseq, which count without eos."""
        return f"--max-len-b {self.longest - 1} --min-len {self.length - 1 if self.length else 1}"

    @property
    def pair(self) -> LanguagePair:
        return LanguagePair.load(tokenizer_folder(self.model))

    @property
    def pieces(self) -> Path:
        """File with the tokens of the text."""
        path = self.work / "text.pieces"
        if not path.exists():
            source = self.pair.source
            cut = [source.pieces(ids.tolist()) for ids in source.encode(read(self.text))]
            path.write_text("".join(" ".join(line) + "\n" for line in cut), encoding="utf-8")
        return path

    @property
    def entries(self) -> Path:
        """File with the vocabulary, one token per line."""
        path = self.work / "entries"
        path.write_text("".join(f"{piece}\n" for piece in self.pair.target.vocabulary.pieces), encoding="utf-8")
        return path

    @property
    def vocabulary_map(self) -> str:
        """The shortlist as a vocabulary map of CTranslate2: a source token and its candidates.

        The line of the empty source token has the tokens that are candidates for all sources.
        """
        assert self.shortlist is not None
        short, pieces = Shortlist.load(self.shortlist, self.pair), self.pair.target.vocabulary.pieces
        lines = ["\t" + " ".join(pieces[index] for index in short.always)]
        for piece, start, end in zip(self.pair.source.vocabulary.pieces, short.offsets, short.offsets[1:]):
            lines.append(f"{piece}\t" + " ".join(pieces[index] for index in short.pieces[start:end]))
        return "".join(f"{line}\n" for line in lines)

    def joined(self, lines: Sequence[str]) -> list[str]:
        """Return lines of target tokens as text."""
        number = {piece: index for index, piece in enumerate(self.pair.target.vocabulary.pieces)}
        return [self.pair.target.decode([number[piece] for piece in line.split(" ") if piece]) for line in lines]


def read(path: Path) -> list[str]:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return raw.decode().split("\n")[:-1]


def ours(task: Task, options: str, number: int) -> Engine:
    output = task.work / f"ours.{number}"
    command = [sys.executable, "-m", "nmt_cli.generate", "--path", str(task.model), "--input", str(task.text)]
    command += ["--output", str(output), "--overwrite", "--progress", "lines", *COMMON.split(), *task.lengths.split()]
    command += ["--device", task.device, "--threads", str(task.threads), *options.split()]
    environment = {"PYTHONPATH": str(HERE.parent)}
    return Engine(f"nmt {options}", command, SPEED, lambda: read(output), environment)


def ctranslate2(
    python: str, task: Task, quantization: str, workers: int, threads: int, batch: int, *, short: bool = False
) -> Engine:
    model, output = task.work / f"ctranslate2-{quantization}", task.work / "ctranslate2.out"
    if not model.exists():
        given = ["--path", str(task.model), "--output", str(model), "--quantization", quantization]
        export = [sys.executable, "-m", "nmt_cli.export", "--format", "ctranslate2", *given]
        prepare("CTranslate2", export, {"PYTHONPATH": str(HERE.parent)})
        if task.shortlist is not None:
            (model / "vmap.txt").write_text(task.vocabulary_map, encoding="utf-8")
    script = [python, str(HERE / "peers" / "ctranslate2_translate.py"), str(model), str(task.pieces), str(output)]
    command = [*script, task.device, quantization, *map(str, (workers, threads, batch, BEAM, task.longest))]
    command += ["FIXED"] * (task.length is not None) + ["MAP"] * short
    name = f"CTranslate2 {quantization}{', shortlist' if short else ''}, {workers} x {threads}, batch {batch}"
    return Engine(name, command, f"lines a second {NUMBER}", lambda: task.joined(read(output)))


def fairseq(python: str, task: Task, batch: int) -> Engine:
    folder = task.work / "fairseq"
    start = [python, str(HERE / "peers" / "fairseq_command.py")]
    if not folder.exists():
        folder.mkdir()
        script = [python, str(HERE / "peers" / "fairseq_model.py")]
        prepare("fairseq", [*script, str(task.model), str(task.entries), str(folder)])
        for side in ("src", "tgt"):
            (folder / f"test.{side}").symlink_to(task.pieces)
        given = f"--source-lang src --target-lang tgt --testpref {folder}/test --destdir {folder}/binary"
        given += f" --srcdict {folder}/dict.txt --tgtdict {folder}/dict.txt"
        prepare("fairseq", [*start, "preprocess", *given.split()])
    options = (
        f"{folder}/binary --path {folder}/model.pt --beam {BEAM} --lenpen 1 --max-len-a 0 {task.lengths} "
        f"--batch-size {batch} {'--cpu' if task.device == 'cpu' else '--fp16'} --no-progress-bar --results-path {folder}"
    )

    def texts() -> list[str]:
        lines = [line.split("\t") for line in read(folder / "generate-test.txt") if line.startswith("H-")]
        return task.joined([line[2] for line in sorted(lines, key=lambda line: int(line[0][2:]))])

    command = [*start, "generate", *options.split()]
    threads = {"OMP_NUM_THREADS": str(task.threads)}
    return Engine(f"fairseq, batch {batch}", command, rf"\({NUMBER} sentences/s", texts, threads)


def transformers(python: str, task: Task, batch: int) -> Engine:
    model, output = task.work / "transformers", task.work / "transformers.out"
    if not model.exists():
        entries = str(len(task.pair.target.vocabulary))
        script = [python, str(HERE / "peers" / "transformers_model.py")]
        prepare("Hugging Face", [*script, str(task.model), entries, str(model)])
    script = [python, str(HERE / "peers" / "transformers_translate.py"), str(model), str(task.entries)]
    command = [*script, str(task.pieces), str(output), task.device]
    command += [*map(str, (task.threads, batch, BEAM, task.longest)), *["FIXED"] * (task.length is not None)]
    return Engine(
        f"Hugging Face, batch {batch}", command, f"lines a second {NUMBER}", lambda: task.joined(read(output))
    )


@dataclass(frozen=True)
class Settings:
    """Settings of the other engines on a device."""

    quantizations: Sequence[str]
    batches: Sequence[int]
    workers: Callable[[int], Sequence[tuple[int, int]]]  # workers and threads per worker, from the number of threads


SETTINGS = {
    "cpu": Settings(
        ("float32", "int8"), (16, 32, 64), lambda threads: sorted({(threads, 1), (1, threads)}, reverse=True)
    ),
    "cuda": Settings(("float32", "float16", "int8_float16"), (64, 256), lambda threads: ((1, 1),)),
}


def engines(arguments: argparse.Namespace, work: Path) -> list[Engine]:
    given = (arguments.threads, arguments.device, arguments.length, arguments.shortlist)
    task = Task(resolve(arguments.model), arguments.text, work, *given)
    tried = SETTINGS[task.device]
    found = [ours(task, options, number) for number, options in enumerate(arguments.ours)]
    if arguments.ctranslate2:
        for quantization, short, (workers, threads), batch in itertools.product(
            tried.quantizations, sorted({False, task.shortlist is not None}), tried.workers(task.threads), tried.batches
        ):
            found.append(ctranslate2(arguments.ctranslate2, task, quantization, workers, threads, batch, short=short))
            if arguments.malloc:
                found.append(with_malloc(found[-1]))
    if arguments.fairseq:
        for batch in (64, 128) if task.device == "cpu" else tried.batches:
            found.append(fairseq(arguments.fairseq, task, batch))
            if task.device == "cpu":
                found.append(with_malloc(found[-1]))
    if arguments.transformers:
        for batch in (64, 128) if task.device == "cpu" else tried.batches:
            found.append(transformers(arguments.transformers, task, batch))
            if task.device == "cpu":
                found.append(with_malloc(found[-1]))
    return found


def with_malloc(engine: Engine) -> Engine:
    """Return the engine with the allocator settings of nmt."""
    return Engine(
        f"{engine.name} + malloc", engine.command, engine.speed, engine.texts, {**engine.environment, **MALLOC}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Compare decoding speed with other engines that have the same weights."
    )
    parser.add_argument("model", type=Path, help="run folder or checkpoint")
    parser.add_argument("text", type=Path, help="text to translate")
    parser.add_argument("--references", type=Path, help="reference translations, for BLEU")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each engine (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="number of threads (default: %(default)s)")
    parser.add_argument("--length", type=int, help="length of every translation in tokens, for untrained weights")
    parser.add_argument(
        "--device", choices=SETTINGS, default="cpu", help="device of all engines (default: %(default)s)"
    )
    parser.add_argument(
        "--ours", nargs="+", default=["--precision fp32"], help="options of nmt-generate, one string per setting"
    )
    parser.add_argument("--shortlist", type=Path, help="vocabulary shortlist of nmt-shortlist, also for CTranslate2")
    parser.add_argument("--malloc", action="store_true", help="also run CTranslate2 with nmt's allocator settings")
    parser.add_argument("--ctranslate2", type=program, help="Python interpreter that has ctranslate2")
    parser.add_argument("--fairseq", type=program, help="Python interpreter that has fairseq")
    parser.add_argument("--transformers", type=program, help="Python interpreter that has transformers")
    arguments = parser.parse_args()
    references = read(arguments.references) if arguments.references else None
    with tempfile.TemporaryDirectory() as folder:
        all_engines = engines(arguments, Path(folder))
        texts: list[list[str]] = []
        for number in range(arguments.rounds):
            for engine in all_engines:
                engine.run()
                if number == 0:
                    texts.append(engine.texts())
                    require_our_bleu(engine.name, texts[-1], texts[0], references)
    report(all_engines, texts, references)


def bleu_of(lines: Sequence[str], references: Sequence[str]) -> float:
    return float(sacrebleu.corpus_bleu(list(lines), [list(references)]).score)


def require_our_bleu(name: str, lines: Sequence[str], ours: Sequence[str], references: Sequence[str] | None) -> None:
    """Stop if the BLEU of an engine differs from ours by more than ``MOST_APART``: it cannot have the same model."""
    if references is None:  # untrained weights
        return
    theirs, expected = bleu_of(lines, references), bleu_of(ours, references)
    if abs(theirs - expected) > MOST_APART:
        sys.exit(
            f"{name} has BLEU {theirs:.2f}, but nmt has {expected:.2f}, so the models differ; check how the model was "
            f"converted"
        )


def report(all_engines: Sequence[Engine], texts: Sequence[Sequence[str]], references: Sequence[str] | None) -> None:
    print(f"| engine | lines/s | rounds | {all_engines[0].name} / engine | BLEU | same translations | memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    for engine, lines in zip(all_engines, texts):
        speed = statistics.median(engine.speeds)
        rounds = f"{min(engine.speeds):,.0f} to {max(engine.speeds):,.0f}"
        bleu = "" if references is None else f"{bleu_of(lines, references):.2f}"
        same = sum(one == other for one, other in zip(lines, texts[0])) / len(lines)
        ratio = faster_by(all_engines[0].speeds, engine.speeds)
        figures = f"{speed:,.0f} | {rounds} | {ratio:.2f} | {bleu} | {same:.1%}"
        print(f"| {engine.name} | {figures} | {engine.memory / 2**20:,.0f} |")


if __name__ == "__main__":
    main()
