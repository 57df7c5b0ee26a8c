"""The generator of the look-up task, read back from the text alone."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "examples" / "memory_network" / "generate.py"


def load() -> ModuleType:
    specification = importlib.util.spec_from_file_location("memory_network_generate", FILE)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


generate = load()


def read(source: str) -> tuple[list[str], str, int]:
    """Where the symbols of a line lead, the symbol asked about, and how many links are to be followed."""
    *links, question = source.split()
    return links, question[0], question.count(">")


def visited(source: str) -> list[str]:
    links, symbol, length = read(source)
    symbols = [symbol]
    for _ in range(length):
        symbols.append(links["abcdefg".index(symbols[-1])])
    return symbols


SETS = generate.generate(size=3000, held_out=700, symbols=7, longest=3, seed=4)


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_targets_are_the_question_and_the_end_of_its_path(name: str) -> None:
    for source, target in SETS[name]:
        assert target == f"{source.split()[-1]} {visited(source)[-1]}"


def test_training_asks_for_one_link_to_three_alike() -> None:
    lengths = Counter(read(source)[2] for source, _ in SETS["train"])
    assert set(lengths) == {1, 2, 3} and min(lengths.values()) > 900


@pytest.mark.parametrize("name", ["valid", "test"])
def test_held_out_questions_visit_four_symbols(name: str) -> None:
    assert all(len(visited(source)) == len(set(visited(source))) == 4 for source, _ in SETS[name])


def test_held_out_answers_are_even() -> None:
    """Given the symbol and where it leads, each of the five others is the answer alike: one link tells nothing."""
    answers: Counter[int] = Counter()
    for source, _ in [*SETS["valid"], *SETS["test"]]:
        start, first, _, last = ("abcdefg".index(symbol) for symbol in visited(source))
        others = [symbol for symbol in range(7) if symbol not in (start, first)]
        answers[others.index(last)] += 1
    assert set(answers) == set(range(5))
    assert max(answers.values()) < 1.3 * min(answers.values())


def test_held_out_lists_of_links_occur_in_no_other_set() -> None:
    lists = {name: {tuple(read(source)[0]) for source, _ in pairs} for name, pairs in SETS.items()}
    assert lists["train"].isdisjoint(lists["valid"] | lists["test"])
    assert lists["valid"].isdisjoint(lists["test"])
    assert len(lists["valid"]) == len(lists["test"]) == 700


def test_the_seed_decides_everything() -> None:
    first, again, other = (generate.generate(50, 5, 5, 2, seed) for seed in (7, 7, 8))
    assert first == again != other


def test_the_command_writes_parallel_files(tmp_path: Path) -> None:
    command = [sys.executable, FILE, tmp_path, "--size", "40", "--held-out", "7", "--links", "2", "--symbols", "6"]
    subprocess.run(command, check=True)
    counts = {file.name: len(file.read_text(encoding="utf-8").split("\n")) - 1 for file in tmp_path.iterdir()}
    expected = {"train": 40, "valid": 7, "test": 7}
    assert counts == {f"{name}.{suffix}": n for name, n in expected.items() for suffix in ("src", "tgt")}


@pytest.mark.parametrize(
    "options, message",
    [
        (["--symbols", "4", "--links", "4"], "--links from 1 to one less than --symbols"),
        (["--symbols", "4", "--links", "3"], "--held-out from 1 to 2"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    command = [sys.executable, FILE, tmp_path, *options]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert message in result.stderr


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = subprocess.run([sys.executable, FILE, tmp_path / "file"], capture_output=True, text=True, check=False)
    assert result.returncode == 73 and "cannot create" in result.stderr and result.stderr.count("\n") == 1
