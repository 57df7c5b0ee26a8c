"""docs/how-to/extend: the model and the variant of the Transformer are single files that obey the laws; torch translates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nmt.testing import conformance
from tests.documents import ROOT, files_of

PAGES = [ROOT / "docs" / "how-to" / "extend" / name for name in ("model.md", "transformer-variant.md")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("variant")
    for page in PAGES:
        for name, content in files_of(page.read_text(encoding="utf-8")):
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_text(content, encoding="utf-8")
    return made


def said(folder: Path, code: str) -> str:
    """What a process of its own prints: other tests count what is registered."""
    loading = "from nmt.plugins import load_plugins; load_plugins('mean_gru.py,sharp_transformer.py');"
    done = subprocess.run([sys.executable, "-c", f"{loading} {code}"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name", ["mean_gru", pytest.param("mean_gru_small", marks=pytest.mark.nightly), "sharp_transformer"]
)
def test_the_model_obeys_the_laws(folder: Path, name: str) -> None:
    code = f"from nmt.testing import conformance; conformance.check('{name}'); print('obeys')"
    assert said(folder, code) == "obeys\n"


def test_the_pages_count_the_laws() -> None:
    for name in ("index.md", "model.md"):
        text = (PAGES[0].parent / name).read_text(encoding="utf-8")
        assert f"{len(conformance.LAWS)} laws" in text


def test_the_variant_is_left_to_torch(folder: Path) -> None:
    code = (
        "from sharp_transformer import SharpConfig; from nmt.models.transformer.own_weights import undescribed; "
        "print(undescribed(SharpConfig()))"
    )
    assert said(folder, code) == "its architecture\n"
