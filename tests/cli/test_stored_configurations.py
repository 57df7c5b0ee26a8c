"""What runs leave behind comes back by the real commands."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from nmt.storage.checkpoints import checkpoints_in
from tests.commands import run_copy

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "plugin" / "bag_of_words"
TINY = (
    "model=transformer_tiny model.encoder_layers=1 model.decoder_layers=1 model.d_model=16 model.d_ff=16 "
    "model.num_heads=2 --batch-size 60 --max-update 4 --save-interval-updates 2 --valid-samples 0 --beam 4 --lenpen 0.9 "
    "--no-html --no-count-flops --cpu"
).split()


def start(
    command: str, *arguments: str | Path, cwd: Path, stdin: str = "", status: int = 0
) -> subprocess.CompletedProcess[str]:
    done = run_copy(command, *arguments, cwd=cwd, stdin=stdin.encode())
    assert done.returncode == status, done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, copy_corpus: Path) -> Path:
    """A working directory with a run in it; do not change the run."""
    folder = tmp_path_factory.mktemp("place")
    start("train", copy_corpus, *TINY, "--save-dir", "run", cwd=folder)
    return folder


def stored(folder: Path) -> dict[str, object]:
    tree: dict[str, object] = yaml.safe_load((folder / "config.yaml").read_text())
    return tree


def parameters(run: Path) -> bytes:
    return (checkpoints_in(run)[-1] / "model.safetensors").read_bytes()


def test_a_run_is_repeated_bit_for_bit_from_its_folder(place: Path) -> None:
    start("train", "--config", "run", "--save-dir", "again", cwd=place)
    again, before = stored(place / "again"), stored(place / "run")
    assert again.pop("checkpoint") != before.pop("checkpoint") and again == before
    assert parameters(place / "again") == parameters(place / "run")


def test_a_sweep_from_a_file_has_its_runs_below_the_given_folder(place: Path) -> None:
    line = ["--config", "run/config.yaml", "--save-dir", "sweep", "seed=7,8", "--max-update", "2", "-m"]
    start("train", *line, cwd=place)
    assert sorted(path.name for path in (place / "sweep").glob("seed=*")) == ["seed=7", "seed=8"]
    assert stored(place / "sweep/seed=8")["model"] == stored(place / "run")["model"]


def test_what_cfg_job_prints_is_read_again_with_the_plugin_that_it_names(tmp_path: Path) -> None:
    line = ["x", "--user-dir", PLUGIN, "model=bag_of_words_tiny", "--gru-layers", "3", "--cfg", "job"]
    printed = start("train", *line, cwd=tmp_path).stdout
    comment, _, rest = printed.partition("\n")
    assert comment.startswith("# model=bag_of_words_tiny criterion=") and "\nmodel:\n  name: bag_of_words\n" in rest
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "job.yaml").write_text(printed)
    assert start("train", "--config", "job.yaml", "--cfg", "job", cwd=tmp_path).stdout == rest


def test_a_file_that_is_edited_wrongly_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("training: {max_updates: 3}\n")
    done = start("train", "--config", tmp_path, "--lr", "1", cwd=tmp_path, status=65)
    assert done.stderr.startswith(
        f"nmt-train: {tmp_path}/config.yaml: this version does not know the option training.max"
    )
    assert done.stderr.count("\n") == 1
