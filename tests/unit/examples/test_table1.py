"""Table 1 as results: orders fitted to a table of times, and orders that are counted."""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples/table1"
COLUMNS = ("layer", "length", "forward_and_backward_seconds")


@pytest.fixture(scope="module")
def record() -> Iterator[ModuleType]:
    """The script, which finds others in the folders beside it."""
    before = [*sys.path]
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("record")
    finally:
        sys.path[:] = before
        for name in ("record", "complexity", "live_bytes", "results"):
            sys.modules.pop(name, None)


def write_times(path: Path, record: ModuleType, powers: dict[str, float]) -> Path:
    """Times that grow as a power of the length; those of short sequences do not."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for kind in record.TIMED:
            power = powers.get(kind.name, 1.0)
            writer.writerows([kind.name, n, 3.0 if n < 1024 else 1e-6 * n**power] for n in (512, 1024, 2048, 4096))
    return path


def test_orders_are_kept_beside_the_papers(record: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "COUNTED", (8, 16))
    times = write_times(tmp_path / "times.csv", record, {"self-attention": 1.9})
    record.main([str(times), str(tmp_path / "results.json")])
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    kept = {(one["row"], one["metric"].partition(",")[0]): one for one in found}
    assert len(kept) == len(record.TIMED) + 2 * len(record.KINDS)

    timed = kept["self-attention", "time of a layer"]
    assert (timed["ours"], timed["published"], timed["comparable"]) == (1.9, 2.0, True)
    assert "cores of" in timed["hardware"]
    chain = kept["recurrent", "sequential operations"]
    assert chain["ours"] == pytest.approx(1, abs=0.1) and chain["published"] == 1.0 and "hardware" not in chain
    assert kept["self-attention, products written out", "sequential operations"]["ours"] == 0.0
    for metric in ("sequential operations", "longest path"):
        fused, dilated = (kept[name, metric] for name in ("self-attention", "convolutional, dilated"))
        assert "comparable" not in fused and "from 256 on the kernel does in one operation" in fused["setting"]
        assert dilated.get("published") == (None if metric == "longest path" else 0.0), "log_k n is no power"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (None, 66, "is missing: run benchmarks/complexity.py first"),
        ("a,b\n1,2\n", 65, "is not a file of benchmarks/complexity.py"),
        (",".join(COLUMNS) + "\nself-attention,many,1.0\n", 65, "is not a file of benchmarks/complexity.py"),
        (",".join(COLUMNS) + "\nself-attention\n", 65, "is not a file of benchmarks/complexity.py"),
        (",".join(COLUMNS) + "\nself-attention,1024,1.0\n", 65, "has no times of self-attention at two lengths"),
    ],
)
def test_a_table_of_something_else_is_one_sentence(
    record: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    status: int,
    said: str,
) -> None:
    if text is not None:
        (tmp_path / "times.csv").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        record.main([str(tmp_path / "times.csv"), str(tmp_path / "results.json")])
    error = capsys.readouterr().err
    assert stopped.value.code == status and said in error and error.count("\n") == 1
    assert not (tmp_path / "results.json").exists()


@pytest.mark.nightly
def test_nothing_but_the_picture_needs_matplotlib(tmp_path: Path) -> None:
    """The benchmark in its smallest size, in an interpreter that finds none."""
    small = "sys.modules['matplotlib'] = None; complexity.LENGTHS = (8, 16); complexity.COUNTED = (8, 16)"
    small += "; complexity.FITTED_FROM = 8; complexity.main()"
    command = [sys.executable, "-c", f"import sys; import complexity; {small}", "--repeats", "1", "--output", "out"]
    environment = {"PYTHONPATH": f"{ROOT / 'benchmarks'}:{ROOT}", "OMP_NUM_THREADS": "1", "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "pip install '.[plots]'" in done.stderr, done.stderr
    assert done.stdout.startswith("| layer (d = 64) |") and "| recurrent | n |" in done.stdout
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["complexity.csv"]
