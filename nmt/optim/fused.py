"""Whether an optimizer may use torch's kernels that do a whole update of all parameters at once."""

from __future__ import annotations

from nmt.optim import ParameterGroups


def runs_fused(groups: ParameterGroups) -> bool | None:
    """True on a GPU; None leaves the choice to torch."""
    parameters = [parameter for group in groups for _, parameter in group["params"]]
    return True if all(p.is_cuda and p.is_floating_point() for p in parameters) else None
