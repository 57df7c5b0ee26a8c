"""docs/adding-a-model.md: its variant of the Transformer is one file that obeys the laws and translates by torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("variant")
    write_files("docs/adding-a-model.md", made)
    return made


def said(folder: Path, code: str) -> str:
    """What a process of its own prints: other tests count what is registered."""
    loading = "from nmt.plugins import load_plugins; load_plugins('sharp_transformer.py');"
    done = subprocess.run([sys.executable, "-c", f"{loading} {code}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_variant_obeys_the_laws(folder: Path) -> None:
    code = "from nmt.testing import conformance; conformance.check('sharp_transformer'); print('obeys')"
    assert said(folder, code) == "obeys\n"


def test_the_variant_is_left_to_torch(folder: Path) -> None:
    code = (
        "from sharp_transformer import SharpConfig; from nmt.models.transformer.own_weights import undescribed; "
        "print(undescribed(SharpConfig()))"
    )
    assert said(folder, code) == "its architecture\n"
