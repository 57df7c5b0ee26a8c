"""Command lines of fairseq with our commands in their place."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.commands import run_copy
from tests.tiny_models import write_tiny_model

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "migrate" / "fairseq.md"
SHRUNK = ["model.d_model=16", "model.d_ff=16", "--encoder-layers", "1", "--decoder-layers", "1"]
SHORT = ["--max-update", "2", "--warmup-updates", "1", "--device", "cpu", "--no-html", "--valid-max-sentences", "2"]


def readme_command() -> list[str]:
    """The arguments of fairseq's command for IWSLT, as the document has them."""
    (command,) = re.findall(
        r"^CUDA_VISIBLE_DEVICES=0 nmt-train (.*?)\n```", DOCUMENT.read_text(encoding="utf-8"), re.M | re.S
    )
    return shlex.split(command.replace("\\\n", " "))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, copy_corpus: Path) -> Path:
    """A working directory with a corpus where the command looks for it."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "data-bin").mkdir()
    (folder / "data-bin" / "iwslt14.tokenized.de-en").symlink_to(copy_corpus)
    return folder


def test_the_command_of_fairseqs_readme_composes_as_it_stands_with_fairseqs_sizes(place: Path) -> None:
    done = run_copy("train", *readme_command(), "--cfg", "job", cwd=place)
    assert done.returncode == 0, done.stderr.decode()
    job = yaml.safe_load(done.stdout)
    model = job["model"]
    assert (model["d_model"], model["d_ff"], model["num_heads"], model["dropout"]) == (512, 1024, 4, 0.3)
    assert (model["share_all_embeddings"], model["share_decoder_embeddings"]) == (False, True)
    assert (job["search"]["beam_size"], job["search"]["max_len_a"], job["search"]["max_len_b"]) == (5, 1.2, 10)
    assert (job["validation"]["metrics"], job["validation"]["best_metric"]) == (["bleu"], "bleu")
    assert (job["optimizer"]["betas"], job["optimizer"]["lr"]) == ([0.9, 0.98], 0.0005)
    assert (job["scheduler"]["name"], job["scheduler"]["warmup_updates"]) == ("inverse_sqrt", 4000)
    assert job["criterion"]["label_smoothing"] == 0.1


def test_the_command_of_fairseqs_readme_trains_and_says_what_became_of_each_foreign_flag(place: Path) -> None:
    done = run_copy("train", *readme_command(), *SHRUNK, *SHORT, cwd=place)
    log = done.stderr.decode()
    assert done.returncode == 0, log
    assert (place / "checkpoints" / "best.json").is_file()
    notes = re.findall(r"\| (--eval-bleu[\w-]*|--maximize[\w-]*)[^|\n]*(is read as|has no effect)", log)
    assert notes == [
        ("--eval-bleu", "is read as"),
        ("--eval-bleu-args", "is read as"),
        ("--eval-bleu-detok", "has no effect"),
        ("--eval-bleu-remove-bpe", "has no effect"),
        ("--eval-bleu-print-samples", "has no effect"),
        ("--maximize-best-checkpoint-metric", "has no effect"),
    ]


@pytest.mark.parametrize("spelling", ["--arch {}", "model={}", "+model={}"])
def test_an_architecture_of_fairseq_can_be_named_in_every_spelling(spelling: str, place: Path) -> None:
    done = run_copy("train", *spelling.format("fconv_wmt_en_de").split(), "--cfg", "job", cwd=place)
    assert done.returncode == 0, done.stderr.decode()
    assert yaml.safe_load(done.stdout)["model"]["encoder_convolutions"] == ["9x512x3", "4x1024x3", "2x2048x1"]


@pytest.mark.parametrize("spelling", ["--lr-scheduler {}", "scheduler={}", "+scheduler={}"])
def test_a_scheduler_of_fairseq_is_answered_with_ours_in_every_spelling(spelling: str, place: Path) -> None:
    done = run_copy("train", "x", *spelling.format("reduce_lr_on_plateau").split(), cwd=place)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == (
        "nmt-train: fairseq's scheduler 'reduce_lr_on_plateau' does not exist here: use plateau; its --lr-shrink "
        "is 0.5 unless given (fairseq's is 0.1)\n"
    )


@pytest.fixture(scope="module")
def binarised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fairseq-preprocess leaves, as far as names go."""
    folder = tmp_path_factory.mktemp("fairseq")
    for name in ("dict.de.txt", "dict.en.txt", "preprocess.log", "train.de-en.de.bin", "train.de-en.de.idx"):
        (folder / name).write_text("a 1\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("models") / "lstm")


@pytest.mark.parametrize(
    ("command", "arguments"), [("train", []), ("shortlist", ["--output", "short"]), ("generate", ["--path", "{model}"])]
)
def test_a_corpus_folder_of_fairseq_is_named_with_what_to_do(
    command: str, arguments: list[str], binarised: Path, model: Path, tmp_path: Path
) -> None:
    done = run_copy(command, binarised, *(argument.format(model=model) for argument in arguments), cwd=tmp_path)
    line = done.stderr.decode().splitlines()[-1]
    assert done.returncode == 65, line
    assert (
        f"{binarised} is a corpus folder of fairseq (dict.de.txt, train.de-en.de.bin); convert it with nmt-import"
        in line
    )
    assert f"nmt-import --from fairseq --path {binarised} --source-lang de --target-lang en" in line


def test_a_folder_with_checkpoints_of_fairseq_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "checkpoint_best.pt").write_bytes(b"PK\x03\x04")
    done = run_copy("generate", "--path", "checkpoints", stdin=b"a\n", cwd=tmp_path)
    assert done.returncode == 65
    assert b"checkpoint_best.pt is a pickled file of another toolkit; such files can run code" in done.stderr
