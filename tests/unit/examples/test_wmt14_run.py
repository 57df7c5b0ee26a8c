"""The script of the example from archives to scores, with 2,000 pairs, a small model and a few updates."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nmt.storage.run_folder import checkpoints_in
from tests.unit.examples.wmt14_archives import FOLDER, extract, write_archives

ROOT = Path(__file__).resolve().parents[3]
SMALL = (
    "model.d_model=16 model.d_ff=32 model.num_heads=2 model.encoder_layers=1 model.decoder_layers=1 "
    "batching.max_tokens=400 batching.tokens_per_update=1600 scheduler.warmup_updates=2 device.name=cpu "
    "checkpoint.save_interval_minutes=null checkpoint.save_interval_updates=1"
).split()


def run(folder: Path, *words: str, **variables: str) -> str:
    """What the script said."""
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
        "ARCHIVES": str(folder / "archives"),
        "ARCHIVE_LIST": str(folder / "archives/list.json"),
        "OFFLINE": "1",
        "PIECES": "200",
        "WORKERS": "1",
    }
    done = subprocess.run(
        ["bash", str(FOLDER / "run.sh"), *words],
        cwd=folder,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def spoil(folder: Path) -> None:
    """A text in which three pairs are none: one has no source, one is not UTF-8, one stands in the validation set."""
    archive = folder / "archives/dev.tgz"
    members = extract.TEXTS["en-de"][3].members("en-de")
    valid = {language: folder / f"valid.{language}" for language in members}
    extract.copy_members(archive, {members[language]: path for language, path in valid.items()})
    for language, first in (("en", b""), ("de", b"a")):
        path = folder / f"runs/en-de/text/commoncrawl.{language}"
        lines = path.read_bytes().split(b"\n")
        lines[:3] = [first, b"\xff", valid[language].read_bytes().split(b"\n")[0]]
        path.write_bytes(b"\n".join(lines))


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_base_goes_from_archives_to_scores_and_on_with_another_number_of_processes(tmp_path: Path) -> None:
    write_archives(tmp_path / "archives", "en-de", 2000)
    extract.main(["en-de", str(tmp_path / "archives"), str(tmp_path / "runs/en-de/text")])
    spoil(tmp_path)
    said = run(tmp_path, "base", "en-de", "runs", *SMALL, "--dry-run")
    assert "4 micro-batches of up to 400 tokens on 1 process: 1,600 tokens" in said
    assert not (tmp_path / "runs/en-de/base").exists()
    with gzip.open(tmp_path / "runs/en-de/dropped.tsv.gz", "rt", encoding="utf-8") as file:
        reasons = [line.split("\t")[0] for line in file]
    assert reasons == ["empty source", "bytes that are not text", "also in a validation or test split"]

    output = tmp_path / "runs/en-de/base"
    run(tmp_path, "base", "en-de", "runs", *SMALL, "--max-update", "3")
    said = run(tmp_path, "base", "en-de", "runs", *SMALL, "--max-update", "7", DEVICES="2")
    assert "resumed after update 3" in said and "an update had" not in said
    assert "averaging 5 checkpoints: checkpoint-0001-00000003" in said
    assert [int(path.name[-8:]) for path in checkpoints_in(output / "run")][-1] == 7
    config = yaml.safe_load((output / "run/config.yaml").read_text(encoding="utf-8"))
    assert (config["model"]["dropout"], config["scheduler"]["name"]) == (0.1, "noam")
    scores = json.loads((output / "score.json").read_text(encoding="utf-8"))
    assert [one["metric"] for one in scores["scores"]] == ["bleu", "paper_bleu"] and scores["lines"] == 20
    results = json.loads((output / "results.json").read_text(encoding="utf-8"))
    assert {one["metric"] for one in results} == {"BLEU (paper's)", "sacreBLEU", "training FLOPs, counted"}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_big_of_english_and_french_has_less_dropout(tmp_path: Path) -> None:
    write_archives(tmp_path / "archives", "en-fr", 2000)
    said = run(tmp_path, "big", "en-fr", "runs", *SMALL, "--max-update", "2")
    assert "giga-fren: 400 pairs" in said and "un: 400 pairs" in said
    config = yaml.safe_load((tmp_path / "runs/en-fr/big/run/config.yaml").read_text(encoding="utf-8"))
    assert (config["model"]["dropout"], config["checkpoint"]["keep_interval_updates"]) == (0.1, 20)
    assert (tmp_path / "runs/en-fr/big/newstest2014.fr").read_text(encoding="utf-8").count("\n") == 20
