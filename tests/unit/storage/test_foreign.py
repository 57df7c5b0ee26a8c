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

from nmt.storage.foreign import corpus_of_fairseq, describe, is_dictionary_of_fairseq


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
    assert f"(opening it would import argparse.Namespace, {os.system.__module__}.system)" in describe(file).replace(
        "copyreg._reconstructor, ", ""
    )
    assert not trace.exists()


def test_what_torch_saved_is_looked_into(file: Path) -> None:
    torch.save({"args": argparse.Namespace(arch="transformer"), "model": {"weight": torch.zeros(2)}}, file)
    said = describe(file)
    assert "argparse.Namespace" in said and "torch._utils._rebuild_tensor_v2" in said
    assert "such files can run code and are never opened (nmt-import reads fairseq" in said


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


def binarised(folder: Path, *names: str) -> Path:
    """A folder with empty files of these names."""
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def test_what_fairseq_preprocess_wrote_is_recognised_with_its_languages(tmp_path: Path) -> None:
    names = ("dict.de.txt", "dict.en.txt", "preprocess.log", "train.de-en.de.bin", "train.de-en.de.idx")
    said = corpus_of_fairseq(binarised(tmp_path / "data-bin", *names))
    assert said is not None
    assert said.startswith("a corpus folder of fairseq (dict.de.txt, train.de-en.de.bin); convert it with nmt-import")
    assert "--source-lang de --target-lang en --output FOLDER" in said


@pytest.mark.parametrize("names", [("dict.de.txt",), ("train.x-y.x.bin", "train.x-y.x.idx")])
def test_dictionaries_or_binaries_alone_are_fairseqs_as_well(names: tuple[str, ...], tmp_path: Path) -> None:
    said = corpus_of_fairseq(binarised(tmp_path / "data-bin", *names))
    assert said is not None and f"({names[0]})" in said


@pytest.mark.parametrize("names", [(), ("dict.txt", "train.bin"), ("train.idx",), ("train.de", "train.en")])
def test_other_folders_are_not_taken_for_fairseqs(names: tuple[str, ...], tmp_path: Path) -> None:
    assert corpus_of_fairseq(binarised(tmp_path / "data", *names)) is None


DICTIONARIES: list[tuple[str, bytes, bool]] = [
    ("pieces and counts", b", 12\nHaus@@ 3\nmadeupword0000 0\n", True),
    ("an overwritten special", b"<unk> 5 #fairseq:overwrite\na 2\n", True),
    ("a carriage return is part of a piece", b"a\r 2\n", True),
    ("pieces alone", b"a\nb\n", False),
    ("scores of sentencepiece", b"<unk>\t0\n,\t-3.1\n", False),
    ("text", b"ein altes Haus\n", False),
    ("nothing", b"", False),
    ("bytes", b"\xff\xfe 1\n", False),
]


@pytest.mark.parametrize(
    ("content", "expected"), [case[1:] for case in DICTIONARIES], ids=[case[0] for case in DICTIONARIES]
)
def test_a_dictionary_of_fairseq_has_a_piece_and_a_count_on_each_line(
    content: bytes, expected: bool, tmp_path: Path
) -> None:
    (tmp_path / "dict.de.txt").write_bytes(content)
    assert is_dictionary_of_fairseq(tmp_path / "dict.de.txt") is expected
