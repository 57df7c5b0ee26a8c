"""The domain of the fine-tuning example: which captions belong to it, and that no pair is lost."""

from __future__ import annotations

import gzip
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "examples/finetuning/split.py"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("finetuning_split", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


split = load()


@pytest.mark.parametrize(
    ("caption", "is_water"),
    [
        ("A dog by the sea", True),
        ("Surfers wait for Waves.", True),
        ("A man seated on a season ticket", False),
        ("A boatman waves", True),
        ("A lakeside road", False),
    ],
)
def test_whole_words_decide(caption: str, is_water: bool) -> None:
    water, land = split.divided([(caption, "x")])
    assert (len(water), len(land)) == (is_water, not is_water)


def write_multi30k(folder: Path, *, short: bool = False) -> None:
    folder.mkdir()
    for name in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        english = [f"{name} by the river", f"{name} on a road", f"{name} in a field"]
        for language, lines in (("en", english), ("de", [line.upper() for line in english][: 2 if short else 3])):
            content = "".join(f"{line}\n" for line in lines).encode()
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(content))


def test_every_pair_is_in_one_domain_and_stays_a_pair(tmp_path: Path) -> None:
    write_multi30k(tmp_path / "multi30k")
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "multi30k", tmp_path / "text"], check=True, capture_output=True, text=True
    )
    assert "water test: 2 pairs\nland test: 4 pairs\n" in done.stdout
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in (tmp_path / "text").iterdir()}
    assert lines["water.test.en"] == ["test_2016_flickr by the river", "test_2017_flickr by the river"]
    assert {name: len(found) for name, found in lines.items() if name.endswith("en")} == {
        "water.train.en": 1,
        "land.train.en": 2,
        "water.valid.en": 1,
        "land.valid.en": 2,
        "water.test.en": 2,
        "land.test.en": 4,
    }
    for name, found in lines.items():
        if name.endswith("en"):
            assert lines[f"{name[:-2]}de"] == [line.upper() for line in found]


@pytest.mark.parametrize(
    ("fault", "status", "message"),
    [
        ("short", 65, "train has 3 lines of en but 2 of de"),
        ("missing", 66, "cannot read multi30k/val.de.gz: No such file or directory"),
        ("torn", 65, "unexpected end of compressed file multi30k/val.de.gz"),
        ("occupied", 73, "cannot create text: File exists"),
    ],
)
def test_wrong_files_are_one_sentence(
    fault: str, status: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_multi30k(tmp_path / "multi30k", short=fault == "short")
    german = tmp_path / "multi30k/val.de.gz"
    if fault == "missing":
        german.unlink()
    elif fault == "torn":
        german.write_bytes(german.read_bytes()[:-9])
    elif fault == "occupied":
        (tmp_path / "text").write_text("", encoding="utf-8")
    command = [sys.executable, SCRIPT, "multi30k", "text"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (status, 1)
    assert message in done.stderr


# What the script needs of the toolkit, in bash: every command writes down its words, and training writes a log.
COMMANDS = """
nmt-preprocess() { :; }
nmt-generate() { :; }
nmt-score() { :; }
fake_python() { :; }
export -f fake_python
nmt-train() {
    echo "$@" >> "$output/trained"
    mkdir -p "$output/domain" "$output/text"
    printf 'a\\nb\\n' > "$output/text/water.train.en"
    echo '{"event": "end", "update": 7, "epoch": 1, "seconds": 1.0}' > "$output/domain/log.jsonl"
}
"""


def test_the_mixture_makes_twice_the_updates_of_the_domain_alone(tmp_path: Path) -> None:
    """Half of its pairs are the domain's: both models see these equally often."""
    (tmp_path / "out").mkdir()
    write_multi30k(tmp_path / "multi30k")
    environment = {**os.environ, "NMT_DATA": str(tmp_path), "PYTHON": "fake_python"}
    command = ["bash", "-c", f'{COMMANDS}. "$0" "$1"', SCRIPT.with_name("run.sh"), tmp_path / "out"]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    trained = (tmp_path / "out/trained").read_text(encoding="utf-8").splitlines()
    assert ["--max-update 14 " in line for line in trained] == [False, False, True]
    assert "--sampling-weights 1,1 " in trained[2]
