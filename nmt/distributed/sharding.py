"""Ranks that each hold a part of every parameter: torch's FSDP2 (``fully_shard``).

Parameters are gathered and freed in units: each layer of a ``Stack`` is one, and everything else is one. In the last
micro-batch of an update, a layer has all its parameters only while it is called, in the forward and again in the backward
pass. Then its gradients are averaged and divided. During the micro-batches before it, parameters and gradients stay whole,
so the amount that an update exchanges does not depend on their number.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_leaves

from nmt.distributed.peers import Peers
from nmt.distributed.replicated import Replicated, digest
from nmt.distributed.world import WrappedStep, squares
from nmt.errors import NMTError, UsageError
from nmt.interface import Batch, LossReport
from nmt.layers.stack import stacked_layers
from nmt.optim.parameter_groups import displayed_name


def units(module: nn.Module) -> list[nn.Module]:
    """Return the layers of all stacks, except those that share a parameter with another module."""
    everywhere = _uses(module)
    return [
        layer
        for layer in stacked_layers(module)
        if (own := _uses(layer)) and all(everywhere[key] == count for key, count in own.items())
    ]


def _uses(module: nn.Module) -> Counter[int]:
    """Count the names of each parameter."""
    return Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))


class _Root(nn.Module):
    """The unit of all parameters outside the layers. Code that needs them runs inside its forward pass."""

    def __init__(self, step: nn.Module) -> None:
        super().__init__()
        self.step = step

    def forward(self, batch: Batch | None) -> tuple[Tensor, LossReport] | None:
        """Return a tuple: torch does not look for tensors with gradients in a dataclass. ``batch`` None: compute nothing."""
        if batch is None:
            return None
        report: LossReport = self.step(batch)
        return report.loss_sum, report


class Sharded(Replicated):
    """The ranks of a process group, which divide the parameters of one model."""

    divides = True

    def __init__(self, device: torch.device, peers: Peers | None = None) -> None:
        super().__init__(peers)
        self._mesh = init_device_mesh(device.type, (self.size,))
        self._root: _Root | None = None
        self._units: list[FSDPModule] = []  # the root, then layers
        self._frees = True  # whether a layer's parameters are freed after its forward pass
        self._is_whole = False  # inside ``whole``, where ranks do not wait for each other

    def divide(self, step: nn.Module) -> None:
        """Keep this rank's part of the parameters, which every rank has initialized to the same values."""
        scalar = next((name for name, parameter in step.named_parameters() if parameter.dim() == 0), None)
        if scalar is not None:
            raise UsageError(
                f"distributed.strategy=fsdp cannot divide {displayed_name(scalar)}, which is a single number; "
                f"use --distributed-strategy ddp"
            )
        if len(set(self.gather(digest(step.parameters())))) > 1:
            raise NMTError("the ranks start with different parameters; look for a faulty device or installation")
        root = _Root(step)
        # torch warns so of recurrent layers; no caller changes the result of a layer in place
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        modules = [*units(step), root]
        *layers, outermost = [fully_shard(module, mesh=self._mesh) for module in modules]
        self._units = [outermost, *layers]
        self._root = root
        if self._peers is not None:
            _count_layers(modules, self._reach_layer)
        # In the backward pass a layer is gathered while the one above it computes. By itself torch would follow the order
        # of all calls since the last update, including those of a validation, whose number differs by rank.
        for unit, below in zip(self._units, [self._units[-1], *self._units]):
            unit.set_modules_to_backward_prefetch([below])
        root(None)  # shows torch which module is the outermost
        self._units[0].reshard()

    def wrap(self, step: nn.Module) -> WrappedStep:
        root = self._root
        assert root is not None and root.step is step, "divide() comes first"
        return lambda batch: root(batch)[1]

    @contextlib.contextmanager
    def backward_of(self, wrapped: WrappedStep, *, last: bool) -> Iterator[None]:
        for unit in self._units:
            unit.set_requires_gradient_sync(last, recurse=False)
            unit.set_reshard_after_backward(last, recurse=False)
        self._free_after_forward(last)
        yield

    def meets(self, *, last: bool) -> Sequence[str]:
        return ("forward", "backward")  # ranks gather parameters in both, except in some batches

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        before, was_whole = self._frees, self._is_whole
        for handle in [unit.unshard(async_op=True) for unit in self._units]:
            assert handle is not None
            handle.wait()
        self._free_after_forward(False)
        self._is_whole = True
        try:
            yield
        finally:
            self._is_whole = was_whole
            self._free_after_forward(before)
            if before:
                for unit in self._units:
                    unit.reshard()  # nothing happens to the root if this is inside its forward pass

    def local_part(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, DTensor):
            return tensor
        with torch.no_grad():
            local: Tensor = tensor.to_local()
        return local

    def scattered(self, tensor: Tensor, like: Tensor) -> Tensor:
        if not isinstance(like, DTensor) or tensor.shape != like.shape:
            return tensor
        here = tensor.to(like.device)
        return distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)

    def gathered(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Gather one tensor after the other, so that ranks but 0 hold one whole tensor at a time."""
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
        rows = [self.local_part(gradient) for gradient in gradients if isinstance(gradient, DTensor)]
        copies = [gradient for gradient in gradients if not isinstance(gradient, DTensor)]  # the same on each rank
        return (self.total(squares(rows)) + squares(copies)).sqrt().float()

    def _reach_layer(self) -> None:
        if self._peers is not None and not self._is_whole:
            self._peers.reach_layer()

    def _free_after_forward(self, frees: bool) -> None:
        self._frees = frees
        for layer in self._units[1:]:
            layer.set_reshard_after_forward(frees, recurse=False)


def _count_layers(modules: Iterable[nn.Module], reach: Callable[[], None]) -> None:
    """Call ``reach`` whenever a pass, forward or backward, reaches one of ``modules``: a rank that hangs inside its pass has
    reached fewer than the others."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note(*_: object) -> None:
        reach()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def note_backward(module: nn.Module, inputs: object, output: object) -> None:
        tensors = (leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad)
        for tensor in itertools.islice(tensors, 1):
            tensor.register_hook(note)  # type: ignore[no-untyped-call]

    for module in modules:
        module.register_forward_pre_hook(note, prepend=True)  # both come before torch's own, which wait for other ranks
        module.register_forward_hook(note_backward, prepend=True)
