"""Finding the C part, and doing without it."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt.config.choices import NumberFormat, Precision
from nmt.engines import choose_format
from nmt.errors import UsageError
from nmt.native.library import PROCESSORS, SWITCH, forget, library, processor
from tests.unit.native.levels import needs_library

CPU, GPU = torch.device("cpu"), torch.device("cuda")
BUILT = platform.system() == "Linux" and shutil.which("cc") is not None


@pytest.fixture
def switch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()
    library()


@pytest.mark.skipif(not BUILT, reason="no C compiler")
def test_it_is_built_where_there_is_a_compiler() -> None:
    assert library() is not None, "pip install builds nmt/native/*.c"
    assert processor() in PROCESSORS


@needs_library
@pytest.mark.parametrize("name", PROCESSORS)
def test_the_switch_names_the_most_that_is_used(switch: pytest.MonkeyPatch, name: str) -> None:
    switch.setenv(SWITCH, name)
    found = processor()
    assert found is not None and PROCESSORS.index(found) <= PROCESSORS.index(name)


def test_it_can_be_switched_off(switch: pytest.MonkeyPatch) -> None:
    switch.setenv(SWITCH, "off")
    assert library() is None and processor() is None
    for wanted in (NumberFormat.int8, NumberFormat.float16):
        with pytest.raises(
            UsageError, match=f"dtype {wanted.value} on a CPU needs the C part of nmt.*use --dtype float32"
        ):
            choose_format(wanted, Precision.fp32, CPU)
    assert choose_format(NumberFormat.bfloat16, Precision.fp32, CPU) is NumberFormat.bfloat16


def test_int8_is_for_cpus() -> None:
    with pytest.raises(UsageError, match="dtype int8 needs a CPU; on a GPU, use --dtype bfloat16 or float16"):
        choose_format(NumberFormat.int8, Precision.fp32, GPU)


def test_without_a_format_the_precision_says_it() -> None:
    assert choose_format(None, Precision.fp32, CPU) is NumberFormat.float32
    assert choose_format(None, Precision.auto, CPU) is NumberFormat.float32
    assert choose_format(None, Precision.bf16, CPU) is NumberFormat.bfloat16
    assert choose_format(NumberFormat.float32, Precision.bf16, CPU) is NumberFormat.float32
    with pytest.raises(UsageError, match="precision fp16 is for GPUs"):
        choose_format(None, Precision.fp16, CPU)


def test_another_word_for_the_switch_is_refused(switch: pytest.MonkeyPatch) -> None:
    switch.setenv(SWITCH, "avx-512")
    with pytest.raises(UsageError, match="NMT_NATIVE=avx-512 is unknown; choose one of off, portable, avx2"):
        library()


@needs_library
def test_what_was_built_from_other_sources_is_not_used(
    switch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    switch.setattr("nmt.native.library.sources", lambda: "others")
    assert library() is None
    assert "was built from other sources and is ignored; install nmt again" in caplog.text


@needs_library
def test_without_a_file_torch_computes(
    switch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    switch.setattr("nmt.native.library.FOLDER", tmp_path)
    assert library() is None
    (tmp_path / "_native.cpython-311-x86_64-linux-gnu.so").touch()
    forget()
    assert library() is None and "of an earlier version and is ignored" in caplog.text
    (tmp_path / "_native.so").write_bytes(b"of another system")
    forget()
    assert library() is None
