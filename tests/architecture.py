"""The rules of docs/explanation/architecture.md that hold for the whole tree: rows, circles, sizes, names, Hydra, torch,
and imports.

A rule is a function from a tree to its violations. ``tests/test_architecture.py`` calls each of them.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

LONGEST_FILE, LONGEST_FUNCTION, FULLEST_FOLDER = 400, 80, 25

# Folders of nmt/training, bottom first: each imports only from itself and from those before it.
TRAINING_ROOMS = (
    *("nmt.training.checkpoints", "nmt.training.loop", "nmt.training.setup"),
    *("nmt.training.result", "nmt.training.assemble", "nmt.training.from_python"),
)

HYDRA_BRIDGE = "nmt/config/composing/hydra_bridge.py"
HYDRA_LIVES_IN = (HYDRA_BRIDGE, "nmt/config/composing/assignments.py", "nmt_cli/sweeps/sweep.py")
HYDRAS_INTERNALS = ("hydra.main", "hydra._internal", "hydra.core.global_hydra", "hydra.initialize", "hydra.compose")
OMEGACONF_LIVES_IN = ("nmt/config/", "nmt_cli/")

RIDDLES = set("given asked said found besides told wanted apart together alone taken one another".split())
RIDDLES_OF_FILES = set("sealing finding_text looking halving trials stored explain".split())

ACCELERATORS = {"cuda", "mps", "xpu"}
CONFIGURES_LOGGING = set(
    "basicConfig dictConfig fileConfig captureWarnings setLoggerClass setLevel addHandler removeHandler addFilter".split()
)
# Names that read files, the environment or other processes, which the library must not do at import.
WORKS = set(
    "open read_text read_bytes exists is_file glob rglob iterdir listdir run Popen getenv environ print".split()
)


class Violation(NamedTuple):
    subject: str
    complaint: str


@dataclass(frozen=True)
class Module:
    """A parsed file: ``path`` relative to the root of the tree, and all imports: lazy ones, those for type checking, and
    names of modules in a file that calls ``import_module``."""

    path: str
    name: str
    lines: int
    nodes: Sequence[ast.AST]
    top_level: Sequence[ast.stmt]

    @functools.cached_property
    def imports(self) -> set[str]:
        found: set[str] = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                found.update([str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)])
        if any(isinstance(node, ast.Call) and _last_name(node.func) == "import_module" for node in self.nodes):
            texts = (node.value for node in self.nodes if isinstance(node, ast.Constant))
            found.update(text for text in texts if isinstance(text, str) and text.startswith(("nmt.", "nmt_cli.")))
        return found

    @property
    def in_library(self) -> bool:
        return self.path.startswith("nmt/")

    def inside(self, *packages: str) -> bool:
        return _inside(self.name, packages)


@dataclass(frozen=True)
class Tree:
    root: Path
    modules: dict[str, Module]
    rows: dict[str, int]
    torch_free: Sequence[str]

    @classmethod
    def read(cls, root: Path, rows: dict[str, int], torch_free: Sequence[str]) -> Tree:
        modules = {}
        for file in sorted([*root.glob("nmt/**/*.py"), *root.glob("nmt_cli/**/*.py")]):
            text, path = file.read_text(encoding="utf-8"), file.relative_to(root)
            name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            syntax = ast.parse(text)
            modules[name] = Module(path.as_posix(), name, text.count("\n"), list(ast.walk(syntax)), syntax.body)
        return cls(root, modules, rows, torch_free)

    @functools.cached_property
    def edges(self) -> dict[str, set[str]]:
        """The modules that each one imports. A package is loaded before its members, which may therefore import it."""
        return {
            name: {other for other in module.imports & self.modules.keys() if not f"{name}.".startswith(f"{other}.")}
            for name, module in self.modules.items()
        }

    def package(self, module: str) -> str | None:
        """The entry of the table of rows that a module belongs to."""
        parts = module.split(".")
        return next((name for name in (".".join(parts[:2]), parts[0]) if name in self.rows), None)


def _inside(name: str, packages: Iterable[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def packages_import_from_rows_above(tree: Tree) -> Iterator[Violation]:
    for name, module in tree.modules.items():
        own = tree.package(name)
        if own is None:
            if name not in ("nmt", "nmt.conf"):
                yield Violation(name, "is missing from the table of rows in docs/explanation/architecture.md")
            continue
        for imported in sorted(module.imports):
            other = tree.package(imported)
            if other not in (None, own) and tree.rows[str(other)] >= tree.rows[own]:
                yield Violation(f"{own} imports {other}", f"{name} imports {imported}, which is not in a row above")


def rooms_import_downwards(tree: Tree) -> Iterator[Violation]:
    """Check what the table of rows leaves open: models use no C, and training/ has rooms in an order."""

    def room(name: str) -> int | None:
        return next((number for number, one in enumerate(TRAINING_ROOMS) if _inside(name, [one])), None)

    for name, module in tree.modules.items():
        own = room(name)
        if name.startswith("nmt.training.") and own is None:
            yield Violation(name, "belongs to no room of nmt/training")
        for imported in sorted(module.imports):
            if module.inside("nmt.layers", "nmt.models") and _inside(imported, ["nmt.native", "nmt.engines"]):
                yield Violation(f"{name} imports {imported}", "models know neither engines nor C")
            other = room(imported)
            if own is not None and other is not None and other > own:
                yield Violation(f"{name} imports {imported}", "setup may import from loop, and loop from checkpoints")


def no_import_goes_in_a_circle(tree: Tree) -> Iterator[Violation]:
    reachable = {}
    for start in tree.edges:
        found: set[str] = set()
        ahead = [start]
        while ahead:
            new = tree.edges[ahead.pop()] - found
            found |= new
            ahead.extend(new)
        reachable[start] = found
    for start, found in reachable.items():
        circle = sorted(name for name in found if start in reachable[name])
        if circle[:1] == [start]:
            yield Violation(" <-> ".join(circle), "import each other")


def files_and_functions_stay_readable(tree: Tree) -> Iterator[Violation]:
    folders: dict[str, int] = defaultdict(int)
    for module in tree.modules.values():
        folders[module.path.rpartition("/")[0]] += 1
        if module.lines > LONGEST_FILE:
            yield Violation(module.path, f"has {module.lines} lines; most: {LONGEST_FILE}")
        for node in module.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                if (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION:
                    yield Violation(f"{module.path}: {node.name}", "does not fit on a screen")
            elif isinstance(node, ast.ImportFrom) and node.level:
                yield Violation(module.path, "has a relative import")
    for folder, files in folders.items():
        if files > FULLEST_FOLDER:
            yield Violation(folder, f"has {files} Python files; most: {FULLEST_FOLDER}")


def one_name_means_one_class(tree: Tree) -> Iterator[Violation]:
    """Names that differ in a leading underscore only count as the same."""
    files = defaultdict(set)
    for module in tree.modules.values():
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                files[node.name.lstrip("_")].add(module.path)
    for name, paths in files.items():
        if len(paths) > 1:
            yield Violation(name, f"is a class in {', '.join(sorted(paths))}")


def names_say_what_they_hold(tree: Tree) -> Iterator[Violation]:
    """Refuse riddles where a concrete noun exists: as names of functions, parameters, fields, variables and files."""
    for module in tree.modules.values():
        stem = Path(module.path).stem
        if stem.strip("_") in RIDDLES | RIDDLES_OF_FILES:
            yield Violation(module.path, "is not called after its job")
        for node in module.nodes:
            name = _bound_name(node)
            if name is not None and name.strip("_").lower() in RIDDLES:
                yield Violation(f"{module.path}: {name}", "is a riddle; use a noun")


def _bound_name(node: ast.AST) -> str | None:
    """Return the name that a node gives to something."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return node.id if isinstance(node, ast.Name) else node.attr
    return None


def hydra_and_omegaconf_stay_at_the_border(tree: Tree) -> Iterator[Violation]:
    for module in tree.modules.values():
        roots = {name.split(".")[0] for name in module.imports}
        if "hydra" in roots and module.path not in HYDRA_LIVES_IN:
            yield Violation(module.path, "imports hydra")
        if "omegaconf" in roots and not module.path.startswith(OMEGACONF_LIVES_IN):
            yield Violation(module.path, "imports omegaconf")
        internals = sorted(name for name in module.imports if _inside(name, HYDRAS_INTERNALS))
        if internals and module.path != HYDRA_BRIDGE:
            yield Violation(module.path, f"imports internals of Hydra: {', '.join(internals)}")


def one_place_knows_devices(tree: Tree) -> Iterator[Violation]:
    """Check that only ``nmt/devices`` asks which kind of accelerator there is; whether it is a CPU anybody may ask."""
    for module in tree.modules.values():
        if module.inside("nmt.devices"):
            continue
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and _last_name(node.value) == "torch" and node.attr in ACCELERATORS:
                yield Violation(module.path, f"line {node.lineno} uses torch.{node.attr}; ask nmt/devices")
            elif isinstance(node, ast.Attribute) and node.attr in {f"is_{kind}" for kind in ACCELERATORS}:
                yield Violation(module.path, f"line {node.lineno} asks for {node.attr}; ask nmt/devices")
            elif isinstance(node, ast.Compare) and any(map(_names_accelerator, ast.walk(node))):
                yield Violation(module.path, f"line {node.lineno} compares the kind of a device; ask nmt/devices")


def _names_accelerator(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and str(node.value).partition(":")[0] in ACCELERATORS


def the_library_leaves_the_process_alone(tree: Tree) -> Iterator[Violation]:
    for module in tree.modules.values():
        if not module.in_library:
            continue
        if "sys.argv" in module.imports or any(_is_sys_argv(node) for node in module.nodes):
            yield Violation(module.path, "reads sys.argv")
        for node in module.nodes:
            if isinstance(node, ast.Call) and _last_name(node.func) in CONFIGURES_LOGGING:
                yield Violation(module.path, f"configures logging: {ast.unparse(node)}")


def _is_sys_argv(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "argv" and _last_name(node.value) == "sys"


def the_library_does_no_work_at_import(tree: Tree) -> Iterator[Violation]:
    for module in tree.modules.values():
        for statement in module.top_level if module.in_library else ():
            if not _defines(statement):
                yield Violation(module.path, f"line {statement.lineno} does work at import")
            elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
                names = {_last_name(node) for node in _evaluated(statement.value)}
                for name in sorted(names & WORKS):
                    yield Violation(module.path, f"line {statement.lineno} uses {name} at import")


def _defines(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        condition = ast.unparse(statement.test)
        return condition == "TYPE_CHECKING" or condition.startswith("sys.version_info")
    if isinstance(statement, ast.Expr):
        registers = isinstance(statement.value, ast.Call) and _last_name(statement.value.func) == "import_all"
        return registers or isinstance(statement.value, ast.Constant)
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign)
    return isinstance(statement, (*kinds, ast.AsyncFunctionDef))


def _evaluated(expression: ast.expr) -> Iterator[ast.AST]:
    """The nodes that are evaluated where an expression stands: not the bodies of lambdas."""
    if not isinstance(expression, ast.Lambda):
        yield expression
        for child in ast.iter_child_nodes(expression):
            yield from _evaluated(child) if isinstance(child, ast.expr) else ast.walk(child)


def _last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


# A module is imported without torch in the process; whatever asks for torch is reported and goes without it.
IMPORT_WITHOUT_TORCH = """
import importlib, sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            asked.append(name)
            raise ModuleNotFoundError("No module named 'torch'", name=name)
sys.meta_path.insert(0, NoTorch())
for module in sys.argv[1:]:
    asked = []
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            print(module, error, sep=": ")
    if asked:
        print(module, "imports torch", sep=": ")
"""


def what_answers_at_once_does_not_import_torch(tree: Tree) -> Iterator[Violation]:
    command = [sys.executable, "-c", IMPORT_WITHOUT_TORCH, *tree.torch_free]
    done = subprocess.run(command, cwd=tree.root, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        yield Violation(*line.split(": ", 1))
