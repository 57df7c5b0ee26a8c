"""What runs leave behind comes back by the real commands: a run from its file, a translation as the model was validated."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from nmt.search.config import BeamConfig, GreedyConfig
from nmt.storage.run_folder import checkpoints_in
from tests.commands import run_copy
from tests.tiny_models import write_tiny_model

PLUGIN = Path(__file__).resolve().parents[2] / "examples" / "plugin" / "bag_of_words"
TINY = (
    "model=transformer_tiny model.encoder_layers=1 model.decoder_layers=1 model.d_model=16 model.d_ff=16 "
    "model.num_heads=2 --batch-size 60 --max-update 4 --save-interval-updates 2 --valid-samples 0 --beam 4 --lenpen 0.9 "
    "--no-html --no-count-flops --cpu"
).split()
SAID = "searching as the model was validated: beam, beam_size=4, lenpen=0.9\n"


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
    assert sorted(path.name for path in (place / "sweep").glob("seed-*")) == ["seed-7", "seed-8"]
    assert stored(place / "sweep/seed-8")["model"] == stored(place / "run")["model"]


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


def test_a_model_is_translated_with_as_it_was_validated(place: Path) -> None:
    assert SAID in start("generate", "--path", "run", "--cpu", cwd=place, stdin="a b\n").stderr
    done = start("generate", "--path", "run", "--search", "greedy", "--cpu", cwd=place, stdin="a b\n")
    assert "validated" not in done.stderr
    done = start("generate", "--path", "run", "--beam", "2", "--cfg", "job", "-p", "search", cwd=place)
    assert yaml.safe_load(done.stdout)["beam_size"] == 2 and yaml.safe_load(done.stdout)["lenpen"] == 0.9


def test_an_average_carries_the_search(place: Path) -> None:
    start("average_checkpoints", "--inputs", "run", "--output", "mean", "--no-validate", cwd=place)
    assert SAID in start("generate", "--path", "mean", "--cpu", cwd=place, stdin="a b\n").stderr


def test_each_job_of_a_sweep_over_models_has_the_search_of_its_own(place: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a b\n")
    other = write_tiny_model(tmp_path / "other", updates=0, search=GreedyConfig(max_len_b=2))
    line = [f"path={place / 'run'},{other}", "--input", "lines", "--output", "out${hydra:job.num}", "--cpu", "-m"]
    done = start("generate", *line, cwd=tmp_path)
    assert [text.partition("validated: ")[2] for text in done.stderr.splitlines() if "validated: " in text] == [
        "beam, beam_size=4, lenpen=0.9",
        "greedy, max_len_b=2",
    ]
    assert (tmp_path / "out0").is_file() and (tmp_path / "out1").is_file()


def test_a_stored_search_that_does_not_suit_is_named_before_the_complaint(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", updates=0, search=GreedyConfig())
    done = start("generate", "--path", model, "--mbr", "chrf", cwd=tmp_path, status=2)
    said, complaint = done.stderr.splitlines()
    assert said.endswith("searching as the model was validated: greedy")
    assert complaint == (
        "nmt-generate: --mbr needs several hypotheses per line, but the search finds 1; use --search beam or sampling"
    )


def test_references_are_scored_without_what_scoring_takes_no_account_of(tmp_path: Path) -> None:
    search = BeamConfig(coverage_penalty=0.2, no_repeat_ngram=3, lenpen=0.0)
    model = write_tiny_model(tmp_path / "model", updates=0, search=search)
    (tmp_path / "pairs").write_text("ein mann\ta man\n")
    line = ["--path", model, "--input", "pairs", "--input-format", "tsv", "--format", "jsonl", "--score-reference"]
    assert "beam, lenpen=0\n" in start("generate", *line, cwd=tmp_path).stderr
    done = start("generate", *line, "--coverage-penalty", "0.2", cwd=tmp_path, status=2)
    assert "--score-reference does not use --coverage-penalty; omit it" in done.stderr
