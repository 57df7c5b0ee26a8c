"""Every kind of processor that products are written for: as this machine has it, or with its instructions written out."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmt.native import library as native
from nmt.native.library import FOLDER, PROCESSORS, library, processor
from tests.sharing import one_at_a_time

LIBRARY = library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="the C part was not built: no C compiler")
INSTRUCTIONS = Path(__file__).with_name("every_processor.h")
BUILD = FOLDER.parents[1] / "build"  # of this checkout
OPTIONS = ["-shared", "-fPIC", "-O2", "-fno-strict-aliasing", "-Wno-psabi", "-fopenmp-simd", "-ffp-contract=fast"]


@functools.cache
def written_out() -> ctypes.CDLL | None:
    """A library that takes itself to be on the largest processor; None where it cannot be made."""
    if shutil.which("gcc") is None or processor() in (None, "portable"):
        return None
    sources = sorted(FOLDER.glob("*.c"))
    given = [*OPTIONS, *(path.read_text() for path in (*sources, *sorted(FOLDER.glob("*.h")), INSTRUCTIONS))]
    name = hashlib.sha256("".join(given).encode()).hexdigest()[:16]
    path = BUILD / f"every_processor_{name}.so"
    BUILD.mkdir(exist_ok=True)
    with one_at_a_time(path.with_suffix(".lock")):
        if not path.exists():  # ten seconds, once for all processes that test
            made = path.with_suffix(".partial")
            command = ["gcc", *OPTIONS, '-DNMT_SOURCES="tests"', "-include", INSTRUCTIONS, "-o", made, *sources]
            done = subprocess.run([*command, "-lm", "-lpthread"], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            made.replace(path)
    return ctypes.CDLL(str(path))


@pytest.fixture(params=PROCESSORS)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if LIBRARY is None:
        pytest.skip("the C part was not built: no C compiler")
    wanted = PROCESSORS.index(request.param)
    try:
        if LIBRARY.choose_processor(wanted) != wanted:
            other = written_out()
            found = None if other is None else native._limited(other, request.param)
            if found is None or found[1] != request.param:
                pytest.skip(f"this processor is no {request.param}, and cannot be made to look like one")
            monkeypatch.setattr(native, "_load", lambda: found)
        yield request.param
    finally:
        monkeypatch.undo()
        LIBRARY.choose_processor(PROCESSORS.index(processor() or PROCESSORS[0]))
