"""Run the scripts of pages in Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nmt.pages.charts import render
from tests.html_pages import data_of

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="runs the script of the page in Node.js: install nodejs")


def evaluate(expression: str, *files: str, **values: Any) -> Any:
    """The value of an expression that may name the functions of the files, and the values."""
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    sources = "\n".join(render(file).replace('"use strict";', "") for file in files)
    # the sources are function-local, so that a constant may have the name of one of theirs
    program = f"{sources}\n{{\n{constants}console.log(JSON.stringify({expression}));\n}}"
    assert NODE is not None
    done = subprocess.run([NODE], input=program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def shown(folder: Path) -> Any:
    """What the page of a run says: its state, alerts, cards and skipped updates."""
    (run,) = data_of((folder / "report.html").read_text(encoding="utf-8"))["runs"]
    words = "{state: state(run)[1], alerts: alerts(run), cards: Object.fromEntries(cards(run)), skips: skips(run)}"
    return evaluate(f"({words})", "run_data.js", run=run)
