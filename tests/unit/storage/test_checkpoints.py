"""Checkpoint folders: what comes back, and what is refused."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from nmt.errors import DataError, MissingInputError, StorageError
from nmt.storage import files
from nmt.storage.checkpoints import (
    CheckpointInfo,
    TrainingState,
    drop_training_state,
    read_checkpoint,
    verify_checkpoint,
    write_checkpoint,
)
from nmt.storage.run_folder import (
    BEST,
    LAST,
    MODEL,
    checkpoint_name,
    checkpoints_in,
    pointed,
    read_config,
    resolve,
    set_pointer,
    tokenizer_folder,
)
from nmt.storage.tensor_file import mapped_tensors

CONFIG = {"model": {"name": "toy", "width": 3}, "seed": 1}


def save(run: Path, update: int, *, epoch: int = 1, value: float = 1.0, reasons: tuple[str, ...] = ("update",)) -> Path:
    path = run / checkpoint_name(epoch, update)
    write_checkpoint(
        path,
        model={"weight": torch.full((2, 3), value), "count": torch.tensor([7])},
        config=CONFIG,
        info=CheckpointInfo(update, epoch, reasons, {"loss": 2.5}),
        training=TrainingState({"0.exp_avg": torch.ones(3)}, {"patience": 2, "rate": 0.1}),
    )
    return path


def test_a_checkpoint_comes_back_as_written(tmp_path: Path) -> None:
    stored = read_checkpoint(save(tmp_path, 5), training=True)
    assert stored.config == CONFIG and stored.info == CheckpointInfo(5, 1, ("update",), {"loss": 2.5})
    assert torch.equal(stored.model["weight"], torch.ones(2, 3)) and stored.training is not None
    assert stored.training.values == {"patience": 2, "rate": 0.1}


def test_tied_parameters_are_stored_under_both_names(tmp_path: Path) -> None:
    weight = torch.randn(4, 2)
    write_checkpoint(tmp_path / "c", model={"a": weight, "b": weight}, config=CONFIG, info=CheckpointInfo(1, 1))
    stored = read_checkpoint(tmp_path / "c")
    assert torch.equal(stored.model["a"], weight) and torch.equal(stored.model["b"], weight)


def test_parameters_are_mapped_with_the_numbers_that_were_written(tmp_path: Path) -> None:
    types = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    written = {str(kind): torch.randn(3, 5).to(kind) for kind in types} | {"count": torch.tensor(7)}
    write_checkpoint(tmp_path / "c", model=written, config=CONFIG, info=CheckpointInfo(1, 1))
    arrays = mapped_tensors(tmp_path / "c" / MODEL)
    assert arrays.keys() == written.keys()
    for name, tensor in written.items():
        assert arrays[name].flags.aligned and np.array_equal(arrays[name], tensor.double().numpy())


def test_a_flipped_byte_is_noticed_before_parameters_are_mapped(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    content = bytearray((path / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (path / "model.safetensors").write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"model\.safetensors"):
        verify_checkpoint(path)


def test_checkpoints_are_listed_oldest_first_and_unfinished_ones_left_out(tmp_path: Path) -> None:
    for update in (300, 20, 1000):
        save(tmp_path, update)
    (tmp_path / checkpoint_name(1, 2000)).mkdir()
    assert [path.name[-8:] for path in checkpoints_in(tmp_path)] == ["00000020", "00000300", "00001000"]


def test_a_run_folder_means_its_best_checkpoint_then_its_last(tmp_path: Path) -> None:
    first, second = save(tmp_path, 1), save(tmp_path, 2)
    assert resolve(tmp_path) == second
    set_pointer(tmp_path, LAST, second)
    set_pointer(tmp_path, BEST, first)
    assert resolve(tmp_path) == first and pointed(tmp_path, LAST) == second


def test_a_pointer_to_a_removed_checkpoint_is_ignored(tmp_path: Path) -> None:
    last = save(tmp_path, 1)
    set_pointer(tmp_path, BEST, tmp_path / checkpoint_name(1, 9))
    assert pointed(tmp_path, BEST) is None and resolve(tmp_path) == last


def test_a_pointer_may_not_leave_the_run_folder(tmp_path: Path) -> None:
    (tmp_path / "best.json").write_text('{"checkpoint": "../elsewhere"}')
    with pytest.raises(DataError, match="best.json is damaged"):
        pointed(tmp_path, BEST)


@pytest.mark.parametrize("name", ["model.safetensors", "config.yaml", "training.safetensors", "training.json"])
def test_a_flipped_byte_in_any_file_is_noticed(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, 1)
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(bytes(content))
    with pytest.raises(DataError, match=name):
        read_checkpoint(path, training=True)


def test_a_run_may_drop_the_training_state_of_a_checkpoint_that_is_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, sha256, dropped = save(tmp_path, 1), files.sha256, list[Path]()

    def meanwhile(file: Path) -> str:
        if not dropped:
            dropped.append(file)
            drop_training_state(path)
        return sha256(file)

    monkeypatch.setattr(files, "sha256", meanwhile)
    stored = read_checkpoint(path)
    assert dropped and not (path / "training.json").exists() and torch.equal(stored.model["weight"], torch.ones(2, 3))


def test_a_disk_that_gets_full_with_the_tokenizer_is_status_74(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "pair.json").write_text("{}")
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(StorageError, match="No space left on device; free some space") as caught:
        write_checkpoint(
            tmp_path / "c", model={}, config=CONFIG, info=CheckpointInfo(1, 1), tokenizer=tmp_path / "tokenizer"
        )
    assert caught.value.exit_status == 74 and not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>404", "web page"),
        (b"PK\x03\x04archive/data.pkl", "pickled"),
        (b"\x80\x02}q", "pickled"),
        (b"hello", "a checkpoint is a folder"),
    ],
)
def test_what_is_not_a_checkpoint_is_recognised(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        resolve(tmp_path / "file")


def test_an_empty_folder_and_a_missing_one_are_status_66(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(MissingInputError) as caught:
            resolve(path)
        assert caught.value.exit_status == 66


@pytest.mark.parametrize(
    "config",
    [
        {"_target_": "os.system"},
        {"model": {"_target_": "os.system"}},
        {"model": {"parts": [[1], {"inner": [{"_target_": "os.system"}]}]}},
    ],
)
def test_a_configuration_that_names_code_is_refused(tmp_path: Path, config: dict[str, Any]) -> None:
    write_checkpoint(tmp_path / "c", model={"a": torch.ones(1)}, config=config, info=CheckpointInfo(1, 1))
    with pytest.raises(DataError, match="_target_"):
        read_checkpoint(tmp_path / "c")


def test_a_path_may_be_called_like_a_key_that_is_refused(tmp_path: Path) -> None:
    config = {
        "data": ["data-bin/low_target_dropout", "_target_"],
        "checkpoint": {"save_dir": "runs/low_target_dropout"},
    }
    write_checkpoint(tmp_path / "c", model={"a": torch.ones(1)}, config=config, info=CheckpointInfo(1, 1))
    assert read_checkpoint(tmp_path / "c").config == config


def test_a_configuration_that_is_missing_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"config\.yaml is missing"):
        read_config(tmp_path)


def test_the_tokenizer_stands_in_the_checkpoint_or_beside_it(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    with pytest.raises(MissingInputError, match="tokenizer"):
        tokenizer_folder(path)
    (tmp_path / "tokenizer").mkdir()
    assert tokenizer_folder(path) == tmp_path / "tokenizer"
    (path / "tokenizer").mkdir()
    assert tokenizer_folder(path) == path / "tokenizer"


def test_tensors_of_every_type_and_layout_come_back_as_they_were(tmp_path: Path) -> None:
    """Read by safetensors' own reader; odd numbers of small elements stand before large ones in the names' order."""
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {
        f"{number}": torch.arange(3).to(dtype)
        for number, dtype in enumerate([torch.bool, torch.int8, torch.uint8, torch.bfloat16, torch.float16])
    }
    wide = (torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.complex64)
    tensors |= {f"wide {dtype}": torch.arange(5).to(dtype) for dtype in wide}
    tensors |= {f"{dtype}": torch.arange(3).to(dtype) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)}
    tensors |= {
        "double": torch.tensor(0.1, dtype=torch.float64),
        "number": torch.tensor(7.0),
        "none": torch.empty(0, 3),
    }
    tensors |= {"base": base, "tied": base, "part": base[1:3], "turned": base.t(), '\u00e4 "quoted"': base[:, ::2]}
    path = tmp_path / "checkpoint"
    write_checkpoint(path, model=tensors, config={}, info=CheckpointInfo(1, 1))
    found = safetensors.torch.load_file(path / "model.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape
        assert found[name].tolist() == tensor.tolist()


def test_a_tensor_that_the_format_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot hold tensor 'wide', of type torch.complex128"):
        write_checkpoint(
            tmp_path / "c", model={"wide": torch.zeros(1, dtype=torch.complex128)}, config={}, info=CheckpointInfo(1, 1)
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_writing_takes_no_copies_of_what_is_written(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, torch\n"
        "from nmt.storage.checkpoints import CheckpointInfo, write_checkpoint\n"
        "from nmt.reporting.resources import peak_memory\n"
        "tensors = {str(number): torch.ones(2_000_000) for number in range(10)}\n"
        "before = peak_memory(torch.device('cpu'))\n"
        "write_checkpoint(pathlib.Path(sys.argv[1]), model=tensors, config={}, info=CheckpointInfo(1, 1))\n"
        "print(peak_memory(torch.device('cpu')) - before)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "c")], check=True, capture_output=True, text=True
    )
    assert int(result.stdout) < 40_000_000, "of 80 MB"


def test_a_checkpoint_by_another_toolkits_name_is_answered_with_the_run_folder(tmp_path: Path) -> None:
    set_pointer(tmp_path, LAST, save(tmp_path, 1))
    with pytest.raises(
        MissingInputError, match=rf"checkpoint_best.pt does not exist .*; the checkpoints in {tmp_path} are f"
    ):
        resolve(tmp_path / "checkpoint_best.pt")
    with pytest.raises(MissingInputError, match=r"does not exist \(working directory: [^;]*\)$"):
        resolve(tmp_path / "nothing" / "checkpoint_best.pt")
