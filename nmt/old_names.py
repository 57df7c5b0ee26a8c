"""Modules that documents told plug-ins and notebooks to import, under the names that they had then."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "nmt.config.averaging": "nmt.config.commands",
    "nmt.config.generation": "nmt.config.commands",
    "nmt.criterions.label_smoothed_cross_entropy": "nmt.criterions.config",
    "nmt.models.symbol_bits": "nmt.models.config",
    "nmt.models.transformer.transformer_config": "nmt.models.transformer.config",
    "nmt.models.transformer_config": "nmt.models.transformer.config",
    "nmt.modules": "nmt.layers",
    "nmt.modules.attention": "nmt.models.transformer.attention",
    "nmt.modules.padding": "nmt.layers.padding",
    "nmt.modules.recurrent": "nmt.models.recurrent.layers",
    "nmt.modules.stack": "nmt.layers.stack",
    "nmt.optim.adam": "nmt.optim.config",
    "nmt.optim.by_group": "nmt.optim.update_rules",
    "nmt.optim.checks": "nmt.optim.config",
    "nmt.scoring.lines": "nmt.scoring",
    "nmt.training.html_report": "nmt.reporting.html_report",
}


class _OldNames(MetaPathFinder, Loader):
    """Finds a module under its old name; the module is the same one as under the new name."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(MOVED[module.__name__])


def install() -> None:
    sys.meta_path.insert(0, _OldNames())  # before what would load the file of the new name once more
