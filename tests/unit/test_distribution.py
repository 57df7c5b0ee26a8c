"""What pip calls the package, its extras as messages and documents name them, and what its archives hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import nmt

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
TEXTS = sorted([*DOCUMENTS, *ROOT.glob("nmt/**/*.py"), *ROOT.glob("nmt_cli/**/*.py")])
NAMED = re.compile(r"([\w-]*nmt[\w-]*)\[([a-z,]+)\]")
OF_THE_CLONE = re.compile(r"pip install (?:-e |--editable )?'\.\[([a-z,]+)\]'")
UNPACKED = ("nmt", "nmt_cli", "tests", "docs", "examples", "benchmarks", ".ci", ".github")
CACHES = shutil.ignore_patterns("__pycache__", "*.pyc", "*.so", "*.egg-info")


def extras() -> set[str]:
    return set(metadata.metadata(nmt.DISTRIBUTION).get_all("Provides-Extra") or ())


def named() -> list[tuple[str, str, str]]:
    """File, distribution and extras wherever one is named with its extras."""
    found = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        found += [(str(path.relative_to(ROOT)), match[1], match[2]) for match in NAMED.finditer(text)]
    return found


def test_extras_are_named_in_messages() -> None:
    assert "nmt/config/composing/hydra_bridge.py" in {file for file, _, _ in named()}


@pytest.mark.parametrize(("file", "distribution", "extra"), named())
def test_an_extra_is_named_with_the_distribution_that_has_it(file: str, distribution: str, extra: str) -> None:
    assert distribution == nmt.DISTRIBUTION and set(extra.split(",")) <= extras(), file


def test_documents_install_from_the_clone_with_extras_that_exist() -> None:
    """Nothing is published yet, so that an installation by name would fail or bring another program."""
    asked: set[str] = set()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert not re.search(rf"pip install \S*{nmt.DISTRIBUTION}", text), path
        asked |= {extra for match in OF_THE_CLONE.finditer(text) for extra in match[1].split(",")}
    assert {"serve"} <= asked <= extras()


def test_the_table_of_extras_is_complete() -> None:
    page = (ROOT / "docs/installation.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)) == extras()


def test_the_citation_and_the_changelog_have_the_version() -> None:
    assert f"\nversion: {nmt.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d[\d.]*)", changelog, flags=re.MULTILINE)[0] == nmt.__version__


def test_the_public_workflow_runs_the_project_s_own_check_on_versions_that_are_declared() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["bash .ci/run"]
    matrix = job["strategy"]["matrix"]
    tested = {*matrix["python"], *(entry["python"] for entry in matrix["include"])}
    declared = metadata.metadata(nmt.DISTRIBUTION).get_all("Classifier") or []
    assert {f"Programming Language :: Python :: {version}" for version in tested} <= set(declared)
    assert {*matrix["os"], *(entry["os"] for entry in matrix["include"])} == {"ubuntu-latest", "macos-latest"}


def build(folder: Path, kind: str, output: Path) -> Path:
    """Build an archive of the project in a folder, without network."""
    code = f"from setuptools.build_meta import build_{kind}; build_{kind}({str(output)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    (archive,) = output.iterdir()
    return archive


def files_in(folder: Path, names: tuple[str, ...]) -> set[str]:
    paths = [path for name in names for path in (folder / name).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix() for path in paths}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of a copy of this checkout, unpacked beside the copy."""
    folder = tmp_path_factory.mktemp("distribution")
    (folder / "archive").mkdir()
    (folder / "copy").mkdir()
    for path in ROOT.iterdir():
        if path.name in UNPACKED:
            shutil.copytree(path, folder / "copy" / path.name, ignore=CACHES)
        elif path.is_file():
            shutil.copy(path, folder / "copy")
    with tarfile.open(build(folder / "copy", "sdist", folder / "archive")) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.slow
def test_the_source_distribution_is_complete(unpacked: Path) -> None:
    (whole,) = unpacked.glob("nmt_toolkit-*")
    assert files_in(unpacked / "copy", UNPACKED) - files_in(whole, UNPACKED) == set()
    assert {"setup.py", "pyproject.toml", "Makefile", "constraints.txt", "mkdocs.yml", "LICENSE", "README.md"} <= {
        path.name for path in whole.iterdir()
    }


@pytest.mark.nightly
def test_a_wheel_of_the_source_distribution_serves_every_python_and_has_the_c_part(
    unpacked: Path, tmp_path: Path
) -> None:
    (whole,) = unpacked.glob("nmt_toolkit-*")
    wheel = build(whole, "wheel", tmp_path)
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "nmt/native/_native.so" in names
    assert files_in(unpacked / "copy", ("nmt", "nmt_cli")) - names == set()


def test_a_plugin_asks_for_the_distribution() -> None:
    text = (ROOT / "examples" / "plugin" / "setup.py").read_text(encoding="utf-8")
    assert f'install_requires=["{nmt.DISTRIBUTION}"]' in text
