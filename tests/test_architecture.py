"""The tree keeps the rules of ``tests/architecture.py``, and each rule finds the violations of a made-up tree."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nmt_cli.command_line.programs import COMMANDS
from tests.architecture import (
    Tree,
    Violation,
    files_and_functions_stay_readable,
    hydra_and_omegaconf_stay_at_the_border,
    names_say_what_they_hold,
    no_import_goes_in_a_circle,
    one_name_means_one_class,
    one_place_knows_devices,
    packages_import_from_rows_above,
    rooms_import_downwards,
    the_library_does_no_work_at_import,
    the_library_leaves_the_process_alone,
    what_answers_at_once_does_not_import_torch,
)

ROOT = Path(__file__).resolve().parent.parent
MOST_SHARED_NAMES = 10

TORCH_FREE = (
    "nmt.config.composing.composition",
    "nmt.config.composing.hydra_bridge",
    "nmt.plugins",
    "nmt.storage.run_folder",
    "nmt.storage.checkpoints",
    "nmt.storage.torch_file",
    "nmt.devices",
    "nmt.threads",
    "nmt.preprocessing.preprocess",
    "nmt.preprocessing.fairseq_corpus",
    "nmt.data.corpus.shortlist",
    "nmt.scoring",
    "nmt.comparing",
    "nmt.models.loading",
    "nmt.search.beam",
    "nmt.search.greedy",
    "nmt.engines.native",
    "nmt.translation",
    "nmt.watching.server",
    "nmt_cli.generate_job",
    "nmt_cli.command_line.argv",
    "nmt_cli.launch",
    "nmt_cli.umbrella",
    "nmt_cli.shell.completion",
    "nmt_cli.shell.manual",
    *(f"nmt_cli.{command}" for command in COMMANDS),
)

Rule = Callable[[Tree], Iterator[Violation]]

# Allowed violations: subject -> reason. An exception that no violation needs is an error.
EXCEPTIONS: dict[Rule, dict[str, str]] = {
    packages_import_from_rows_above: {
        "nmt.registry imports nmt.errors": "raises",
        "nmt.storage imports nmt.errors": "raises",
    },
    one_name_means_one_class: {
        "Decoder": "the field's word; each recurrent family and the Transformer has one",
        "Encoder": "the field's word, as Decoder",
    },
    one_place_knows_devices: {
        "nmt/config/checks.py": "names of devices are checked before torch is imported",
        "nmt/engines/graphs.py": "records CUDA graphs, which torch has under torch.cuda",
    },
    the_library_does_no_work_at_import: {"nmt/__main__.py": "python -m nmt runs it"},
    the_library_leaves_the_process_alone: {
        "nmt/serving/workers.py": "only a worker process does, whose answers report the fate of each line",
    },
}

# A made-up tree for each rule, by path, and the subjects of its violations.
GOOD = '"""Docstring."""\nimport nmt.low.a\nX = {1: lambda: open("file")}\ndef f():\n    print(open(1).run())\n'
MADE_UP_ROWS = {"nmt.low": 0, "nmt.beside": 0, "nmt.layers": 1, "nmt.training": 2, "nmt.config": 2, "nmt_cli": 3}
VIOLATIONS: dict[Rule, tuple[dict[str, str], list[str]]] = {
    packages_import_from_rows_above: (
        {
            "nmt/low/a.py": "def f():\n    import nmt.layers.a\n",
            "nmt/beside/a.py": "if TYPE_CHECKING:\n    from nmt.low import a\n",
            "nmt/beside/b.py": "f = lambda: import_module('nmt.training.a')\n",
            "nmt/lost.py": "",
        },
        ["nmt.beside imports nmt.low", "nmt.beside imports nmt.training", "nmt.lost", "nmt.low imports nmt.layers"],
    ),
    rooms_import_downwards: (
        {
            "nmt/layers/a.py": "from nmt.native import products\n",
            "nmt/training/loop/a.py": "def f():\n    from nmt.training.setup import b\n",
            "nmt/training/lost.py": "",
        },
        [
            "nmt.layers.a imports nmt.native",
            "nmt.layers.a imports nmt.native.products",
            "nmt.training.loop.a imports nmt.training.setup",
            "nmt.training.loop.a imports nmt.training.setup.b",
            "nmt.training.lost",
        ],
    ),
    no_import_goes_in_a_circle: (
        {
            "nmt/low/a.py": "from nmt.low import b\n",
            "nmt/low/b.py": "def f():\n    from nmt.low.c import g\n",
            "nmt/low/c.py": "if TYPE_CHECKING:\n    import nmt.low.a\n",
        },
        ["nmt.low.a <-> nmt.low.b <-> nmt.low.c"],
    ),
    files_and_functions_stay_readable: (
        {
            "nmt/low/a.py": "\n" * 401,
            "nmt/low/b.py": "def f():\n" + "    pass\n" * 80,
            "nmt/low/c.py": "from . import b\n",
            **{f"nmt/full/f{number}.py": "" for number in range(26)},
        },
        ["nmt/full", "nmt/low/a.py", "nmt/low/b.py: f", "nmt/low/c.py"],
    ),
    one_name_means_one_class: (
        {"nmt/low/a.py": "class A:\n    class B: ...\n", "nmt_cli/b.py": "class _B: ...\n"},
        ["B"],
    ),
    names_say_what_they_hold: (
        {
            "nmt/low/a.py": "def said(x): ...\nclass A:\n    wanted: int = 1\n    found_files = 2\n",
            "nmt/low/b.py": "def f(given):\n    _asked = given.asked = 1\n    return given.told\n",
            "nmt/low/stored.py": "for one in (): ...\n",
        },
        [
            "nmt/low/a.py: said",
            "nmt/low/a.py: wanted",
            "nmt/low/b.py: _asked",
            "nmt/low/b.py: asked",
            "nmt/low/b.py: given",
            "nmt/low/stored.py",
            "nmt/low/stored.py: one",
        ],
    ),
    hydra_and_omegaconf_stay_at_the_border: (
        {
            "nmt/low/a.py": "from omegaconf import DictConfig\n",
            "nmt/low/b.py": "def f():\n    import hydra\n",
            "nmt_cli/sweeps/sweep.py": "from hydra.core.global_hydra import GlobalHydra\n",
        },
        ["nmt/low/a.py", "nmt/low/b.py", "nmt_cli/sweeps/sweep.py"],
    ),
    one_place_knows_devices: (
        {
            "nmt/low/a.py": "def f(x):\n    torch.cuda.synchronize()\n",
            "nmt/low/b.py": "def f(x):\n    return x.is_cuda\n",
            "nmt/low/c.py": "def f(x):\n    return x.device.type in ('cpu', 'mps')\n",
            "nmt_cli/d.py": "x = torch.accelerator.is_available(), device.type == 'cpu', 'cuda'\n",
        },
        ["nmt/low/a.py", "nmt/low/b.py", "nmt/low/c.py"],
    ),
    the_library_leaves_the_process_alone: (
        {
            "nmt/low/a.py": "def f():\n    return sys.argv[1:]\n",
            "nmt/low/b.py": "from sys import argv\n",
            "nmt/low/c.py": "def f():\n    logging.getLogger().setLevel(1)\n",
            "nmt_cli/a.py": "logging.basicConfig(); sys.argv\n",
        },
        ["nmt/low/a.py", "nmt/low/b.py", "nmt/low/c.py"],
    ),
    the_library_does_no_work_at_import: (
        {
            "nmt/low/a.py": "X = {'a': [open('file').read()]}\n",
            "nmt/low/b.py": "for name in (): ...\n",
            "nmt/low/c.py": "start()\n",
            "nmt/low/d.py": "X = [name for name in os.environ]\n",
            "nmt/low/e.py": "try:\n    import a\nexcept ImportError: ...\n",
            "nmt_cli/a.py": "start()\n",
        },
        [f"nmt/low/{name}.py" for name in "abcde"],
    ),
    what_answers_at_once_does_not_import_torch: (
        {"nmt/low/b.py": "import torch\n", "nmt/low/c.py": "try:\n    import torch.nn\nexcept ImportError: ...\n"},
        ["nmt.low.b", "nmt.low.c", "nmt.low.gone"],
    ),
}


def rows_of_the_document() -> dict[str, int]:
    """Each package in the table of docs/explanation/architecture.md, as a module, with its row."""
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\d+) \| ([^|]*) \|", text, flags=re.MULTILINE)
    return {
        path.removesuffix(".py").strip("/").replace("/", "."): int(row)
        for row, packages in table
        for path in re.findall(r"`([^`]+)`", packages)
    }


@functools.cache
def the_tree() -> Tree:
    return Tree.read(ROOT, rows_of_the_document(), TORCH_FREE)


@pytest.mark.parametrize("rule", VIOLATIONS, ids=lambda rule: rule.__name__)
def test_a_rule_holds(rule: Rule) -> None:
    exceptions = EXCEPTIONS.get(rule, {})
    violations = list(rule(the_tree()))
    news = [f"{one.subject}: {one.complaint}" for one in violations if one.subject not in exceptions]
    stale = [
        f"{name}: remove this exception: no violation needs it"
        for name in exceptions.keys() - {one.subject for one in violations}
    ]
    assert not news + stale, "\n".join(["", *news, *stale])


@pytest.mark.parametrize("rule", VIOLATIONS, ids=lambda rule: rule.__name__)
def test_a_rule_finds_its_violations(rule: Rule, tmp_path: Path) -> None:
    files, subjects = VIOLATIONS[rule]
    for path, text in ({"nmt/__init__.py": "", "nmt/low/a.py": "", "nmt/layers/good.py": GOOD} | files).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    tree = Tree.read(tmp_path, MADE_UP_ROWS, ["nmt.low.a", "nmt.low.b", "nmt.low.c", "nmt.layers.good", "nmt.low.gone"])
    assert sorted({violation.subject for violation in rule(tree)}) == subjects


def test_few_classes_share_a_name() -> None:
    names = [name for name, why in EXCEPTIONS[one_name_means_one_class].items() if why != "not yet renamed"]
    assert len(names) <= MOST_SHARED_NAMES
