"""Build the C part of nmt. Everything else about the package is in pyproject.toml."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent
SOURCES = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("nmt/native/*.c"))
HEADERS = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("nmt/native/*.h"))
# nmt/native/library.py compares this checksum with that of the sources in its folder.
BUILT_FROM = hashlib.sha256(b"".join((HERE / path).read_bytes() for path in sorted([*SOURCES, *HEADERS]))).hexdigest()


class BuildLibrary(build_ext):
    """Build a library for ctypes. It does not use Python's C API, so its file name has no Python version."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"


class PlatformWheel(bdist_wheel):
    """A wheel for every Python on one platform."""

    def get_tag(self) -> tuple[str, str, str]:
        *_, platform = super().get_tag()
        return "py3", "none", platform


native = Extension(
    "nmt.native._native",
    SOURCES,
    depends=HEADERS,
    define_macros=[("NMT_SOURCES", f'"{BUILT_FROM}"')],
    extra_compile_args=["-O3", "-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"],
    libraries=["m"],
    # Without a C compiler, nmt works but translates more slowly. A wheel for others must have it.
    optional="NMT_REQUIRE_NATIVE" not in os.environ,
)

commands: dict[str, Any] = {"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel}
setup(ext_modules=[native], cmdclass=commands)
