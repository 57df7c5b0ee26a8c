"""The tests on a second device, in a process of their own: torch knows that device from then on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("on_stand_in.py")


@pytest.mark.parametrize("when", ["not nightly", pytest.param("nightly", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("subject", ["(gradients or autocast)", "not (gradients or autocast)"])
def test_everything_passes_on_a_second_device(subject: str, when: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FILE)]
    result = subprocess.run(
        [*command, "-k", subject, "-m", when], capture_output=True, text=True, check=False, cwd=FILE.parents[2]
    )
    nothing_to_run = when == "nightly" and subject.startswith("not")  # only kinds of model are left for the night
    assert result.returncode == (5 if nothing_to_run else 0), result.stdout
    assert "skipped" not in result.stdout
