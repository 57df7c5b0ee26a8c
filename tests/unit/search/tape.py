"""What stands in for a GPU's recording: it notes every operation with its tensors, and repeats it on the same memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt.modules.recording import Function

aten = torch.ops.aten
ASKING = {aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default, aten.is_nonzero.default}


class Asked(RuntimeError):
    """A number in a tensor was asked for, which a GPU does not know while it records."""


class _Tape(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], list[Tensor]]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        masks = [one for one in _tensors(args[1:]) if one.dtype == torch.bool]
        if function in ASKING or (function is aten.index.Tensor and masks):
            raise Asked(f"operation not permitted when stream is capturing: {function}\nand more")
        result = function(*args, **kwargs)
        given = {one.untyped_storage().data_ptr() for one in _tensors((args, kwargs))}
        fresh = [one for one in _tensors(result) if one.untyped_storage().data_ptr() not in given]
        assert len(fresh) in (0, len(_tensors(result)))
        self.calls.append((function, args, kwargs, fresh))
        return result

    def repeat(self) -> None:
        for function, args, kwargs, fresh in self.calls:
            result = _tensors(function(*args, **kwargs))
            for place, numbers in zip(fresh, result):  # all are fresh, or none
                place.copy_(numbers)


def _tensors(tree: Any) -> list[Tensor]:
    return [one for one in tree_leaves(tree) if isinstance(one, Tensor)]


class Recorder:
    """``record`` on a CPU."""

    def __init__(self) -> None:
        self.recorded = self.repeated = 0

    def __call__(self, function: Function) -> Callable[[], None]:
        function()
        with _Tape() as tape:
            function()
        self.recorded += 1

        def repeat() -> None:
            self.repeated += 1
            tape.repeat()

        return repeat
