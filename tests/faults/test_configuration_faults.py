"""The fault catalogue for command lines and configurations: all of them are status 2, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from nmt.storage.checkpoints import read_checkpoint, write_checkpoint
from tests.faults.tiny_runs import TINY, nmt_train, refused
from tests.tiny_models import write_tiny_model

FAULTS: list[tuple[str, list[str], str]] = [
    ("38 a key that nobody knows", ["optimizer.lrr=1"], "unknown option optimizer.lrr (did you mean 'optimizer.lr'?)"),
    (
        "39 a preset that is not there",
        ["model=lstmm"],
        "unknown model 'lstmm' (did you mean 'lstm'?); --help presets lists all",
    ),
    ("40 a word for a number", ["--lr", "abc"], "optimizer.lr=abc is not a number (--lr)"),
    ("41 a value that is left open", ["checkpoint.save_dir=???"], "no value for checkpoint.save_dir; give checkpoint."),
    (
        "42 an option that another names wrongly",
        ["seed=${sed}"],
        "seed=${sed} cannot be resolved: Interpolation key 'sed' not found",
    ),
    (
        "43 several values that contradict each other",
        ["--max-tokens", "2", "--warmup-updates", "100"],
        "(1) scheduler.warmup_updates=100 is more than the whole run of 6 updates; lower --warmup-updates, or train "
        "longer (--max-update or --max-epoch); (2) batching.max_tokens=2 is less than the 8 tokens of the longest",
    ),
    (
        "43 heads that do not divide the width",
        ["model=transformer_tiny", "model.num_heads=7"],
        "d_model=128 is not divisible by num_heads=7",
    ),
    ("43 fp16 on a CPU", ["--precision", "fp16"], "precision fp16 is for GPUs; on a CPU use --precision bf16 or fp32"),
    ("44 a brace", ["checkpoint.save_dir={c d"], "cannot read checkpoint.save_dir={c d (put quotes around special"),
    ("44 a comma", ["checkpoint.save_dir=a=b,c"], "cannot read checkpoint.save_dir=a=b,c (put quotes around special"),
]


@pytest.mark.parametrize(("arguments", "message"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_fault_of_the_configuration_is_one_line(
    arguments: list[str], message: str, copy_corpus: Path, tmp_path: Path
) -> None:
    line = refused("train", copy_corpus, *TINY[3:], *arguments, status=2, cwd=tmp_path)
    assert line.startswith(f"nmt-train: {message}")
    assert list(tmp_path.iterdir()) == []


def test_fault_44_a_flag_takes_any_value_as_it_is(copy_corpus: Path, tmp_path: Path) -> None:
    name = "a=b, {c} 'd"
    nmt_train(copy_corpus, Path(name), "--max-update", "2", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_faults_43_and_78_a_beam_wider_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", updates=0)
    line = refused("generate", "--path", model, "--beam", "99", "--cpu", status=2, stdin=b"rot\n")
    assert "search.beam_size=99 exceeds the 18 tokens of the target vocabulary; lower it" in line


def test_fault_45_a_configuration_that_names_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ran").mkdir()
    stored = read_checkpoint(write_tiny_model(tmp_path / "model", updates=0))
    config = {**stored.config, "danger": {"_target_": "os.rmdir", "path": "ran"}}
    model, tokenizer = tmp_path / "hostile", tmp_path / "model-tokenizer"
    write_checkpoint(model, model=stored.model, config=config, info=stored.info, tokenizer=tokenizer)
    line = refused("generate", "--path", model, "--cpu", status=65, stdin=b"rot\n", cwd=tmp_path)
    assert "config.yaml contains '_target_'; checkpoints name components, never code" in line
    line = refused("train", "--config", model, status=65, cwd=tmp_path)
    assert "config.yaml" in line
    assert (tmp_path / "ran").is_dir()
