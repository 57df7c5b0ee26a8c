"""The tasks of the Neural Turing Machine: every target follows from its source, and vectors from their ids."""

from __future__ import annotations

import importlib.util
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from nmt.data.tokenizers.piece_lists import WordsBuilder, WordsConfig
from nmt.errors import DataError
from nmt.models.binary_symbols import bit_codes

pytestmark = pytest.mark.slow  # runs scripts

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "neural_turing_machine"


def load(name: str) -> ModuleType:
    """A script of the example as a module; its folder is no package."""
    specification = importlib.util.spec_from_file_location(f"turing_{name}", FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


generate, table = load("generate"), load("table")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "generate.py"), str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lines(path: Path) -> list[list[str]]:
    return [line.split(" ") for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("length", [1, 7])
def test_a_copy_is_the_sequence_itself(length: int) -> None:
    source, target = generate.copy(length, 8, random.Random(1))
    assert source == target and len(source) == length
    assert all(len(vector) == 8 and set(vector) <= {"0", "1"} for vector in source)


def test_a_repeat_gives_the_sequence_as_often_as_its_markers_say() -> None:
    source, target = generate.repeat(3, 4, 6, random.Random(1))
    assert source[3:] == ["again"] * 4
    assert target == source[:3] * 4


def test_a_recall_gives_the_item_after_the_one_asked_about() -> None:
    asked = set()
    for seed in range(50):
        source, target = generate.recall(5, 6, random.Random(seed))
        listed, question = source[: source.index("ask")], source[source.index("ask") :]
        items = [listed[start + 1 : start + 4] for start in range(0, len(listed), 4)]
        assert [listed[start] for start in range(0, len(listed), 4)] == ["item"] * 5
        assert question[0] == question[-1] == "ask"
        place = items.index(question[1:-1])
        asked.add(place)
        assert target == items[place + 1]
    assert asked == set(range(4))  # any item but the last


def test_items_of_a_list_differ_even_where_few_exist() -> None:
    """Eight items of three bits exist, so by chance alone a list of seven would hardly ever be without repetition."""
    for seed in range(20):
        source, _ = generate.recall(7, 1, random.Random(seed))
        items = [tuple(source[start + 1 : start + 4]) for start in range(0, 28, 4)]
        assert len(set(items)) == 7


@pytest.mark.parametrize(("task", "markers"), [("copy", []), ("repeat", ["again"]), ("recall", ["item", "ask"])])
def test_the_vocabulary_tells_the_bits_of_every_vector(tmp_path: Path, task: str, markers: list[str]) -> None:
    """As nmt-preprocess reads it: a vector's id leads to its own bits, and markers come after all vectors."""
    assert run(tmp_path, "--task", task, "--bits", "6", "--longest", "3", "--size", "20").returncode == 0
    source = WordsBuilder(WordsConfig()).from_file(tmp_path / "source.pieces").vocabulary
    target = WordsBuilder(WordsConfig()).from_file(tmp_path / "target.pieces").vocabulary
    codes = bit_codes(len(source), 6).int().tolist()
    for vocabulary in (source, target):
        assert "".join(map(str, codes[vocabulary.id("110010")])) == "110010"
        assert "".join(map(str, codes[vocabulary.id("000001")])) == "000001"
    assert source.pieces[4 + 64 :] == tuple(markers)
    assert len(target) == 4 + 64


def test_the_command_writes_every_set_at_its_lengths(tmp_path: Path) -> None:
    options = ("--longest", "5", "--size", "300", "--held-out", "30", "--test-lengths", "8,12")
    assert run(tmp_path, *options).returncode == 0
    assert {len(sequence) for sequence in lines(tmp_path / "train.src")} == {1, 2, 3, 4, 5}
    for name, size in (("train", 300), ("valid", 30), ("test.8", 30), ("test.12", 30)):
        assert len(lines(tmp_path / f"{name}.src")) == len(lines(tmp_path / f"{name}.tgt")) == size
    assert {len(sequence) for sequence in lines(tmp_path / "test.12.tgt")} == {12}


def test_the_length_of_a_repeat_test_is_its_number_of_copies(tmp_path: Path) -> None:
    options = ("--task", "repeat", "--longest", "3", "--size", "50", "--held-out", "10", "--test-lengths", "6")
    assert run(tmp_path, *options).returncode == 0
    for source, target in zip(lines(tmp_path / "test.6.src"), lines(tmp_path / "test.6.tgt")):
        assert source.count("again") == 6 and target == source[:3] * 6


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    texts = []
    for name, seed in (("one", "1"), ("again", "1"), ("other", "2")):
        run(tmp_path / name, "--size", "20", "--seed", seed)
        texts.append((tmp_path / name / "train.src").read_text(encoding="utf-8"))
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "recall", "--shortest", "1"], "--shortest must be at least 2"),
        (["--longest", "0"], "--longest at least --shortest"),
        (["--test-lengths", "10,0"], "--test-lengths must be at least 1"),
        (["--test-lengths", "10,x"], "argument --test-lengths: invalid numbers value: '10,x'"),
        (["--bits", "17"], "--bits must be from 1 to 16"),
        (["--task", "recall", "--bits", "1", "--longest", "9"], "only 8 different items"),
    ],
)
def test_impossible_options_are_refused(tmp_path: Path, options: list[str], message: str) -> None:
    result = run(tmp_path, *options)
    assert result.returncode == 2
    assert message in result.stderr


@pytest.mark.parametrize(
    ("hypothesis", "reference", "errors"),
    [
        ("1100 0010", "1100 0010", 0),
        ("1101 0010", "1100 0011", 2),
        ("1100", "1100 0010", 4),  # a missing vector
        ("1100 0010 0000", "1100 0010", 4),  # one too many
        ("", "1111 0000", 8),
    ],
)
def test_bit_errors_are_wrong_bits_and_all_bits_of_missing_vectors(
    hypothesis: str, reference: str, errors: int
) -> None:
    assert table.bit_errors(hypothesis, reference) == errors


def test_the_table_has_means_and_shares_by_length(tmp_path: Path) -> None:
    texts = {
        "text/test.1.tgt": "11\n00\n",
        "text/test.2.tgt": "11 00\n01 01\n",
        "ntm/test.1.hypotheses": "11\n00\n",
        "ntm/test.2.hypotheses": "11 00\n01 11\n",
        "lstm/test.1.hypotheses": "10\n01\n",
        "lstm/test.2.hypotheses": "11\n\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, str(FOLDER / "table.py"), str(tmp_path), "--systems", "ntm,lstm", "--lengths", "1,2"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed == (tmp_path / "table.md").read_text(encoding="utf-8")
    assert printed.splitlines()[2:] == [
        "| 1 | 0.00 | 100.0 | 1.00 | 0.0 |",
        "| 2 | 0.50 | 50.0 | 3.00 | 0.0 |",
    ]
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_hypotheses_of_another_number_are_refused() -> None:
    with pytest.raises(DataError, match="length 5: 1 hypothesis for 2 references"):
        table.result(5, ["11"], ["11", "00"])
    with pytest.raises(DataError, match="length 5: the test set is empty"):
        table.result(5, [], [])


def test_what_cannot_be_read_or_written_is_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, str(FOLDER / "table.py"), str(tmp_path), "--systems", "ntm", "--lengths", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 66 and "test.1.hypotheses: No such file" in done.stderr and done.stderr.count("\n") == 1
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = run(tmp_path / "file", "--size", "1")
    assert result.returncode == 73 and "cannot create" in result.stderr and result.stderr.count("\n") == 1
