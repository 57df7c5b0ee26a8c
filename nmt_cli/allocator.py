"""Memory of tensors, arranged before torch is loaded.

glibc returns large blocks to the system as soon as they are free, and asks for them again a moment later: every tensor of
a training step is then paid for with page faults. Two thresholds make it keep them, and large pages (where the kernel
grants them on request) make the rest cheap. glibc reads its settings when a process starts, so the command starts itself
once more with them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping

VARIABLE = "GLIBC_TUNABLES"
SWITCH = "NMT_MALLOC"  # system: leave everything as it is
SETTINGS = {
    "glibc.malloc.hugetlb": "1",  # ask for large pages by madvise
    "glibc.malloc.mmap_threshold": str(2**32 - 1),
    "glibc.malloc.trim_threshold": str(2**33),
}
OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


def arrange_memory(module: str) -> None:
    """Replace this process by the same command with the settings, if they are missing and can be set.

    Only a process that was started as the command ``module`` is replaced: not a notebook or a test that calls it.
    """
    if not _is_command(module) or not _has_glibc():
        return
    settings = wanted(os.environ)
    if settings is None or settings == os.environ.get(VARIABLE):
        return
    with contextlib.suppress(OSError):  # a system that forbids it: everything works as well, only slower
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, VARIABLE: settings})


def wanted(environment: Mapping[str, str]) -> str | None:
    """The value that the variable should have, or None where memory is somebody else's affair.

    Settings of malloc that a user made stay, and so does another allocator.
    """
    given = environment.get(VARIABLE, "")
    if environment.get(SWITCH) == "system" or any(
        name in environment.get("LD_PRELOAD", "") for name in OTHER_ALLOCATORS
    ):
        return None
    if "glibc.malloc." in given:
        return None
    return ":".join([*filter(None, [given]), *(f"{key}={value}" for key, value in SETTINGS.items())])


def _is_command(module: str) -> bool:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    script = os.path.basename(getattr(main, "__file__", None) or "")
    return (spec is not None and spec.name == module) or script == f"nmt-{module.rpartition('.')[2]}"


def _has_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc ")
    except (AttributeError, ValueError, OSError):  # Windows, macOS, musl
        return False
