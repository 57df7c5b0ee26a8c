"""The table of faults in docs/reliability.md is complete, and the tests that it names exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rows() -> list[list[str]]:
    """The cells of the table's rows."""
    _, _, table = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8").partition("\n## Fault catalogue\n")
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return found[2:]


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_table_has_each_number_once() -> None:
    assert [row[0] for row in rows()] == [str(number) for number in range(1, 99)]
    assert all(len(row) == 4 for row in rows())


def test_each_row_says_the_exit_code() -> None:
    assert [row[0] for row in rows() if not re.search(r"\b(0|1|2|6[569]|7[345]|130|141)\b", row[2])] == ["46", "47"]


def test_faults_of_text_and_corpora_have_their_tests_here() -> None:
    elsewhere = [row[0] for row in rows()[:37] if set(re.findall(r"`(\S+)/test_\w+\.py::", row[3])) != {"tests/faults"}]
    assert not elsewhere


def test_the_tests_of_each_row_exist() -> None:
    missing = []
    for number, *_, cell in rows():
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", cell)
        assert named and cell.count("`") == 2 * len(named), number
        missing += [(number, file, name) for file, name in named if name not in functions(ROOT / file)]
    assert not missing
