"""The fault catalogue for checkpoints, through the commands that read them; the numbers are those of the catalogue."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.storage.checkpoints import read_checkpoint, read_info, write_checkpoint
from nmt.storage.lock import one_writer
from nmt.storage.run_folder import checkpoints_in, resolve
from tests.commands import run_copy
from tests.faults.parallel_task import outcome
from tests.faults.tiny_runs import nmt_train, refused


@pytest.fixture(scope="module")
def sound(copy_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with checkpoints at 2, 4 and 6; do not write to it."""
    run = tmp_path_factory.mktemp("sound") / "run"
    nmt_train(copy_corpus, run)
    assert [read_info(path).update for path in checkpoints_in(run)] == [2, 4, 6]
    return run


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    """A copy to be spoiled."""
    return shutil.copytree(sound, tmp_path / "run")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def edit_manifest(folder: Path, **facts: Any) -> None:
    tree = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    (folder / "manifest.json").write_text(json.dumps(tree | facts), encoding="utf-8")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda path: flip(path / "model.safetensors"),
    "a file of no bytes": lambda path: (path / "training.json").write_bytes(b""),
    "a file cut short": lambda path: (path / "training.safetensors").write_bytes(b"\0" * 99),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_fault_51_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    damage: Callable[[Path], object], run: Path, sound: Path, copy_corpus: Path
) -> None:
    last = checkpoints_in(run)[-1]
    damage(last)
    said = nmt_train(copy_corpus, run)
    assert f"WARNING | {last}/" in said and "is damaged" in said
    assert "resuming from checkpoint-0001-00000004; the updates after 4 are lost" in said
    weights, expected = (read_checkpoint(checkpoints_in(folder)[-1]).model for folder in (run, sound))
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_fault_52_a_damaged_checkpoint_that_is_named_is_an_error(run: Path, copy_corpus: Path, tmp_path: Path) -> None:
    last = checkpoints_in(run)[-1]
    flip(last / "model.safetensors")
    said = f"{last}/model.safetensors is damaged: its checksum differs"
    assert said in refused("generate", "--path", last, "--cpu", status=65, stdin=b"a\n")
    averaged = ("--inputs", run, "--output", tmp_path / "mean", "--no-validate")
    assert said in refused("average_checkpoints", *averaged, status=65)
    assert said in nmt_train(copy_corpus, tmp_path / "tuned", "--finetune-from-model", last, status=65)
    assert not (tmp_path / "mean").exists() and not list((tmp_path / "tuned").glob("checkpoint-*"))


class Malice:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, (self._path,)


def test_fault_53_a_pickle_is_named_with_what_it_would_import_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(pickle.dumps({"model": Malice(tmp_path / "made")}))
    line = refused("generate", "--path", tmp_path / "model.pt", "--cpu", status=65, stdin=b"a\n")
    assert "pickle" in line and "posix.mkdir" in line
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"<!DOCTYPE html><html>404</html>", "is a web page, probably of a failed download"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS"),
        (b"some text\n", "a checkpoint is a folder written by nmt-train"),
    ],
)
def test_fault_54_a_file_that_is_no_checkpoint_is_recognised(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(content)
    status, message = outcome(lambda: resolve(tmp_path / "model"))
    assert status == 65 and says in message


def test_fault_55_another_architecture_is_refused_by_the_option_that_differs(run: Path, copy_corpus: Path) -> None:
    wider = ("model.hidden_size=12", "--max-update", "8")
    assert "(model.hidden_size: 8 -> 12); choose another --save-dir, " in nmt_train(copy_corpus, run, *wider, status=2)
    said = nmt_train(copy_corpus, run, *wider, "--reset", status=2)
    assert "holds another architecture" in said and "(32, 8) in the checkpoint, (48, 12) in the model" in said


def test_fault_56_a_newer_format_is_named_and_is_no_damage(run: Path, copy_corpus: Path) -> None:
    edit_manifest(checkpoints_in(run)[-1], format=9, written_by="nmt 7")
    says = "was written by nmt 7 in format 9; this is nmt "
    assert says in refused("generate", "--path", checkpoints_in(run)[-1], "--cpu", status=65, stdin=b"a\n")
    assert says in nmt_train(copy_corpus, run, status=65)


@pytest.mark.parametrize(
    ("change", "listed", "flag"),
    [
        (
            ("--seed", "2", "--max-tokens", "100"),
            ["seed: 1 -> 2", "batching.max_tokens: 120 -> 100"],
            "--reset-dataloader",
        ),
        (("--lr", "0.02"), ["optimizer.lr: 0.01 -> 0.02"], "--reset-lr-scheduler"),
    ],
)
def test_fault_57_a_run_with_other_settings_is_refused_with_the_flag_that_goes_on(
    change: tuple[str, ...], listed: list[str], flag: str, run: Path, copy_corpus: Path
) -> None:
    said = nmt_train(copy_corpus, run, *change, "--max-update", "7", status=2)
    assert all(one in said for one in listed), said
    assert f"); choose another --save-dir, or resume with {flag}\n" in said
    assert "resuming although" in nmt_train(copy_corpus, run, *change, "--max-update", "7", flag)


def test_fault_57_a_run_with_other_sentences_is_refused(run: Path, make_copy_corpus: Callable[..., Path]) -> None:
    other = make_copy_corpus(train=601, valid=40, test=40)
    said = nmt_train(other, run, "--max-update", "7", status=2)
    assert "data: the corpus or its vocabulary changed" in said and "--reset-dataloader" in said


def test_fault_58_a_run_goes_on_in_another_number_format_with_a_notice(run: Path, copy_corpus: Path) -> None:
    said = nmt_train(copy_corpus, run, "--precision", "bf16", "--max-update", "7")
    assert "resuming on cpu in bf16" in said and "before, the run computed on cpu in fp32" in said


def test_faults_59_and_60_a_lock_counts_as_long_as_its_process_lives(run: Path, copy_corpus: Path) -> None:
    with one_writer(run):
        said = nmt_train(copy_corpus, run, "--max-update", "7", status=73)
    assert "is being written by process " in said and " since 20" in said and "wait, or use another folder" in said
    assert (run / ".lock").read_text().startswith("process "), "it is left behind, and no obstacle"
    nmt_train(copy_corpus, run, "--max-update", "7")


def spoiled_copy(run: Path, target: Path, **tensors: Any) -> Path:
    """Another checkpoint, with other parameters."""
    stored = read_checkpoint(checkpoints_in(run)[-1])
    write_checkpoint(
        target, model={**stored.model, **tensors}, config=stored.config, info=stored.info, tokenizer=run / "tokenizer"
    )
    return target


def average(*inputs: Path, output: Path, status: int) -> str:
    given = ",".join(map(str, inputs))
    return refused("average_checkpoints", "--inputs", given, "--output", output, "--no-validate", status=status)


def test_fault_61_what_has_no_mean_is_refused_by_file_and_tensor(run: Path, tmp_path: Path) -> None:
    last, mean = checkpoints_in(run)[-1], tmp_path / "mean"
    name = next(iter(read_checkpoint(last).model))
    nan = spoiled_copy(
        run, tmp_path / "nan", **{name: torch.full_like(read_checkpoint(last).model[name], float("nan"))}
    )
    assert f"{nan}: {name} contains NaN or infinity" in average(last, nan, output=mean, status=65)
    number = {"counter": torch.tensor(1)}
    one, two = (spoiled_copy(run, tmp_path / str(n), counter=number["counter"] * n) for n in (1, 2))
    assert f"{two}: the integers of counter differ" in average(one, two, output=mean, status=65)
    wide = spoiled_copy(run, tmp_path / "wide", **{name: torch.zeros(3, 3)})
    assert f"{name} has shape " in average(last, wide, output=mean, status=65)
    assert f"{last} is given twice" in average(last, last, output=mean, status=65)
    assert "absent" in average(last, tmp_path / "absent", output=mean, status=66)
    assert not mean.exists()


def test_fault_61_one_checkpoint_is_copied_with_a_warning(run: Path, tmp_path: Path) -> None:
    last, mean = checkpoints_in(run)[-1], tmp_path / "mean"
    done = run_copy("average_checkpoints", "--inputs", last, "--output", mean, "--no-validate")
    assert done.returncode == 0 and b"WARNING | averaging a single checkpoint: " in done.stderr
    assert torch.equal(*(next(iter(read_checkpoint(path).model.values())) for path in (last, mean)))


def test_fault_62_an_average_that_exists_is_kept_unless_it_may_be_replaced(run: Path, tmp_path: Path) -> None:
    mean = spoiled_copy(run, tmp_path / "mean")
    before = (mean / "manifest.json").read_bytes()
    assert "exists and is not empty; choose another --output, or add --overwrite" in average(
        run, output=mean, status=73
    )
    assert (mean / "manifest.json").read_bytes() == before
    line = ("--inputs", run, "--output", mean, "--no-validate", "--overwrite")
    assert run_copy("average_checkpoints", *line).returncode == 0
    assert (mean / "manifest.json").read_bytes() != before


@pytest.mark.parametrize("how", ["dots", "link"])
def test_fault_63_a_manifest_that_leads_out_of_its_folder_is_refused(how: str, run: Path, tmp_path: Path) -> None:
    last = checkpoints_in(run)[-1]
    (tmp_path / "secret").write_bytes(b"1")
    files = json.loads((last / "manifest.json").read_text(encoding="utf-8"))["files"]
    name = "../../secret" if how == "dots" else "link"
    if how == "link":
        (last / "link").symlink_to(tmp_path / "secret")
    edit_manifest(last, files={**files, name: {"bytes": 1, "sha256": "0"}})
    line = refused("generate", "--path", last, "--cpu", status=65, stdin=b"a\n")
    assert f"manifest.json names '{name}', which lies outside the folder" in line
