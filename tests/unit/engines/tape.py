"""What stands in for a GPU's recording: it notes every operation with its tensors, and repeats it on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt.engines.graphs import Function

aten = torch.ops.aten
ASKING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.is_nonzero.default,
    aten.repeat_interleave.Tensor,
    aten.lift_fresh.default,  # of torch.tensor(...), and of lists as indices: copied from memory that a GPU waits for
}


class Asked(RuntimeError):
    """A number in a tensor was asked for, which a GPU does not know while it records."""


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.before: dict[int, tuple[Tensor, torch.UntypedStorage]] = {}  # what was written to, and what was there
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        masks = [one for one in _tensors(args[1:]) if one.dtype == torch.bool]
        if function in ASKING or (function is aten.index.Tensor and masks):
            raise Asked(f"operation not permitted when stream is capturing: {function}\nand more")
        named = dict(zip((argument.name for argument in function._schema.arguments), args)) | kwargs
        for argument in function._schema.arguments:
            one = named.get(argument.name)
            if isinstance(one, Tensor) and argument.alias_info is not None and argument.alias_info.is_write:
                self.before.setdefault(one.untyped_storage().data_ptr(), (one, one.untyped_storage().clone()))
        result = function(*args, **kwargs)
        given = {one.untyped_storage().data_ptr() for one in _tensors((args, kwargs))}
        fresh = [one for one in _tensors(result) if one.untyped_storage().data_ptr() not in given]
        assert len(fresh) in (0, len(_tensors(result)))
        self.calls.append((function, args, kwargs, fresh))
        return result

    def undo(self) -> None:
        """A GPU computes nothing while it records."""
        for tensor, before in self.before.values():
            tensor.untyped_storage().copy_(before)

    def repeat(self) -> None:
        for function, args, kwargs, fresh in self.calls:
            result = _tensors(function(*args, **kwargs))
            for place, numbers in zip(fresh, result):  # all are fresh, or none
                place.copy_(numbers)


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


class Recorder:
    """``Recordings`` on a CPU."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.recorded = self.repeated = self.forgotten = 0

    def record(self, warm_up: Function, function: Function) -> Callable[[], None]:
        warm_up()
        with _Tape() as tape:
            function()
        tape.undo()
        self.recorded += 1
        generation = self.forgotten

        def repeat() -> None:
            assert generation == self.forgotten, "its memory may have been given to others"
            self.repeated += 1
            tape.repeat()

        return repeat

    def forget(self) -> None:
        self.forgotten += 1
