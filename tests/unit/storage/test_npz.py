"""Archives of numpy: what they hold, and what must never come out of them."""

from __future__ import annotations

import io
import random
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nmt.errors import DataError, MissingInputError
from nmt.storage.npz import read_npz

ARRAYS = {
    "float32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "float16": np.arange(4, dtype=np.float16),
    "int8": np.frombuffer(b"text\0", dtype=np.int8),
    "by columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 4), dtype=np.float32),
}


def saved(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def member(folder: Path, content: bytes, how: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(folder / "a.npz", "w", how) as archive:
        archive.writestr("x.npy", content)
    return folder / "a.npz"


def npy(header: str) -> bytes:
    text = (header + " " * (-(len(header) + 11) % 64) + "\n").encode("latin1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def test_arrays_come_back_as_they_were_written(tmp_path: Path) -> None:
    found = read_npz(saved(tmp_path, **ARRAYS))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert not found[name].flags.writeable


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }"), "should hold"),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4), }"), "should hold|shape"),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + b"\x80\x04N.", "cannot read as numbers"),
        (
            npy("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }") + bytes(4),
            "which this machine cannot read as numbers",
        ),
        (npy("__import__('os').system('touch run')"), "damaged"),
        (npy("{"), "damaged"),
        (b"\x93NUMPY\x07\x00" + bytes(100), "unknown version 7.0"),
        (b"not an array", "damaged"),
        (b"", "damaged"),
    ],
)
def test_a_member_that_is_no_array_of_numbers_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=says):
        read_npz(member(tmp_path, content))
    assert not (tmp_path / "run").exists()


def test_compressed_members_are_refused_since_they_may_grow_beyond_all_bounds(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(10**6))
    with pytest.raises(DataError, match="compressed or encrypted; only plain members are read"):
        read_npz(member(tmp_path, file.getvalue(), zipfile.ZIP_DEFLATED))


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("weights")
    (tmp_path / "empty").touch()
    with pytest.raises(DataError, match="is not a numpy archive"):
        read_npz(tmp_path / "text")
    with pytest.raises(DataError, match="it is empty"):
        read_npz(tmp_path / "empty")
    with pytest.raises(MissingInputError, match="cannot read .*nothing"):
        read_npz(tmp_path / "nothing")


def test_damage_is_one_clear_error_or_does_not_matter(tmp_path: Path) -> None:
    """Cut off, or with a byte changed, anywhere."""
    path = saved(tmp_path, **ARRAYS)
    whole, chance = path.read_bytes(), random.Random(1)
    for _ in range(300):
        place = chance.randrange(len(whole))
        flipped = whole[:place] + bytes([whole[place] ^ (1 << chance.randrange(8))]) + whole[place + 1 :]
        for damaged in (whole[:place], flipped):
            path.write_bytes(damaged)
            try:
                found = read_npz(path)
            except DataError:
                continue
            for name, array in ARRAYS.items():
                if name in found:
                    np.testing.assert_array_equal(found[name], array)
