"""Recognising files that are not ours: nothing in them is ever run."""

from __future__ import annotations

import argparse
import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch

from nmt.storage.foreign import describe


class Evil:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.trace}",)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "model.pt"


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_says_what_it_would_import_and_runs_nothing(protocol: int, file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    file.write_bytes(pickle.dumps([Evil(trace), argparse.Namespace(a=1), Evil(trace)], protocol=protocol))
    assert f"(to open it would import argparse.Namespace, {os.system.__module__}.system)" in describe(file).replace(
        "copyreg._reconstructor, ", ""
    )
    assert not trace.exists()


def test_what_torch_saved_is_looked_into(file: Path) -> None:
    torch.save({"args": argparse.Namespace(arch="transformer"), "model": {"weight": torch.zeros(2)}}, file)
    said = describe(file)
    assert "argparse.Namespace" in said and "torch._utils._rebuild_tensor_v2" in said
    assert said.endswith("such files can run code and are never opened")


def test_no_more_than_a_few_imports_are_shown(file: Path) -> None:
    file.write_bytes(
        pickle.dumps([getattr(os.path, name) for name in "join split exists isdir isfile basename".split()])
    )
    assert " and 1 more)" in describe(file)


def test_a_pickle_that_is_cut_off_or_no_pickle_is_still_named(file: Path) -> None:
    file.write_bytes(pickle.dumps(argparse.Namespace(a=1), protocol=4)[:-10])
    assert "argparse.Namespace" in describe(file)
    file.write_bytes(b"\x80\xff\xff\xff")
    assert describe(file).startswith("a pickled file of another toolkit; ")
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("readme.txt", "no pickle here")
    assert describe(file).startswith("a pickled file of another toolkit; ")
    whole = io.BytesIO()
    torch.save(torch.zeros(3), whole)
    file.write_bytes(whole.getvalue()[:200])
    assert describe(file).startswith("a pickled file of another toolkit")


def test_any_other_file_is_a_file(file: Path) -> None:
    file.write_bytes(b"")
    assert describe(file) == "a file"
