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


def read(source: str) -> tuple[dict[str, str], str]:
    """The links of a line, and the symbol asked about."""
    *links, start = source.split()
    return dict(tuple(link.split(">")) for link in links), start


SETS = generate.generate(size=2000, held_out=200, symbols=7, links=3, seed=4)


@pytest.mark.parametrize("name", ["train", "valid", "test"])
def test_answers_are_three_links_on(name: str) -> None:
    for source, target in SETS[name]:
        links, start = read(source)
        assert target == f"{start} {links[links[links[start]]]}"


def test_the_links_of_a_line_are_one_cycle_through_all_symbols() -> None:
    """So each symbol has one link that leads to it: which symbols occur where says nothing about the answer."""
    for source, _ in SETS["train"]:
        links, start = read(source)
        visited = [start]
        while links[visited[-1]] != start:
            visited.append(links[visited[-1]])
        assert sorted(visited) == list("abcdefg")


def test_answers_and_places_are_even() -> None:
    """Given the symbol, the next one, and the place of its link, every other symbol is the answer alike."""
    answers: Counter[str] = Counter()
    places: Counter[int] = Counter()
    for source, target in SETS["train"]:
        links, start = read(source)
        if (start, links[start]) == ("a", "b"):
            answers[target.split()[1]] += 1
        places[list(links).index(start)] += 1
    assert set(answers) == set("cdefg") and set(places) == set(range(7))
    assert max(places.values()) < 1.3 * min(places.values())


def test_held_out_cycles_occur_in_no_other_set() -> None:
    cycles = {name: {frozenset(source.split()[:-1]) for source, _ in pairs} for name, pairs in SETS.items()}
    assert cycles["train"].isdisjoint(cycles["valid"] | cycles["test"])
    assert cycles["valid"].isdisjoint(cycles["test"])
    assert len(cycles["valid"]) == len(cycles["test"]) == 200


def test_all_cycles_are_listed_once() -> None:
    cycles = generate.all_cycles("abcde", generate.random.Random(1))
    links = {frozenset(zip(cycle, (*cycle[1:], cycle[0]))) for cycle in cycles}
    assert len(cycles) == len(links) == 24


def test_the_seed_decides_everything() -> None:
    first, again, other = (generate.generate(50, 5, 5, 2, seed) for seed in (7, 7, 8))
    assert first == again != other


def test_the_command_writes_parallel_files(tmp_path: Path) -> None:
    command = [sys.executable, FILE, tmp_path, "--size", "40", "--held-out", "7", "--links", "2", "--symbols", "6"]
    subprocess.run(command, check=True)
    counts = {file.name: len(file.read_text(encoding="utf-8").split("\n")) - 1 for file in tmp_path.iterdir()}
    expected = {"train": 40, "valid": 7, "test": 7}
    assert counts == {f"{name}.{suffix}": n for name, n in expected.items() for suffix in ("src", "tgt")}


def test_too_many_links_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, FILE, tmp_path, "--symbols", "4", "--links", "4"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "--links from 1 to one less than --symbols" in result.stderr
