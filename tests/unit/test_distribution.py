"""What pip calls the package, and its extras: as the messages and the documents name them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import nmt

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("nmt/**/*.py"), *ROOT.glob("nmt_cli/*.py")])
NAMED = re.compile(r"([\w-]*nmt[\w-]*)\[([a-z,]+)\]")


def extras() -> set[str]:
    """The keys of setup.py's ``extras_require``."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (argument,) = [node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg == "extras_require"]
    assert isinstance(argument.value, ast.Dict)
    return {key.value for key in argument.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def named() -> list[tuple[str, str, str]]:
    """File, distribution and extras wherever one is named with its extras."""
    found = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        found += [(str(path.relative_to(ROOT)), match[1], match[2]) for match in NAMED.finditer(text)]
    return found


def test_extras_are_named_in_messages_and_documents() -> None:
    assert {"nmt/config/composing/hydra_bridge.py", "docs/training.md", "docs/getting-started.md"} <= {
        file for file, _, _ in named()
    }


@pytest.mark.parametrize(("file", "distribution", "extra"), named())
def test_an_extra_is_named_with_the_distribution_that_has_it(file: str, distribution: str, extra: str) -> None:
    assert distribution == nmt.DISTRIBUTION and set(extra.split(",")) <= extras(), file


def test_a_plugin_asks_for_the_distribution() -> None:
    text = (ROOT / "examples" / "plugin" / "setup.py").read_text(encoding="utf-8")
    assert f'install_requires=["{nmt.DISTRIBUTION}"]' in text
