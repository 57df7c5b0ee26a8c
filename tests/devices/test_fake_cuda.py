"""The tests on a fake CUDA GPU, in an environment with torch's CUDA build: ``make .venv-cuda/.installed``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = ROOT / ".venv-cuda"
VARIABLES = {
    "LD_PRELOAD": str(ENVIRONMENT / "libfakecuda.so"),
    "LD_LIBRARY_PATH": str(ENVIRONMENT),
    "PYTHONPATH": str(ROOT),
    "TORCH_DISABLE_NATIVE_JIT": "1",  # or torch compiles kernels for the GPU
}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not (ENVIRONMENT / ".installed").exists(), reason="no environment: make .venv-cuda/.installed")
@pytest.mark.parametrize("file", ["on_stand_in.py", "commands_on_stand_in.py", "on_fake_cuda.py"])
def test_everything_passes_on_a_fake_gpu(file: str) -> None:
    command = [str(ENVIRONMENT / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", ""]
    result = subprocess.run(
        [*command, str(Path(__file__).with_name(file))],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=os.environ | VARIABLES,
    )
    assert result.returncode == 0, result.stdout
    assert "skipped" not in result.stdout
