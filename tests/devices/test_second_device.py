"""The tests on a second device, in processes of their own: torch knows that device from then on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OF_MODELS = "gradients or autocast or law"
NIGHT = pytest.mark.nightly


@pytest.mark.parametrize(
    ("file", "names", "when"),
    [
        ("on_stand_in.py", OF_MODELS, "not nightly"),
        ("on_stand_in.py", f"not ({OF_MODELS})", "not nightly"),
        pytest.param("on_stand_in.py", OF_MODELS, "nightly", marks=NIGHT),
        pytest.param("commands_on_stand_in.py", "", "", marks=NIGHT),
    ],
    ids=["models", "the rest", "all models", "commands"],
)
@pytest.mark.timeout(900)
def test_everything_passes_on_a_second_device(file: str, names: str, when: str) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(HERE / file),
        "-k",
        names,
        "-m",
        when,
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=HERE.parents[1])
    assert result.returncode == 0, result.stdout
    assert "skipped" not in result.stdout
