"""What the variables of the examples' scripts change: the scripts run with commands that only note how they were called."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.documents import COMMANDS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MULTI30K = [
    f"{folder}/{split}{kind}.{language}.gz"
    for folder, kind in (("multi30k", ""), ("multi30k_tok", ".lc.norm.tok"))
    for split in ("train", "val", "test_2016_flickr", "test_2017_flickr")
    for language in ("en", "de", "fr")
]
TREES = [
    f"runs/parsing/trees/{split}.{ending}"
    for split in ("train", "dev", "test")
    for ending in ("src", "tgt", "align", "trees")
] + ["runs/parsing/parsed/train.trees", "runs/parsing/plain/empty", "runs/finetuning/text/water.train.en"]
# A command that notes its words, and makes the files and folders that it is told to write, all but without content.
STUB = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
while [ $# -gt 0 ]; do
    case $1 in
    --save-dir | --destdir) mkdir -p "$2" && echo '{"event": "end", "update": 5, "seconds": 1}' > "$2/log.jsonl" ;;
    --output) mkdir -p "$(dirname "$2")" && touch "$2" ;;
    esac
    shift
done
"""
COMMON = {"NMT_DATA", "OMP_NUM_THREADS", "PYTHON"}  # of all scripts
ELSEWHERE = {"wmt14/run.sh": "test_wmt14_run.py", "wmt14/throughput.sh": "test_wmt14_throughput.py"}


@dataclass(frozen=True)
class Case:
    script: str
    variables: dict[str, str]
    given: tuple[str, ...]  # what stands in the calls
    not_given: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


CASES = [
    Case("addition/run.sh", {"EPOCHS": "3"}, ("--max-epoch 3 ",), arguments=("addition.txt",)),
    Case("characters/run.sh", {"EPOCHS": "3"}, ("--max-epoch 3 ",)),
    Case("figures/run.sh", {"SETTING": "a small model"}, ("--setting a small model",), arguments=("runs/x",)),
    Case("finetuning/run.sh", {"EPOCHS": "3"}, ("--max-epoch 3 ",)),
    Case("finetuning/adapters.sh", {"EPOCHS": "6"}, ("--max-epoch 6\n", "--max-epoch 3 ", "--lora-rank 64 ")),
    Case(
        "multi30k/run_bpe_dropout.sh",
        {"SEEDS": "2 5", "DIGITS": "05", "UPDATES": "7"},
        ("--bpe-dropout 0.05 ", "--max-update 7 ", "--seed 2\n", "--seed 5\n"),
        ("--seed 1\n", "--bpe-dropout 0.0 "),
    ),
    Case("multi30k/run_family.sh", {"MODELS": "lstm gnmt"}, ("/lstm ", "/gnmt "), ("/bytenet ", "/transformer ")),
    Case("multi30k/run_fast.sh", {"SEEDS": "2"}, ("--seed 2\n",), ("--seed 1\n", "--seed 3\n")),
    Case(
        "multi30k/run_record.sh",
        {"SEEDS": "2", "EPOCHS": "3"},
        ("--seed 2\n", "--max-epoch 3 ", "{epochs} epochs"),
        ("--seed 1\n",),
    ),
    Case("multi30k/run_tokenized.sh", {"UPDATES": "7"}, ("--max-update 7 ",)),
    Case(
        "monolingual/run.sh",
        {"METHODS": "pairs noised", "SEEDS": "2", "UPDATES": "7"},
        ("--max-update 7 ", "--seed 2 ", "method=noised ", "train.max_update=7 ", "forward.seed=2"),
        ("--seed 1 ", "method=sampled ", "forward.seed=1"),
    ),
    Case("multilingual/run.sh", {"UPDATES": "7"}, ("--max-update 7 ", "--max-update 14 ")),
    Case(
        "multilingual/run_many.sh",
        {"UPDATES": "7", "SIDES": "both", "DIRECTIONS": "fr-en"},
        (
            "/source/fr-en recipe=multi30k_many ",
            "--max-update 7 ",
            "/many-both --max-update 28 ",
            "zero-shot, --tag-side both",
        ),
        ("/only-en-de ", "/many-target "),
    ),
    Case(
        "parsing/run.sh",
        {"SYSTEMS": "lstm", "EPOCHS": "3"},
        ("recipe=parsing_small ", "--max-epoch 3 ", ", {epochs} epochs"),
        ("recipe=parsing_vinyals ",),
    ),
    Case(
        "parsing/self_training.sh",
        {"EPOCHS": "3"},
        ("--max-epoch 3 ", ", {epochs} epochs"),
        arguments=("sentences.txt",),
    ),
    Case(
        "r_drop/run.sh",
        {"SEEDS": "2", "EPOCHS": "3"},
        ("--seed 2\n", "--max-epoch 3 ", ", {epochs} epochs"),
        ("--seed 1\n",),
    ),
    Case("table3/run.sh", {"SEEDS": "4,5", "LAUNCHER": "joblib"}, ("seed=choice(4,5)", "hydra/launcher=joblib")),
]


def started(case: Case, folder: Path) -> subprocess.CompletedProcess[str]:
    """The script, with commands that note how they are called in the file ``calls``."""
    (folder / "bin").mkdir()
    for name in (*COMMANDS, "python"):
        (folder / "bin" / name).write_text(STUB, encoding="utf-8")
        (folder / "bin" / name).chmod(0o755)
    for name in (*(f"data/{name}" for name in MULTI30K), *TREES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        line = b"a line\n"
        (folder / name).write_bytes(gzip.compress(line) if name.endswith(".gz") else line)
    (folder / "sentences.txt").write_text("a sentence\n", encoding="utf-8")
    environment = {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "NMT_DATA": str(folder / "data"),
    }
    command = ["bash", str(EXAMPLES / case.script), *case.arguments]
    return subprocess.run(
        command, cwd=folder, env=environment | case.variables, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.script)
def test_a_variable_reaches_the_commands(case: Case, tmp_path: Path) -> None:
    done = started(case, tmp_path)
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "calls").read_text(encoding="utf-8")
    assert [words for words in case.given if words not in called] == []
    assert [words for words in case.not_given if words in called] == []


REFUSED = [
    Case(
        "multi30k/run_family.sh",
        {"MODELS": "lstm"},
        ("MODELS='lstm' has nothing to compare; name at least two models",),
    ),
    Case("parsing/run.sh", {"SYSTEMS": "gru"}, ("SYSTEMS names 'gru', which is not a parser",)),
    Case("parsing/self_training.sh", {}, ("there is no file none; name a file",), arguments=("none",)),
    Case("parsing/self_training.sh", {}, ("blank has no sentence",), arguments=("blank",)),
    Case("parsing/self_training.sh", {}, ("packed.gz is compressed; unpack it",), arguments=("packed.gz",)),
    Case(
        "parsing/self_training.sh",
        {},
        ("runs/parsing/parsed was made from other sentences than other.txt; move it",),
        arguments=("other.txt",),
    ),
    Case(
        "finetuning/run.sh", {}, ("runs/finetuning/general was trained further after runs/finetuning/domain was made",)
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.script} {case.given[0]}")
def test_what_a_script_cannot_do_is_one_sentence(case: Case, tmp_path: Path) -> None:
    for name, text in (
        ("blank", "\n \n"),
        ("packed.gz", "x\n"),
        ("other.txt", "another sentence\n"),
        ("runs/parsing/parsed/corpus/manifest.json", "{}"),
        ("runs/parsing/parsed/words", "a sentence\n"),
        ("runs/finetuning/domain/log.jsonl", "{}\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = started(case, tmp_path)
    assert done.returncode in (1, 2) and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{Path(case.script).name}: {case.given[0]}")


def test_every_variable_of_a_script_is_tried() -> None:
    tried = {case.script: set(case.variables) for case in CASES}
    for path in EXAMPLES.glob("*/*.sh"):
        script = str(path.relative_to(EXAMPLES))
        named = set(re.findall(r"\$\{([A-Z_]+):[-?+]", path.read_text(encoding="utf-8"))) - COMMON
        if script in ELSEWHERE:
            tests = (Path(__file__).parent / ELSEWHERE[script]).read_text(encoding="utf-8")
            assert [name for name in named if name not in tests] == []
        else:
            assert named == tried.get(script, set()), script
