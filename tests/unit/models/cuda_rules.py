"""What autocast does on a GPU and not on a CPU, done on a CPU: some functions compute in float32, and so are their results.

https://docs.pytorch.org/docs/stable/amp.html#cuda-ops-that-can-autocast-to-float32
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

IN_FLOAT32 = {
    *("__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin", "cdist", "cosh", "cross_entropy", "cumprod"),
    *("cumsum", "dist", "exp", "expm1", "group_norm", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log1p"),
    *("log2", "log_softmax", "mse_loss", "nll_loss", "norm", "normalize", "pow", "prod", "reciprocal", "renorm"),
    *("rsqrt", "sinh", "smooth_l1_loss", "softmax", "softmin", "softplus", "sum", "tan"),
}


class CudaRules(TorchFunctionMode):
    """Within autocast on a CPU."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        if torch.is_autocast_enabled("cpu") and getattr(function, "__name__", "") in IN_FLOAT32:
            args = [_widened(one) for one in args]
        return function(*args, **(kwargs or {}))


def _widened(one: Any) -> Any:
    return one.float() if isinstance(one, Tensor) and one.dtype in (torch.bfloat16, torch.float16) else one
