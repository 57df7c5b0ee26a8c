"""Memory, start and speed of translating in int8 with a model in the sizes of NLLB-200 1.3B, of random numbers.

    python benchmarks/large_model.py FOLDER [--layers 24] [--lines 32] [--length 32] [--rounds 2]

Makes the model (multilingual_import.py), imports it, and exports it with ``--format native`` and ``ctranslate2``, in int8.
Then all engines translate the same lines in turns, with beam 4 and a fixed length: nmt, which packs the imported model at
its start; nmt with packed weights, which it maps; CTranslate2. Models that FOLDER has are not made again; it needs
14 GB. The export to CTranslate2 needs 18 GB of memory, half of them pages of files.

Prints a Markdown table with the medians of the rounds. Start: from the shell to the translation of a line of one token.
Seconds of the CPU depend less on other processes of the machine. Memory: the peak over time of the sum over all processes,
where shared pages count once (PSS), and of the part that is not pages of files.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from multilingual_import import measured, write_model, write_tokenizer

from nmt.models.loading import load_model

HERE = Path(__file__).parent
BEAM, TOKENS = 4, 20  # tokens of a source
SPEED = r"lines \(([\d.,]+) a second|lines a second ([\d.,]+)"  # of nmt-generate, and of peers/ctranslate2_translate.py


@dataclass
class Setting:
    """An engine with its options. ``command``: of its arguments for the text and the length."""

    name: str
    command: Sequence[str]
    starts: list[float] = field(default_factory=list)  # seconds
    start_cpu: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)  # lines per second
    cpu: list[float] = field(default_factory=list)  # seconds per line, without the start
    memory: int = 0
    own: int = 0  # without pages of files

    def run(self, text: Path, length: int, *, is_start: bool) -> None:
        given = [part.format(text=text, length=length, most=length - 1) for part in self.command]
        begin, before = time.monotonic(), cpu_seconds()
        with tempfile.TemporaryFile("w+") as log:
            process = subprocess.Popen(given, stdout=log, stderr=subprocess.STDOUT)
            while process.poll() is None:
                memory, own = proportional(process.pid)
                self.memory, self.own = max(self.memory, memory), max(self.own, own)
                time.sleep(0.2)
            log.seek(0)
            said = log.read()
        if process.returncode:
            raise SystemExit(f"{self.name} failed with status {process.returncode}:\n{said[-3000:]}")
        used = cpu_seconds() - before
        if is_start:
            self.starts.append(time.monotonic() - begin)
            self.start_cpu.append(used)
        else:
            self.cpu.append((used - self.start_cpu[-1]) / len(text.read_text().splitlines()))
            self.speeds.append(float("".join(re.findall(SPEED, said)[-1]).replace(",", "")))
        figures = f"start {self.starts[-1]:.1f} s" if is_start else f"{self.speeds[-1]} lines/s"
        print(f"{self.name}: {figures}, {self.memory / 1e9:.2f} GB", file=sys.stderr)


def cpu_seconds() -> float:
    """Return the CPU time of all ended children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def proportional(pid: int) -> tuple[int, int]:
    """Return the proportional set size of a process and its children, and that without pages of files."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0, 0
    sizes = [
        int(match[1]) * 1024 if (match := re.search(rf"^{name}:\s+(\d+)", text, re.M)) else 0
        for name in ("Pss", "Pss_Anon")
    ]
    below = [proportional(int(child)) for child in children]
    return sizes[0] + sum(pair[0] for pair in below), sizes[1] + sum(pair[1] for pair in below)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    for name, default in (("layers", 24), ("lines", 32), ("length", 32), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    chosen.folder.mkdir(exist_ok=True)
    settings = prepared(chosen.folder, chosen.layers)
    texts = written_texts(chosen.folder, chosen.lines)
    for _ in range(chosen.rounds):
        for setting in settings:
            setting.run(texts[0], 2, is_start=True)
            setting.run(texts[1], chosen.length, is_start=False)
    print(
        "| engine | start, s | start, s of CPU | lines per second | s of CPU per line | memory, GB | not of files, GB |"
    )
    print("|---|---|---|---|---|---|---|")
    for setting in settings:
        medians = map(statistics.median, (setting.starts, setting.start_cpu, setting.speeds, setting.cpu))
        figures = " | ".join(f"{figure:.2f}" for figure in (*medians, setting.memory / 1e9, setting.own / 1e9))
        print(f"| {setting.name} | {figures} |")


def prepared(folder: Path, layers: int) -> list[Setting]:
    """Make the models, and return the settings of all engines."""
    run = [sys.executable, "-m", "nmt"]
    if not (folder / "here").exists():
        with tempfile.TemporaryDirectory(dir=folder) as name:
            write_tokenizer(Path(name))
            write_model(Path(name), layers, torch.float16)
            print(
                "import", measured([*run, "import", "--path", name, "--output", str(folder / "here")]), file=sys.stderr
            )
    for kind in ("native", "ctranslate2"):
        options = f"--path {folder / 'here'} --format {kind} --quantization int8 --sentences 2 --tolerance 1"
        command = [*run, "export", *options.split(), "--output", str(folder / kind)]
        if not (folder / kind).exists():
            print(f"export to {kind}", measured(command), file=sys.stderr)
    languages = "--source-lang aaa_Latn --target-lang aab_Latn"
    search = f"--beam {BEAM} --length-penalty power --lenpen 1 --max-len-a 0 --max-len-b {{most}} --min-len {{most}}"

    def ours(title: str, model: Path, workers: int) -> Setting:
        options = f"--path {model} --dtype int8 --threads {workers} --workers {workers} --device cpu"
        options += " --batch-size 16 --max-tokens 2048"
        return Setting(title, [*run, "generate", "--input", "{text}", *f"{options} {languages} {search}".split()])

    def theirs(title: str, workers: int) -> Setting:
        script = [sys.executable, str(HERE / "peers" / "ctranslate2_translate.py"), str(folder / "ctranslate2")]
        options = f"cpu int8 {workers} 1 16 {BEAM} {{length}} FIXED"
        return Setting(title, [*script, "{text}.pieces", "/dev/null", *options.split()])

    return [
        ours("nmt, packs at its start, one worker", folder / "here", 1),
        ours("nmt, maps packed weights, one worker", folder / "native", 1),
        ours("the same, two workers", folder / "native", 2),
        theirs("CTranslate2, one worker", 1),
        theirs("CTranslate2, two workers", 2),
    ]


def written_texts(folder: Path, lines: int) -> list[Path]:
    """Write a text of one line of one token and one of ``lines``, and their tokens."""
    source, chosen = load_model(folder / "native", "cpu").pair.source, random.Random(1)
    known = [piece for piece in source.vocabulary.pieces[4:] if all("\u4e00" <= letter <= "\u9fff" for letter in piece)]
    found = []
    for name, text in (
        ("one", [known[-1]]),
        ("many", ["".join(chosen.choices(known, k=TOKENS // 2)) for _ in range(lines)]),
    ):
        found.append(folder / name)
        found[-1].write_text("".join(f"{line}\n" for line in text))
        cut = [" ".join(source.pieces(ids.tolist())) for ids in source.encode(text)]
        (folder / f"{name}.pieces").write_text("".join(f"{line}\n" for line in cut))
        print(f"{name}: {sum(len(line.split()) for line in cut) / len(cut):.1f} tokens a line", file=sys.stderr)
    return found


if __name__ == "__main__":
    main()
