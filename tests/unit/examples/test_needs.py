"""Scripts that read Multi30k say which file is missing before they do anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPTS = sorted(path for path in EXAMPLES.glob("*/*.sh") if "needs.sh" in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_missing_text_is_said_before_anything_is_done(script: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "NMT_DATA": str(tmp_path / "nowhere"), "PATH": "/usr/bin:/bin", "PYTHON": "true"}
    done = subprocess.run(
        ["bash", str(script), "model", "output"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"{script.name}: {tmp_path}/nowhere/multi30k") and "is missing; " in done.stderr
    assert not [*tmp_path.iterdir()]


def test_scripts_that_read_the_text_ask_for_it() -> None:
    reading = {path for path in EXAMPLES.glob("*/*.sh") if "/multi30k" in path.read_text(encoding="utf-8")}
    assert len(SCRIPTS) > 10 and reading <= {*SCRIPTS}
