"""The second line of ``--version``: what nmt runs on."""

from __future__ import annotations

import platform
from importlib import metadata

from nmt.errors import NMTError


def versions() -> str:
    """Describe what nmt runs on, without importing torch."""
    from nmt.native.library import processor

    packages = ", ".join(f"{name} {_version(name)}" for name in ("torch", "hydra-core"))
    try:
        instructions = processor()
    except NMTError as error:
        c_part = str(error)
    else:
        c_part = f"used, with {instructions} instructions" if instructions else "not built here, or switched off"
    return f"Python {platform.python_version()}, {packages}; C part: {c_part}"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of an unknown version"
