"""Compute what CUDA kernels would compute, on the CPU, in the memory of the fake device (runtime.cpp).

torch's own CUDA code runs down to its kernels: allocator, pinned memory, streams, events, autocast, autograd's threads,
recorded graphs. Allocations, views and copies between devices are torch's as well. ``install`` puts a function of this
file in place of every other kernel of torch. Written for torch 2.13.

As on a GPU, tensors of two devices must not meet in an operation, random numbers come from the device's generator, and
memory that was never written has no useful numbers. Work is done at once: races between streams do not show.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from tests.devices.emulated import CELLS, OF_CUDA
from tests.devices.waits import note, waits_for

# Operations of torch's own that need no kernel: memory, questions, views. Views are recognized by their schemas as well.
_OWN = {
    "empty",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "empty_like",
    "record_stream",
    "_pin_memory",
    "is_pinned",
    "set_",
    "resize_",
    "_reshape_alias",
    "_unsafe_view",
    "_local_scalar_dense",
    "_fused_sdp_choice",
    "_fused_sdp_choice_cudnn",
}
# Operations that may have tensors of the CPU as well: copies, and indices.
_MIXED = {"copy_", "index", "index_put", "index_put_", "_index_put_impl_"}

_process = ctypes.CDLL(None)
_libraries: list[torch.library.Library] = []
_recordings: dict[int, list[Callable[[], None]]] = {}
_drawing = threading.Lock()


def install() -> None:
    """Replace torch's CUDA kernels in this process, if the fake runtime was preloaded."""
    if _libraries or not hasattr(_process, "fake_cuda_capture"):
        return
    library = torch.library.Library("aten", "IMPL")
    for name in torch._C._dispatch_get_all_op_names():
        has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA") or name == "aten::copy_"
        if name.startswith("aten::") and has_kernel:
            func = _overload(name)
            own = torch.library.get_kernel(name, "CUDA")
            plain = func._schema.name.partition("::")[2]
            if plain == "_local_scalar_dense" or plain == "copy_":
                library.impl(name, functools.partial(_own_unless_here, own, func), "CUDA", with_keyset=True)
            elif plain not in _OWN and not _is_view(func):
                library.impl(name, functools.partial(_run, func), "CUDA")
    _libraries.append(library)
    _process.fake_cuda_on_replay(_replay)
    torch.backends.cudnn.enabled = False  # recurrent and convolutional layers are composed of other operations then


def _overload(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _is_view(func: Any) -> bool:
    return any(part.alias_info is not None and not part.alias_info.is_write for part in func._schema.returns)


def _own_unless_here(own: Any, func: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """Copy between devices by torch's own function, which needs no kernel, and note if the CPU waits."""
    name = func._schema.name.partition("::")[2]
    if name == "copy_":
        target, source, *rest = args
        if target.device == source.device:
            return _run(func, *args, **kwargs)
        if target.device.type == source.device.type:  # two GPUs
            _on_cpu(target).copy_(_on_cpu(source))
            return target
        later = kwargs.get("non_blocking", bool(rest and rest[0]))
        host = target if target.device.type == "cpu" else source
        if not (later and host.is_pinned()):
            _wait(f"copy to {target.device.type}")
    else:
        _wait(name)
    return own.call_boxed(keys, *args, **kwargs)


def _wait(name: str) -> None:
    if _process.fake_cuda_capture():
        raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
    if torch.cuda.get_sync_debug_mode() == 2:
        raise RuntimeError(f"called a synchronizing CUDA operation: {name}")
    note(name)


def _run(func: Any, *args: Any, **kwargs: Any) -> Any:
    name = func._schema.name.partition("::")[2]
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    there = [leaf.device for leaf in leaves if leaf.device.type == "cuda"]
    device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else there[0]
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    strangers = [leaf for leaf in leaves if leaf.device != device and leaf.dim() > 0 and leaf.numel()]
    if strangers and name not in _MIXED:
        raise RuntimeError(f"{name}: expected all tensors on one device, but found {device} and {strangers[0].device}")
    if waits_for(name, args):
        _wait(name)
    if "device" in kwargs:
        kwargs["device"] = torch.device("cpu")
    if "pin_memory" in kwargs:
        kwargs["pin_memory"] = False
    if _process.fake_cuda_capture():
        return _record(func, name, args, kwargs, device)
    return _returned(func, args, kwargs, _compute(func, name, args, kwargs, device), device)


def _compute(func: Any, name: str, args: Any, kwargs: Any, device: torch.device) -> Any:
    """Return what the operation returns, on the CPU. Tensors that it changes are changed."""
    here, named = tree_map_only(Tensor, _on_cpu, args), tree_map_only(Tensor, _on_cpu, kwargs)
    schema = [part.name for part in func._schema.arguments]
    passed = dict(zip(schema, args)) | kwargs
    generator, dropout = passed.get("generator"), passed.get("dropout_p", 0.0)
    is_random = "generator" in schema or name == "native_dropout" or dropout > 0
    if generator is not None:
        named["generator"] = None
    with _numbers_of(generator, device) if is_random else contextlib.nullcontext():
        if (formula := OF_CUDA.get(name)) is None:
            return CELLS.get(name, _overload_for(func, here))(*here, **named)
        defaults = {part.name: part.default_value for part in func._schema.arguments if part.has_default_value()}
        return formula(**defaults | dict(zip(schema, here)) | named)


def _overload_for(func: Any, args: Any) -> Any:
    """Return the operation, or all of its name if a number came for a tensor: torch calls Python functions so."""
    pairs = zip(func._schema.arguments, args)
    numbers = any(isinstance(part.type, torch.TensorType) and isinstance(value, (int, float)) for part, value in pairs)
    return func.overloadpacket if numbers else func


@contextlib.contextmanager
def _numbers_of(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Let the CPU draw from the generator of a device, which advances."""
    generator = generator or torch.cuda.default_generators[device.index]
    offset = generator.get_offset()
    generator.set_offset(offset + 4)
    with _drawing:
        before = torch.get_rng_state()
        torch.default_generator.manual_seed(hash((generator.initial_seed(), offset)) % 2**63)
        try:
            yield
        finally:
            torch.set_rng_state(before)


def _on_cpu(tensor: Tensor) -> Tensor:
    """Return the same memory as a tensor of the CPU."""
    if tensor.device.type != "cuda":
        return tensor
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if not size or not tensor.numel():
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), size)
    return torch.empty(0, dtype=tensor.dtype).set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    if tensor.device.type != "cpu":
        return tensor
    overlaps = any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.size()))
    strides = tensor.contiguous().stride() if overlaps else tensor.stride()
    there = torch.empty_strided(tensor.size(), strides, dtype=tensor.dtype, device=device)
    if tensor.numel():
        _on_cpu(there).copy_(tensor)
    return there


def _changed(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Return the arguments that an operation writes to."""
    changed = []
    for index, part in enumerate(func._schema.arguments):
        if part.alias_info is not None and part.alias_info.is_write:
            changed.append(args[index] if index < len(args) else kwargs.get(part.name))
    return changed


def _returned(func: Any, args: Any, kwargs: Any, result: Any, device: torch.device) -> Any:
    """Return what the caller gets for a result on the CPU."""
    returns = func._schema.returns
    if returns and all(part.alias_info is not None and part.alias_info.is_write for part in returns):
        changed = _changed(func, args, kwargs)
        for target, source in zip(changed, result if isinstance(result, tuple) else (result,)):
            if isinstance(target, Tensor) and target.size() != source.size():  # `out` takes the shape of the result
                target.resize_(source.size())
                _on_cpu(target).copy_(source)
        return changed[0] if len(returns) == 1 else tuple(changed)
    return tree_map_only(Tensor, lambda part: _on_device(part, device), result)


# Recorded graphs


def _record(func: Any, name: str, args: Any, kwargs: Any, device: torch.device) -> Any:
    """Note an operation for replays, and compute only the shapes that it returns: what they hold is not a number yet."""
    here, named = tree_map_only(Tensor, _on_cpu, args), tree_map_only(Tensor, _on_cpu, kwargs)
    changed = {id(part) for part in tree_leaves(_changed(func, here, named))}
    spared = tree_map_only(Tensor, lambda part: part.clone() if id(part) in changed else part, (here, named))
    shapes = _compute(func, name, *spared, device)
    result = _returned(func, args, kwargs, tree_map_only(Tensor, _unwritten, shapes), device)
    outputs = [_on_cpu(part) for part in tree_leaves(result) if isinstance(part, Tensor)]

    def repeat() -> None:
        returned = tree_leaves(_compute(func, name, here, named, device))
        for output, part in zip(outputs, [part for part in returned if isinstance(part, Tensor)]):
            output.copy_(part)

    _recordings.setdefault(_process.fake_cuda_capture(), []).append(repeat)
    return result


def _unwritten(tensor: Tensor) -> Tensor:
    return torch.full_like(tensor, torch.nan) if tensor.is_floating_point() else tensor


@ctypes.CFUNCTYPE(None, ctypes.c_long)
def _replay(graph: int) -> None:
    for operation in _recordings[graph]:
        operation()
