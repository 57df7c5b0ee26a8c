"""What a test does to the process of a command before it begins: see ``before`` of ``tests.commands.run_copy``."""

from __future__ import annotations

import ctypes
import os

WITHOUT_PRIVILEGES = "from tests.faults.surroundings import bound_by_permissions; bound_by_permissions()\n"
_CAPABILITIES_VERSION_3 = 0x20080522


def bound_by_permissions() -> None:
    """Root may write to what is closed to everybody; a process without its capabilities may not. It keeps its number, for
    Python itself may lie where only root reads."""
    if os.geteuid() != 0:
        return
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION_3, 0)
    none = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capset(ctypes.byref(header), ctypes.byref(none)):
        raise OSError(ctypes.get_errno(), "capset failed")
