"""The trained parameters, and their groups for the optimizer.

Names are those of the model (``encoder.layers.0.norm.weight``); the criterion's parameters begin with ``criterion.``. A
parameter that several modules share has several names; a pattern matches it by any of them.
"""

from __future__ import annotations

import logging
import re
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
from nmt.layers.low_rank import adapt, start_pass, stored_name
from nmt.optim import ParameterGroups

logger = logging.getLogger("nmt.training")

_NORMS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


@dataclass(eq=False)  # compared by identity
class _Named:
    parameter: Parameter
    names: list[str]  # full names, the owner's first
    no_decay: bool = True  # exempt from weight decay, as a parameter of each module that has it
    maps: bool = True  # maps hidden vectors, as a parameter of each module that has it

    def matches(self, patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(displayed_name(name), pattern) for name in self.names for pattern in patterns)

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix of the model, perhaps with more than two axes, that can have a low-rank adapter."""
        weight = self.parameter
        of_model = self.names[0].startswith("model.")
        return of_model and weight.dim() >= 2 and min(weight.size(0), weight[0].numel()) > 1


def choose_trained(step: nn.Module, options: ParametersConfig) -> None:
    """Choose the trained parameters of ``step``: all, or a low-rank adapter that it adds to the model, or those that match
    ``train_only``; without those that match ``freeze``."""
    everything = _trained(step)
    _check_patterns("parameters.train_only", "--train-only", options.train_only, everything)
    _check_patterns("parameters.freeze", "--freeze", options.freeze, everything)
    matrices = [named for named in everything if named.is_matrix]
    _check_patterns("parameters.lora_on", "--lora-on", options.lora_on, matrices)
    if options.lora_rank is not None:
        adaptable = [named for named in matrices if not named.matches(options.freeze)]
        chosen = [
            named for named in adaptable if named.matches(options.lora_on) or (named.maps and not options.lora_on)
        ]
        names = [[displayed_name(name) for name in named.names] for named in chosen]
        adapt(step.get_submodule("model"), names, options.lora_rank, options.alpha, options.lora_dropout)
        step.register_forward_pre_hook(start_pass)
    count = sum(named.parameter.numel() for named in everything)
    for named in everything:
        only_others = (options.train_only or options.lora_rank is not None) and not named.matches(options.train_only)
        if only_others or named.matches(options.freeze):
            named.parameter.requires_grad_(False)
    trained = _trained(step)
    if not any(named.names[0].startswith("model.") for named in trained):
        raise UsageError(
            f"parameters.freeze={list(options.freeze)} and parameters.train_only={list(options.train_only)} leave no "
            f"parameter of the model to train; give --freeze fewer patterns, or --train-only others"
        )
    if len(trained) < len(everything) or options.lora_rank is not None:
        of_trained = sum(named.parameter.numel() for named in trained)
        logger.info("%s parameters are trained; the model has %s", f"{of_trained:,}", f"{count:,}")


def parameter_groups(step: nn.Module, parameters: ParametersConfig, optimizer: OptimizerConfig) -> ParameterGroups:
    """Return the trained parameters of ``step``, grouped by learning rate, weight decay and update rule.

    The first group has the unscaled learning rate if any group has it; its rate is reported.
    """
    trained, factors = _trained(step), parameters.factors()
    _check_patterns("parameters.lr_scales", "--lr-scales", [pattern for pattern, _ in factors], trained)
    splits = parameters.decay is Decayed.matrices and bool(optimizer.weight_decay)
    groups: dict[tuple[float, bool, str], dict[str, Any]] = {}
    for named in trained:
        factor = next((factor for pattern, factor in reversed(factors) if named.matches([pattern])), 1.0)
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
    return stored_name(name.removeprefix("model."))


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
        if not any(named.matches([pattern]) for named in trained):
            names = dict.fromkeys(re.sub(r"\.\d+\.", ".*.", displayed_name(named.names[0])) for named in trained)
            raise UsageError(f"{option}: {pattern} matches none of these parameters: {', '.join(names)} ({flag})")
