"""docs/reference/http.md and docs/how-to/deploy.md: their requests are sent as they stand to a server with the models that
they name, and answered so."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nmt.config.option import flags_of
from nmt.serving import request_forms
from nmt.serving.config import ServeConfig
from tests.documents import ROOT, fenced_blocks
from tests.serving.servers import Server

REFERENCE = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
PAGES = REFERENCE + (ROOT / "docs/how-to/deploy.md").read_text(encoding="utf-8")


def examples() -> Iterator[tuple[list[str], list[Any]]]:
    """The requests of each block, and the answers that the block after it shows, if it does."""
    blocks = list(fenced_blocks(PAGES))
    for (language, block), (other, after) in zip(blocks, [*blocks[1:], ("", "")]):
        requests = [line for line in block.splitlines() if line.startswith("curl ")]
        if language == "bash" and requests:
            yield requests, list(trees(after)) if other == "json" else []


def trees(text: str) -> Iterator[Any]:
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        tree, end = decoder.raw_decode(rest)
        yield tree
        rest = rest[end:].strip()


def without_figures(tree: Any) -> Any:
    """Numbers with a point depend on how a model was trained, and so do hypotheses after the best: their keys stay."""
    if isinstance(tree, dict):
        plain = {key: without_figures(value) for key, value in tree.items()}
        if "hypotheses" in plain:
            best, *others = plain["hypotheses"]
            plain["hypotheses"] = [best, *map(sorted, others)]
        return plain
    if isinstance(tree, list):
        return [without_figures(value) for value in tree]
    return float if isinstance(tree, float) else tree


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl, which is not installed")
def test_every_request_of_the_documents_is_answered_as_they_say(server: Server, tmp_path: Path) -> None:
    shown = 0
    for requests, answers in examples():
        found = []
        for line in requests:
            command = line.replace("localhost:8000", f"127.0.0.1:{server.port}").replace("curl ", "curl -sS --fail ", 1)
            done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False)
            assert done.returncode == 0, (line, done.stderr)
            found.append(done.stdout)
        if answers:
            assert [without_figures(json.loads(text)) for text in found] == without_figures(answers)
            shown += 1
    assert shown == 4


def test_every_key_of_a_request_is_explained() -> None:
    (table,) = re.findall(r"^\| key \| value \|\n\|[-|]+\|\n(.*?)\n\n", REFERENCE, flags=re.DOTALL | re.MULTILINE)
    explained = {name for row in table.split("\n") for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert explained == set(request_forms._KEYS)


def test_the_flags_that_the_documents_name_exist() -> None:
    known = {flag.name for flag in flags_of(ServeConfig)}
    named = set(re.findall(r"`(--[\w-]+)", PAGES))
    assert named - {"--no-web-page"} <= known
    assert {flag for flag in known if flag.startswith(("--max-", "--read-")) and "tokens" not in flag} - named == {
        "--max-source-length"
    }
