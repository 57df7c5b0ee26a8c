"""The trained parameters, and their groups for the optimizer.

Names are those of the model (``encoder.layers.0.norm.weight``); the criterion's parameters begin with ``criterion.``. A
parameter that several modules share has several names; a pattern matches it by any of them.
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
from nmt.interface import OutputLayer
from nmt.optim import ParameterGroups

logger = logging.getLogger("nmt.training")

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@dataclass(eq=False)  # compared by identity
class _Named:
    parameter: Parameter
    names: list[str]  # full names, the owner's first
    no_decay: bool = True  # exempt from weight decay, as a parameter of each module that has it
    maps: bool = True  # maps hidden vectors, as a parameter of each module that has it

    def matches(self, pattern: str) -> bool:
        return any(fnmatchcase(displayed_name(name), pattern) for name in self.names)


def freeze(step: nn.Module, patterns: Sequence[str]) -> None:
    """Exclude the matching parameters of ``step`` from training."""
    trained = _trained(step)
    _check_patterns("parameters.freeze", "--freeze", patterns, trained)
    frozen = [named for named in trained if any(named.matches(pattern) for pattern in patterns)]
    if not frozen:
        return
    if not any(named.names[0].startswith("model.") for named in trained if named not in frozen):
        raise UsageError(f"parameters.freeze={list(patterns)} freezes the whole model; give --freeze fewer patterns")
    for named in frozen:
        named.parameter.requires_grad_(False)
    count, total = (sum(named.parameter.numel() for named in group) for group in (frozen, trained))
    logger.info("%s of %s parameters are frozen", f"{count:,}", f"{total:,}")


def parameter_groups(step: nn.Module, parameters: ParametersConfig, optimizer: OptimizerConfig) -> ParameterGroups:
    """Return the trained parameters of ``step``, grouped by learning rate, weight decay and update rule.

    The first group has the unscaled learning rate if any group has it; its rate is reported.
    """
    trained, factors = _trained(step), parameters.factors()
    _check_patterns("parameters.lr_scales", "--lr-scales", [pattern for pattern, _ in factors], trained)
    splits = parameters.decay is Decayed.matrices and bool(optimizer.weight_decay)
    groups: dict[tuple[float, bool, str], dict[str, Any]] = {}
    for named in trained:
        factor = next((factor for pattern, factor in reversed(factors) if named.matches(pattern)), 1.0)
        no_decay = splits and named.no_decay
        rule = optimizer.rule_of(displayed_name(named.names[0]), tuple(named.parameter.shape), named.maps)
        options: dict[str, Any] = {"lr": optimizer.base_rate * factor} if factor != 1.0 else {}
        options |= {"weight_decay": 0.0} if no_decay else {}
        options |= {"rule": rule} if rule else {}
        group = groups.setdefault((factor, no_decay, rule), {"params": [], **options})
        group["params"].append((named.names[0], named.parameter))
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0] != 1.0, *key))]


def is_spared(owner: nn.Module, name: str) -> bool:
    """Whether ``--weight-decay-of matrices`` exempts a parameter of the module ``owner`` from weight decay.

    Exempt are biases with any number of axes, gains and biases of norms, parameters with a single axis, and those that a
    module lists in ``undecayed``, such as initial states.
    """
    if isinstance(owner, _NORMS) or "bias" in name.lower().split("_"):
        return True
    return name in getattr(owner, "undecayed", ()) or getattr(owner, name).dim() <= 1


def maps_hidden_vectors(owner: nn.Module, name: str) -> bool:
    """Whether a parameter of the module ``owner`` is a linear map between hidden vectors, with any number of axes.

    Biases, norms, initial states and embeddings are not, nor are parameters that a module lists in ``not_maps``, such as
    position vectors. ``parameter_groups`` also excludes output layers and criterions.
    """
    declared = isinstance(owner, nn.Embedding) or name in getattr(owner, "not_maps", ())
    return not declared and not is_spared(owner, name)


def displayed_name(name: str) -> str:
    """Return the name of a training step's parameter that users see."""
    return name.removeprefix("model.")


def _trained(step: nn.Module) -> list[_Named]:
    """Return every trained parameter once, with all of its names."""
    by_id: dict[int, _Named] = {}
    layers = [module for module in step.modules() if isinstance(module, OutputLayer)]
    of_output = {id(parameter) for layer in layers for parameter in layer.parameters()}
    for path, module in step.named_modules(remove_duplicate=False):
        for name, parameter in module.named_parameters(path, recurse=False, remove_duplicate=False):
            if parameter.requires_grad:
                own_name, at_end = name.rpartition(".")[2], name.startswith("criterion.") or id(parameter) in of_output
                named = by_id.setdefault(id(parameter), _Named(parameter, []))
                named.names.append(name)
                named.no_decay &= is_spared(module, own_name)
                named.maps &= not at_end and maps_hidden_vectors(module, own_name)
    return list(by_id.values())


def _check_patterns(option: str, flag: str, patterns: Sequence[str], trained: Sequence[_Named]) -> None:
    for pattern in patterns:
        if not any(named.matches(pattern) for named in trained):
            names = [displayed_name(named.names[0]) for named in trained]
            beginnings = ", ".join(dict.fromkeys(name.partition(".")[0] for name in names))
            raise UsageError(
                f"{option}: {pattern} matches no parameter that is trained; names begin with {beginnings}, for example "
                f"{names[0]} and {names[-1]} ({flag})"
            )
