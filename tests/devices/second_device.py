"""A second device beside the CPU, in Python, for tests without a GPU.

A tensor on ``second`` keeps its numbers in a CPU tensor of its own, and every operation runs on the CPU. As on a GPU,
tensors of two devices must not meet in an operation, memory may run out, and the CPU waits for whatever it reads, which
is noted. Random numbers are those of the CPU.

torch has an experimental interface for devices in Python, ``_setup_privateuseone_for_python_backend``; torch 2.13 was used.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from nmt.devices import kinds
from nmt.devices.copies import Arriving
from nmt.devices.kinds import Accelerator
from tests.devices.emulated import CELLS
from tests.devices.waits import note, waits_for

NAME = "second"

# Operations that may have tensors of both devices, as they may on a GPU: copies, and indices on the CPU.
_MIXED = {"copy_", "_to_copy", "_copy_from", "set_", "index", "index_put", "index_put_", "_pack_padded_sequence"}
# Questions about the shape, which operations in place may change.
_SHAPES: dict[str, Callable[[Tensor], Any]] = {
    "size": lambda x: x.size(),
    "sym_size": lambda x: x.size(),
    "stride": lambda x: x.stride(),
    "sym_stride": lambda x: x.stride(),
    "numel": lambda x: x.numel(),
    "sym_numel": lambda x: x.numel(),
    "dim": lambda x: x.dim(),
    "storage_offset": lambda x: x.storage_offset(),
    "sym_storage_offset": lambda x: x.storage_offset(),
    "is_contiguous": lambda x: x.is_contiguous(),
    "is_strides_like_format": lambda x: False,
    "is_non_overlapping_and_dense": lambda x: x.is_contiguous(),
}


class Memory:
    """The memory of the device."""

    def __init__(self) -> None:
        self.held, self.peak, self.budget = 0, 0, float("inf")  # bytes
        self._uses: Counter[int] = Counter()  # tensors of each storage

    def keep(self, tensor: OnSecond) -> None:
        """Count the memory of a tensor's storage while any tensor uses it."""
        storage = tensor.numbers.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if not self._uses[key]:
            if self.held + size > self.budget:
                raise torch.OutOfMemoryError(f"{NAME} device out of memory: tried to allocate {size} bytes")
            self.held += size
            self.peak = max(self.peak, self.held)
        self._uses[key] += 1
        weakref.finalize(tensor, self._release, key, size)

    def reset(self) -> None:
        """Measure the peak from now on."""
        self.peak = self.held

    def _release(self, key: int, size: int) -> None:
        self._uses[key] -= 1
        if not self._uses[key]:
            del self._uses[key]
            self.held -= size


memory = Memory()


@contextlib.contextmanager
def budget(size: float) -> Iterator[None]:
    """Let the device have only ``size`` bytes more than it holds now."""
    memory.budget = memory.held + size
    try:
        yield
    finally:
        memory.budget = float("inf")


class OnSecond(Tensor):
    """A tensor of the second device; ``numbers`` has its values."""

    numbers: Tensor

    @staticmethod
    def __new__(cls, numbers: Tensor) -> OnSecond:
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined, no-any-return]
            cls,
            numbers.size(),
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=torch.device(NAME, 0),
            dispatch_sizes_strides_policy="sizes",
        )

    def __init__(self, numbers: Tensor) -> None:
        self.numbers = numbers
        memory.keep(self)

    def __repr__(self, **_: Any) -> str:
        return f"OnSecond({self.numbers!r})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _bare(value: Any) -> Any:
    return value.numbers if isinstance(value, OnSecond) else value


def _dressed(value: Any) -> Any:
    return OnSecond(value) if isinstance(value, Tensor) and not isinstance(value, OnSecond) else value


def _mapped(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Apply a function to each tensor of arguments or results; torch's tree_map takes five times as long."""
    if isinstance(value, Tensor):
        return function(value)
    if type(value) in (list, tuple):
        return type(value)([_mapped(function, part) for part in value])
    if type(value) is dict:
        return {name: _mapped(function, part) for name, part in value.items()}
    return value


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    if not torch.is_inference_mode_enabled():
        return _computed(func, args, kwargs)
    with torch.inference_mode(False), torch.no_grad():  # views of a wrapper cannot be made in inference mode
        return _computed(func, args, kwargs)


def _computed(func: Any, args: Any, kwargs: Any) -> Any:
    name, composite, in_place = _facts(func)
    if name in _SHAPES:
        return _SHAPES[name](args[0].numbers)
    if composite:  # in inference mode torch does not take it apart
        result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
    leaves = list[Tensor]()
    _mapped(leaves.append, (args, kwargs))
    ours = [leaf for leaf in leaves if isinstance(leaf, OnSecond)]
    others = [leaf for leaf in leaves if not isinstance(leaf, OnSecond) and leaf.dim() > 0]
    if ours and others and name not in _MIXED:
        raise RuntimeError(f"{name}: expected all tensors on one device, but found {NAME} and {others[0].device}")
    target = kwargs.get("device")
    if target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    to_second = torch.device(target).type == NAME if target is not None else bool(ours)
    if ours and (waits_for(name, args) or (name == "_to_copy" and not to_second)):
        note(name)
    result = CELLS.get(name, func)(*_mapped(_bare, args), **_mapped(_bare, kwargs))
    if in_place:
        known = {id(leaf.numbers): leaf for leaf in ours}  # an operation in place returns its very argument
        return _mapped(lambda part: known.get(id(part), part), result)
    if name == "_pack_padded_sequence":  # the lengths stay on the CPU, as they do on a GPU
        return OnSecond(result[0]), result[1]
    return _mapped(_dressed, result) if to_second else result


@functools.cache
def _facts(func: Any) -> tuple[str, bool, bool]:
    """Return an operation's name, whether it is made of others, and whether it writes to its arguments."""
    name = func._schema.name.partition("::")[2]
    if name in _SHAPES:  # some of them are not registered as operations
        return name, False, False
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    aliases = [returned.alias_info for returned in func._schema.returns]
    return name, composite, any(alias is not None and alias.is_write for alias in aliases)


class Module:
    """What torch asks of ``torch.second``."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def is_initialized() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def set_device(index: int) -> None:
        assert index == 0

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Random numbers are those of the CPU."""

    @staticmethod
    def get_rng_state(device: Any = None) -> Tensor:
        return torch.get_rng_state()

    @staticmethod
    def set_rng_state(state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    @staticmethod
    def get_device_name(device: Any = None) -> str:
        return "Second Device"

    @staticmethod
    def is_bf16_supported() -> bool:
        return True

    @staticmethod
    def max_memory_allocated(device: Any = None) -> int:
        return memory.peak

    @staticmethod
    def max_memory_reserved(device: Any = None) -> int:
        return memory.peak

    @staticmethod
    def memory_reserved(device: Any = None) -> int:
        return memory.held

    @staticmethod
    def mem_get_info(device: Any = None) -> tuple[float, float]:
        most = min(memory.budget, 2.0**34)
        return most - memory.held, most

    @staticmethod
    def reset_peak_memory_stats(device: Any = None) -> None:
        memory.reset()

    @staticmethod
    def empty_cache() -> None:
        """Nothing is cached."""


class _Event:
    def synchronize(self) -> None:
        """Copies are done at once."""


class _Stream:
    def record_event(self) -> _Event:
        return _Event()


class Second(Accelerator):
    """The second device as ``nmt`` sees it: all that a GPU of NVIDIA has. Its streams are one."""

    copies_aside = skips_updates = True

    def synchronize(self) -> None:
        """Work is done at once."""

    def moved(self, tensor: Tensor) -> Tensor:
        return OnSecond(tensor.clone())

    def fetch_later(self, numbers: Tensor) -> Arriving:
        return Arriving(_bare(numbers).clone(memory_format=torch.contiguous_format), _Event())  # type: ignore[arg-type]

    copying = _Stream()  # type: ignore[assignment]

    def await_copy(self, copied: Any, tensors: Iterable[Tensor]) -> None:
        """Copies are done at once."""

    @contextlib.contextmanager
    def on_copying(self) -> Iterator[None]:
        yield


def _empty(size: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return OnSecond(torch.empty(size, dtype=dtype or torch.get_default_dtype()))


def _empty_strided(size: Any, stride: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
    return OnSecond(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    if isinstance(source, OnSecond) and not isinstance(target, OnSecond):
        note("copy_")
    _bare(target).copy_(_bare(source))
    return target


# Operations that autocast computes in half precision, and in float32, of those that nmt uses; as on a GPU.
_HALF = "mm bmm addmm baddbmm matmul linear conv1d conv2d scaled_dot_product_attention".split()
_WIDE = (
    "softmax.int log_softmax.int layer_norm rms_norm exp log log1p pow.Tensor_Scalar softplus cumsum logsumexp".split()
)


def _autocast(name: str, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    """Return an operation that converts its floating-point arguments, unless they are float64."""
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")
    own = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def converted(value: Any) -> Any:
        narrow = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64
        return value.to(dtype()) if narrow and value.device.type == NAME else value

    def compute(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(own):
            return func(*_mapped(converted, args), **_mapped(converted, kwargs))

    return compute


_libraries: list[torch.library.Library] = []


def install() -> torch.device:
    """Make the device known to torch and to nmt, once a process."""
    if not _libraries:
        _setup_privateuseone_for_python_backend(rename=NAME, backend_module=Module)  # type: ignore[no-untyped-call]
        every = torch.library.Library("_", "IMPL")
        every.fallback(lambda func, *args, **kwargs: _run(func, args, kwargs), "PrivateUse1")
        aten = torch.library.Library("aten", "IMPL")
        aten.impl("empty.memory_format", _empty, "PrivateUse1")
        aten.impl("empty_strided", _empty_strided, "PrivateUse1")
        aten.impl("_copy_from", _copy_from, "PrivateUse1")
        every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
        for names, dtype in ((_HALF, lambda: torch.get_autocast_dtype(NAME)), (_WIDE, lambda: torch.float32)):
            for name in names:
                aten.impl(name, _autocast(name, dtype), "AutocastPrivateUse1")
        _libraries.extend([every, aten])
        kinds.KINDS[NAME] = Second
    return torch.device(NAME, 0)
