"""nmt-train --dry-run as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.data.tokenizers.sentencepiece import BpeConfig
from tests.commands import run_copy
from tests.tiny_models import write_tiny_corpus

TINY = (
    "model=transformer_tiny model.d_model=16 model.d_ff=24 model.num_heads=2 model.encoder_layers=1 "
    "model.decoder_layers=1 --max-tokens 90 --lr 0.01 --warmup-updates 2 --max-update 20 --no-count-flops "
    "--valid-subset train"
).split()


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--bpe-dropout", "0.2", "--readers", "2"],
        ["--sampling-weights", "2,1", "--update-freq", "2"],
        ["--ema-decay", "0.99"],
        ["--optimizer", "schedule_free_adamw", "--lr-scheduler", "constant"],
    ],
)
def test_it_says_what_training_takes_and_leaves_nothing(tmp_path: Path, options: list[str]) -> None:
    corpus = write_tiny_corpus(tmp_path, joint=BpeConfig(vocab_size=40))
    before = sorted(tmp_path.rglob("*"))
    several = [str(corpus)] * (2 if "--sampling-weights" in options else 1)
    result = run_copy("train", *several, *TINY, *options, "--dry-run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr.decode()
    rows = dict(line.split("  ", 1) for line in result.stdout.decode().splitlines())
    assert list(rows)[:2] == ["model", "data"] and "to the end" in rows
    assert rows["to the end"].strip().startswith("20 updates in ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_setting_that_training_refuses_is_refused(tmp_path: Path) -> None:
    result = run_copy("train", write_tiny_corpus(tmp_path), *TINY, "--dry-run", "--max-tokens", "2")
    assert result.returncode == 2 and not result.stdout
    assert b"batching.max_tokens=2 is less than" in result.stderr


def test_a_sweep_is_refused_and_leaves_no_records(tmp_path: Path) -> None:
    corpus = write_tiny_corpus(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    result = run_copy("train", corpus, *TINY, "--dry-run", "-m", "seed=1,2", cwd=tmp_path)
    assert result.returncode == 2 and b"--dry-run estimates one run" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
