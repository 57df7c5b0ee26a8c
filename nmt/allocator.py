"""Set what a process keeps in CPU memory: the blocks of freed tensors, and few kernels.

By default glibc's malloc returns large blocks to the system as soon as they are free, and requests them again a moment
later, so every tensor of a training step costs page faults. Huge pages make the kept blocks cheaper to address.

oneDNN makes a kernel for each shape, and keeps the last 1,024, though few batches repeat a shape. Processes that train
recurrent layers grew by more than a gigabyte.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Mapping

SWITCH, _TUNABLES, _PRELOADED = VARIABLES = ("NMT_MALLOC", "GLIBC_TUNABLES", "LD_PRELOAD")
_OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of <malloc.h>
_MADV_HUGEPAGE = 14  # of <sys/mman.h>
_HUGE_PAGE = 2**21  # bytes
KERNELS = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY")  # the second is its older name
FEW_KERNELS = 64  # enough for several batches


def keep_freed_memory() -> bool:
    """Let malloc take all blocks from the heap, in huge pages if the kernel has some, and return none to the system. Return
    whether that was set.

    This holds for the process and its copies. ``give_back`` of ``nmt.reporting.resources`` still returns memory.
    """
    if user_has_decided(os.environ) or platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    kept = bool(libc.mallopt(_M_MMAP_MAX, 0) and libc.mallopt(_M_TRIM_THRESHOLD, -1))
    if kept:
        _ask_for_huge_pages(libc)
    return kept


def _ask_for_huge_pages(libc: ctypes.CDLL) -> None:
    """Reserve addresses for half of the machine's memory on the heap; they take memory once they are written to."""
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.free.argtypes = [ctypes.c_void_p]
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    if start := libc.malloc(size):  # null if a limit forbids this much address space
        within = -start % _HUGE_PAGE
        libc.madvise(start + within, size - within, _MADV_HUGEPAGE)
        libc.free(start)


def keep_few_kernels() -> None:
    """Limit the kernels that oneDNN keeps, unless the user set a limit. oneDNN reads it before its first kernel."""
    if not any(name in os.environ for name in KERNELS):
        os.environ[KERNELS[0]] = str(FEW_KERNELS)


def user_has_decided(environment: Mapping[str, str]) -> bool:
    """Whether the user chose how memory is kept: ``NMT_MALLOC=system``, settings of malloc, or another allocator."""
    return (
        environment.get(SWITCH) == "system"
        or "glibc.malloc." in environment.get(_TUNABLES, "")
        or any(name in environment.get(_PRELOADED, "") for name in _OTHER_ALLOCATORS)
    )
