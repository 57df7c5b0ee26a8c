"""The tables of faults in docs/reference/faults.md are complete, and the tests that catalog.txt names for them exist."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [str(number) for number in range(1, 103)]


def rows() -> list[list[str]]:
    """The cells of the tables' rows."""
    page = (ROOT / "docs" / "reference" / "faults.md").read_text(encoding="utf-8")
    _, _, tables = page.partition("\n## Fault catalog\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables.splitlines() if line[:1] == "|"]
    return [row for row in cells if row[0].isdecimal()]


def named_tests() -> dict[str, list[tuple[str, str]]]:
    """File and function of each test, by the number of its fault."""
    of_faults = defaultdict(list)
    for line in (ROOT / "tests/faults/catalog.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            match = re.fullmatch(r"(\d+) (tests/[\w/]+\.py)::(test_\w+)", line)
            assert match is not None, line
            of_faults[match[1]].append((match[2], match[3]))
    return of_faults


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_tables_have_each_number_once() -> None:
    assert [row[0] for row in rows()] == NUMBERS
    assert all(len(row) == 4 for row in rows())


def test_each_row_has_the_exit_codes() -> None:
    code = r"(0|1|2|6[569]|7[345]|130|141)"
    assert [row[0] for row in rows() if not re.fullmatch(rf"{code}(, {code})*", row[3])] == ["46", "47"]


def test_faults_of_text_and_corpora_have_their_tests_here() -> None:
    elsewhere = [
        number
        for number in NUMBERS[:37]
        if {Path(file).parent for file, _ in named_tests()[number]} != {Path("tests/faults")}
    ]
    assert not elsewhere


def test_each_fault_has_tests_that_exist() -> None:
    assert list(named_tests()) == NUMBERS
    missing = [
        (number, file, name)
        for number, named in named_tests().items()
        for file, name in named
        if name not in functions(ROOT / file)
    ]
    assert not missing
