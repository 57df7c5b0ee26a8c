"""The house rules that a reader relies on, checked over the syntax trees: layers, cycles, torch, Hydra, sizes."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted([*ROOT.glob("nmt/**/*.py"), *ROOT.glob("nmt_cli/**/*.py")])

# A package imports only from rows above its own, and from itself; siblings in a row do not import each other.
ROWS = (
    ("nmt.errors", "nmt.registry", "nmt.trees", "nmt.storage", "nmt.allocator", "nmt.old_names", "nmt.interruptions"),
    ("nmt.config", "nmt.plugins", "nmt.conf"),
    ("nmt.native", "nmt.progress", "nmt.pages"),
    ("nmt.data", "nmt.layers", "nmt.devices"),
    ("nmt.interface",),
    ("nmt.models", "nmt.criterions", "nmt.optim", "nmt.search", "nmt.scoring", "nmt.reporting"),
    ("nmt.engines", "nmt.distributed", "nmt.comparing"),
    ("nmt.training", "nmt.translation", "nmt.plotting"),
    ("nmt.averaging", "nmt.testing", "nmt.formats", "nmt.serving"),
    ("nmt_cli",),
)
ROW = {package: number for number, row in enumerate(ROWS) for package in row}
WITHIN_ROW_0 = {("nmt.registry", "nmt.errors"), ("nmt.storage", "nmt.errors")}  # both raise

HYDRA_LIVES_IN = ("nmt/config/publish.py", "nmt_cli/")
OMEGACONF_LIVES_IN = ("nmt/config/", "nmt_cli/")
TORCH_FREE = (
    "nmt.config.publish",
    "nmt.plugins",
    "nmt.storage.run_folder",
    "nmt.storage.checkpoints",
    "nmt.storage.torch_file",
    "nmt.devices",
    "nmt.data.preprocess",
    "nmt.data.fairseq_corpus",
    "nmt.data.shortlist",
    "nmt.scoring",
    "nmt.comparing",
    "nmt.models.stored",
    "nmt.search.beam",
    "nmt.search.greedy",
    "nmt.engines.native",
    "nmt.translation",
    "nmt_cli.generate_job",
)
TORCH_FREE_COMMANDS = (
    "nmt_cli.argv",
    "nmt_cli.launch",
    *(f"nmt_cli.{file.stem}" for file in ROOT.glob("nmt/conf/*.yaml")),
)


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def package_of(module: str) -> str | None:
    """The entry of the table that a module belongs to."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in ROW), None)


@functools.cache
def imports_of(file: Path) -> set[str]:
    """Modules imported anywhere in a file, except for type checking alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} uses a relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_a_package_imports_only_from_rows_above_its_own(file: Path) -> None:
    own = package_of(module_of(file))
    if own is None:
        assert module_of(file) == "nmt", f"{module_of(file)} stands in no row of the table"
        return
    for imported in imports_of(file):
        other = package_of(imported)
        if other is not None and other != own and (own, other) not in WITHIN_ROW_0:
            assert ROW[other] < ROW[own], f"{module_of(file)} imports {imported}"


@pytest.mark.parametrize(
    "file", [file for file in FILES if module_of(file).startswith(("nmt.layers", "nmt.models"))], ids=module_of
)
def test_models_know_neither_engines_nor_c(file: Path) -> None:
    assert not [name for name in imports_of(file) if name.startswith(("nmt.native", "nmt.engines"))]


def test_no_import_goes_in_a_circle() -> None:
    modules = {module_of(file): file for file in FILES}
    graph = {module: imports_of(file) & modules.keys() - {module} for module, file in modules.items()}
    for module in graph:  # a member of a package is imported after the package itself: not a circle
        graph[module] -= {other for other in graph[module] if module.startswith(f"{other}.")}
    while leaves := {module for module, imported in graph.items() if not imported}:
        graph = {module: imported - leaves for module, imported in graph.items() if module not in leaves}
    assert graph == {}


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_hydra_and_omegaconf_stay_at_the_border(file: Path) -> None:
    path = file.relative_to(ROOT).as_posix()
    roots = {name.split(".")[0] for name in imports_of(file)}
    assert "hydra" not in roots or path.startswith(HYDRA_LIVES_IN)
    assert "omegaconf" not in roots or path.startswith(OMEGACONF_LIVES_IN)


def test_what_answers_at_once_does_not_import_torch() -> None:
    code = (
        "import importlib, sys\n"
        f"for module in {[*TORCH_FREE, *TORCH_FREE_COMMANDS]}:\n"
        "    importlib.import_module(module)\n"
        "    if 'torch' in sys.modules: sys.exit(f'{module} imports torch')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file", FILES, ids=module_of)
def test_files_and_functions_stay_readable(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 400, "a file this long has two jobs: find them"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 80, f"{node.name} does not fit on a screen"
