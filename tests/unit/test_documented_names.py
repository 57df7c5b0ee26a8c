"""Imports that the documents and examples show: what plug-ins and notebooks rely on."""

from __future__ import annotations

import ast
import importlib.util
import re
import textwrap
from pathlib import Path

import pytest

import nmt

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "python.md"
DOCUMENTS = sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))
BLOCK = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| `(nmt[a-z_.]*)` \| (.*) \|$", re.MULTILINE)


def imported(source: str) -> set[tuple[str, str]]:
    """Return the modules and names of this project that Python text imports."""
    return {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.module.split(".")[0] == "nmt"
        for alias in node.names
    }


def exists(module: str, name: str) -> bool:
    """Whether ``from module import name`` works; the name may be a module itself."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


def listed() -> set[tuple[str, str]]:
    """Return the modules and names in the table of docs/how-to/python.md."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## Import paths\n")
    return {(module, name) for module, names in ROW.findall(section) for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize(("module", "name"), sorted(listed()))
def test_a_listed_name_can_be_imported(module: str, name: str) -> None:
    assert exists(module, name)


def test_the_list_has_exactly_the_names_of_nmt_and_the_imports_of_the_documents() -> None:
    blocks = [block for document in DOCUMENTS for block in BLOCK.findall(document.read_text(encoding="utf-8"))]
    public = {("nmt", name) for name in nmt.__all__}
    assert listed() == public | {pair for block in blocks for pair in imported(textwrap.dedent(block))}


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_the_imports_of_an_example_exist(file: Path) -> None:
    for module, name in imported(file.read_text(encoding="utf-8")):
        assert exists(module, name), f"{module} has no {name}"
