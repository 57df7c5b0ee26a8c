"""Every kind of processor that products are written for, as far as this machine has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nmt.native.library import PROCESSORS, library, processor

LIBRARY = library()
needs_library = pytest.mark.skipif(LIBRARY is None, reason="the C part was not built: no C compiler")


@pytest.fixture(params=PROCESSORS)
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    if LIBRARY is None:
        pytest.skip("the C part was not built: no C compiler")
    wanted = PROCESSORS.index(request.param)
    try:
        if LIBRARY.choose_processor(wanted) != wanted:
            pytest.skip(f"this processor is no {request.param}")
        yield request.param
    finally:
        LIBRARY.choose_processor(PROCESSORS.index(processor() or PROCESSORS[0]))
