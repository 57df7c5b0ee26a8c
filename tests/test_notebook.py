"""examples/notebook/pairs_to_server.ipynb: fifteen short cells that run, from a list of pairs to a served model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples/notebook/pairs_to_server.ipynb"
MOST_CELLS, MOST_LINES = 15, 9


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def texts(cell: Any, kind: str) -> str:
    """Return the printed text of a cell, or the text of its last expression."""
    results = [output for output in cell.outputs if output.output_type == kind]
    return "".join(output.text if kind == "stream" else output.data["text/plain"] for output in results)


def test_the_notebook_is_short_and_holds_its_outputs() -> None:
    cells = code_cells(nbformat.read(NOTEBOOK, 4))
    assert 10 <= len(cells) <= MOST_CELLS
    assert max(len(cell.source.splitlines()) for cell in cells) <= MOST_LINES
    assert "many have found the cat yesterday" in texts(cells[-2], "execute_result")
    assert NOTEBOOK.stat().st_size < 30_000


@pytest.mark.nightly  # by day tests/test_python_page.py does from Python what the cells do
def test_each_cell_runs_and_the_server_answers_like_the_stored_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    stored, executed = nbformat.read(NOTEBOOK, 4), nbformat.read(NOTEBOOK, 4)
    for cell in code_cells(executed):
        cell.outputs = []
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(executed, timeout=300, kernel_name="python3", resources=place).execute()
    assert texts(code_cells(executed)[-1], "execute_result") == "0"  # the server has ended
    for before, after in zip(code_cells(stored), code_cells(executed)):
        assert texts(after, "execute_result") == texts(before, "execute_result")
    shown = "".join(texts(cell, "stream") for cell in code_cells(executed))
    assert "held out 45 of 900 pairs" in shown and "<TrainingResult runs/notebook: 120 updates, 15 epochs" in shown
    assert (tmp_path / "runs/notebook/corpus/manifest.json").is_file()
