"""Processes that each hold a part of every parameter: torch's FSDP2 (``fully_shard``).

A unit is what is gathered and freed at once: each layer of a ``Stack``, and everything else. In the last batch of an
update a layer's parameters are whole while it is called, in the forward and again in the backward pass, after which its
gradients are averaged and divided. During the batches before that one, parameters and gradients stay whole, so that an
update exchanges as much however many batches it has.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from nmt.distributed.together import Together, digest
from nmt.distributed.world import Called
from nmt.errors import NMTError, UsageError
from nmt.interface import Batch, LossReport
from nmt.layers.stack import stacked_layers
from nmt.optim.parameter_groups import shown


def units(module: nn.Module) -> list[nn.Module]:
    """The layers of its stacks. One that shares a parameter with what is outside it belongs to the root."""
    everywhere = _uses(module)
    return [
        layer
        for layer in stacked_layers(module)
        if (own := _uses(layer)) and all(everywhere[key] == count for key, count in own.items())
    ]


def _uses(module: nn.Module) -> Counter[int]:
    """How many names each parameter has."""
    return Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))


class _Root(nn.Module):
    """The unit of everything that is in no other. Whatever needs its parameters runs inside its forward pass."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, batch: Batch | None) -> tuple[Tensor, LossReport] | None:
        """Torch looks for tensors with gradients in a tuple, not in a dataclass. None: nothing is computed."""
        if batch is None:
            return None
        report: LossReport = self.step(batch)
        return report.loss_sum, report


class Sharded(Together):
    """The processes of a process group that share out the parameters of one model."""

    divides = True

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._mesh = init_device_mesh(device.type, (self.size,))
        self._root: _Root | None = None
        self._units: list[FSDPModule] = []  # the root, then layers
        self._frees = True  # whether a layer's parameters are freed after its forward pass

    def divide(self, step: nn.Module) -> None:
        """All processes made the same parameters: each keeps its part of its own."""
        scalar = next((name for name, parameter in step.named_parameters() if parameter.dim() == 0), None)
        if scalar is not None:
            raise UsageError(
                f"distributed.strategy=fsdp cannot divide {shown(scalar)}, which is a single number; "
                f"use --distributed-strategy ddp"
            )
        if len(set(self.gather(digest(step.parameters())))) > 1:
            raise NMTError("the processes begin with different parameters; look for a faulty device or installation")
        root = _Root(step)
        # Said of recurrent layers: no caller changes the result of a layer in place.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        layers = [fully_shard(layer, mesh=self._mesh) for layer in units(step)]
        self._units = [fully_shard(root, mesh=self._mesh), *layers]
        self._root = root
        # In the backward pass a layer is gathered while the one above it computes. Torch would take the order of all
        # calls since the last update for that, among which are those of validation, whose number differs by process.
        for unit, below in zip(self._units, [self._units[-1], *self._units]):
            unit.set_modules_to_backward_prefetch([below])
        root(None)  # now torch knows which module is the outermost, whatever is called first
        self._units[0].reshard()

    def wrap(self, step: nn.Module) -> Called:
        root = self._root
        assert root is not None and root.step is step, "its parameters are divided first"
        return lambda batch: root(batch)[1]

    @contextlib.contextmanager
    def backward_of(self, called: Called, *, last: bool) -> Iterator[None]:
        for unit in self._units:
            unit.set_requires_gradient_sync(last, recurse=False)
            unit.set_reshard_after_backward(last, recurse=False)
        self._free_after_forward(last)
        yield

    def meets(self, *, last: bool) -> Sequence[str]:
        return ("forward", "backward")  # to gather parameters; which batches do is not worth a rule

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        before = self._frees
        for handle in [unit.unshard(async_op=True) for unit in self._units]:
            assert handle is not None
            handle.wait()
        self._free_after_forward(False)
        try:
            yield
        finally:
            self._free_after_forward(before)
            if before:
                for unit in self._units:
                    unit.reshard()  # nothing happens to the root if this is inside its forward pass

    def held(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        with torch.no_grad():
            local: Tensor = tensor.to_local()
        return local

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor) or tensor.shape != like.shape:
            return tensor
        here = tensor.to(like.device)
        return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)

    def gathered(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """One after the other: the others hold one whole tensor at a time."""
        stored: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            with torch.no_grad():
                full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if self.main:
                stored[name] = full.cpu()
        return stored

    def replicas(self, parameters: Iterable[Tensor]) -> Iterable[Tensor]:
        return [parameter for parameter in parameters if not isinstance(parameter, DTensor)]

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        norm = super().norm(gradients)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _free_after_forward(self, frees: bool) -> None:
        self._frees = frees
        for layer in self._units[1:]:
            layer.set_reshard_after_forward(frees, recurse=False)
