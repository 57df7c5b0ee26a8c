"""The script of the page in a browser: it draws charts, tables and translations."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nmt.reporting import html_report
from nmt.reporting.curves import plot_curves
from tests.html_pages import Page
from tests.unit.pages.test_run_data import START, train, valid
from tests.unit.reporting.test_runs_page import sweep

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chromium, headless")]
FLAGS = "--headless --no-sandbox --disable-gpu --disable-sync --disable-background-networking --no-first-run --dump-dom"


def drawn(path: Path) -> Page:
    """The page after its script has run."""
    command = [str(BROWSER), *FLAGS.split(), f"--user-data-dir={path.parent / 'profile'}", path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    return Page(done.stdout)


def test_the_page_of_a_run_is_drawn(tmp_path: Path) -> None:
    def samples(update: int, text: str) -> dict[str, Any]:
        sample = {"source": "<b>", "reference": "r", "hypothesis": text}
        return {"event": "samples", "update": update, "samples": [sample]}

    skipped = [{"event": "skipped", "update": 11, "epoch": 1, "number": n, "loss": f"{n}.5"} for n in range(1, 26)]
    curves = [train(10, 3.0, lr=0.1), samples(10, "a b"), valid(10, 2.5, bleu=20.0), train(20, 2.0, lr=0.2)]
    end = {"event": "end", "update": 20, "ending": "20 updates", "tokens": 1000, "message": "x"}
    (tmp_path / "log.jsonl").write_text(
        "".join(f"{json.dumps(event)}\n" for event in [START, *curves, *skipped, samples(20, "a c"), end])
    )
    page = drawn(html_report.write(tmp_path))
    labels = [attributes["aria-label"] for tag, attributes in page.elements if tag == "svg"]
    assert labels == [
        "Loss: training 2, validation 2.5",
        "Validation bleu: bleu 20",
        "Learning rate: training 0.2",
    ]
    assert page.text("figcaption") == ["Losslog", "Validation bleulog", "Learning ratelog"]
    assert "finished: 20 updates" in page.texts and page.texts.count("<b>") == 1
    assert (page.text("ins"), page.text("del")) == (["New", "c"], ["removed", "b"])
    assert [text for text in page.text("td") if text.endswith(".50")] == [f"{n}.50" for n in range(25, 9, -1)]
    assert "The last 20 of 25 are shown." in page.texts
    assert set(page.text("title")) == {"(!) " + tmp_path.name, "update 11 was skipped 25 times"}


def test_the_page_of_a_sweep_is_drawn(tmp_path: Path) -> None:
    folder = sweep(tmp_path / "sweep", ["optimizer.lr=0.1"], ["optimizer.lr=0.2"], ["optimizer.lr=0.3"])
    plot_curves([folder], tmp_path / "x.html")
    page = drawn(tmp_path / "x.html")
    lines = [
        attributes
        for tag, attributes in page.elements
        if tag == "polyline" and "across" in str(attributes.get("class"))
    ]
    assert len(lines) == 3 and "Options and scores of runs" in str(page.elements)
    assert page.text("td")[:3] == ["lr=0.1", "not finished", "0.1"]
    assert [text for text in page.text("th") if text.startswith("last")] == ["last training loss"]
