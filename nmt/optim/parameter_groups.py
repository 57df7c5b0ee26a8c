"""Which parameters are trained, and in which groups optimizers receive them.

Names are those of the model (``encoder.layers.0.norm.weight``); what the criterion itself learns begins with
``criterion.``. A parameter that several modules share has several names, and a pattern that matches one of them
matches the parameter.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn import Parameter

from nmt.config.roles import OptimizerConfig
from nmt.config.sections import Decayed, ParametersConfig
from nmt.errors import UsageError
from nmt.optim import ParameterGroups

logger = logging.getLogger("nmt.training")

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@dataclass(frozen=True, eq=False)  # two are the same only if they are one
class _Named:
    parameter: Parameter
    names: list[str]  # in full, the owner's first
    spared: list[bool]  # of weight decay, in the view of each module that has it

    def matches(self, pattern: str) -> bool:
        return any(fnmatchcase(shown(name), pattern) for name in self.names)


def freeze(step: nn.Module, patterns: Sequence[str]) -> None:
    """Take the matching parameters of ``step`` out of the training for good."""
    trained = _trained(step)
    _check_patterns("parameters.freeze", "--freeze", patterns, trained)
    frozen = [named for named in trained if any(named.matches(pattern) for pattern in patterns)]
    if not frozen:
        return
    if not any(named.names[0].startswith("model.") for named in trained if named not in frozen):
        raise UsageError(
            f"parameters.freeze={list(patterns)} leaves nothing of the model to train; give --freeze fewer patterns"
        )
    for named in frozen:
        named.parameter.requires_grad_(False)
    count, total = (sum(named.parameter.numel() for named in several) for several in (frozen, trained))
    logger.info("%s of %s parameters are frozen", f"{count:,}", f"{total:,}")


def parameter_groups(step: nn.Module, options: ParametersConfig, optimizer: OptimizerConfig) -> ParameterGroups:
    """The trained parameters of ``step``, those of equal rate and weight decay together.

    ``optimizer`` is the optimizer's configuration. The first group has the unscaled rate if any has, so that its rate
    is the one to report.
    """
    trained, factors = _trained(step), options.factors()
    _check_patterns("parameters.lr_scales", "--lr-scales", [pattern for pattern, _ in factors], trained)
    splits = options.decay is Decayed.matrices and bool(optimizer.weight_decay)
    groups: dict[tuple[float, bool], dict[str, Any]] = {}
    for named in trained:
        factor = next((factor for pattern, factor in reversed(factors) if named.matches(pattern)), 1.0)
        spared = splits and all(named.spared)
        own = {"lr": optimizer.base_rate * factor} if factor != 1.0 else {}
        own |= {"weight_decay": 0.0} if spared else {}
        group = groups.setdefault((factor, spared), {"params": [], **own})
        group["params"].append((named.names[0], named.parameter))
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0] != 1.0, *key))]


def is_spared(owner: nn.Module, name: str) -> bool:
    """Whether a parameter is of the kind that ``--weight-decay-of matrices`` spares, by what it is to its module.

    These are biases, whatever they belong to and however many axes they have (a row for each expert); gains and shifts of
    norms; parameters of a single axis; and those that a module lists in ``undecayed``, such as starting states.
    """
    if isinstance(owner, _NORMS) or "bias" in name.lower().split("_"):
        return True
    return name in getattr(owner, "undecayed", ()) or getattr(owner, name).dim() <= 1


def shown(name: str) -> str:
    """The name that users know a parameter of the training step by."""
    return name.removeprefix("model.")


def _trained(step: nn.Module) -> list[_Named]:
    """Every parameter that is trained, once, under all of its names."""
    found: dict[int, _Named] = {}
    for path, module in step.named_modules(remove_duplicate=False):
        for name, parameter in module.named_parameters(path, recurse=False, remove_duplicate=False):
            if parameter.requires_grad:
                named = found.setdefault(id(parameter), _Named(parameter, [], []))
                named.names.append(name)
                named.spared.append(is_spared(module, name.rpartition(".")[2]))
    return list(found.values())


def _check_patterns(option: str, flag: str, patterns: Sequence[str], trained: Sequence[_Named]) -> None:
    for pattern in patterns:
        if not any(named.matches(pattern) for named in trained):
            names = [shown(named.names[0]) for named in trained]
            beginnings = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise UsageError(
                f"{option}: {pattern} matches no parameter that is trained; names begin with {beginnings}, for example "
                f"{names[0]} and {names[-1]} ({flag})"
            )
