"""Training on text that differs from epoch to epoch: whatever reads it, and however often the run is killed, it reads the
same; and what is wrong with the options is said in one line."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nmt.config.preprocessing import PreprocessConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.run_folder import checkpoints_in
from tests.commands import run_copy, start_copy
from tests.faults.tiny_runs import TINY, nmt_train

UNVALIDATED = ("--validate-interval", "null")
VARIED = "--bpe-dropout 0.2 --augment upper_case=0.1,typos=0.3,noise_lines=0.05".split()
RUN = (
    *VARIED,
    "--max-update",
    "40",
    "--save-interval-updates",
    "5",
    "--validate-interval",
    "null",
    "--update-freq",
    "2",
)


@pytest.fixture(scope="module")
def make_corpus(tmp_path_factory: pytest.TempPathFactory) -> Any:
    def make(**options: Any) -> Path:
        folder, draw = tmp_path_factory.mktemp("varied"), random.Random(1)
        words = "tower towers towering house houses household under over undergo overgo build builder".split()
        lines = [" ".join(draw.choices(words, k=draw.randint(1, 8))) for _ in range(150)]
        for language, side in {"en": lines, "de": [line[::-1] for line in lines]}.items():
            (folder / f"train.{language}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        config = PreprocessConfig(
            "en", "de", trainpref=str(folder / "train"), destdir=str(folder / "corpus"), **options
        )
        config.tokenizer = config.tokenizer or BpeConfig(vocab_size=120, hard_vocab_limit=False)
        preprocess(config)
        return folder / "corpus"

    return make


@pytest.fixture(scope="module")
def corpus(make_corpus: Any) -> Path:
    found: Path = make_corpus(keep_text=True)
    return found


def figures(run: Path) -> list[dict[str, Any]]:
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [
        {key: event[key] for key in ("update", "loss", "grad_norm", "tokens")}
        for event in events
        if event["event"] == "train"
    ]


def weights(run: Path) -> tuple[bytes, bytes]:
    last = checkpoints_in(run)[-1]
    return (last / "model.safetensors").read_bytes(), (last / "training.safetensors").read_bytes()


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without readers that nothing interrupted."""
    run = tmp_path_factory.mktemp("alone") / "run"
    nmt_train(corpus, run, *RUN, "--readers", "0")
    return run


@pytest.mark.parametrize("readers", [pytest.param("1", marks=pytest.mark.nightly), "3"])
def test_any_number_of_readers_makes_the_same_run(corpus: Path, alone: Path, tmp_path: Path, readers: str) -> None:
    said = nmt_train(corpus, tmp_path / "run", *RUN, "--readers", readers)
    who = "1 reader varies" if readers == "1" else f"{readers} readers vary"
    assert f"{who} the training text in each epoch" in said
    assert figures(tmp_path / "run") == figures(alone) and weights(tmp_path / "run") == weights(alone)


def test_a_run_that_is_killed_goes_on_with_the_same_text(corpus: Path, alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = (*nmt_options(run), *RUN)
    for update, readers in ((6, "2"), (14, "0")):
        process = start_copy("train", corpus, *options, "--readers", readers)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not _reached(run, update) and process.poll() is None:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    nmt_train(corpus, run, *RUN, "--readers", "1")
    assert figures(run) == figures(alone) and weights(run) == weights(alone)


def test_a_run_with_readers_stops_when_it_is_asked_to(corpus: Path, alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start_copy("train", corpus, *nmt_options(run), *RUN, "--max-update", "100000", "--readers", "2")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _reached(run, 3) and process.poll() is None:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.wait() == 75 and b"resume with the same command" in log and b"ended unexpectedly" not in log


def nmt_options(run: Path) -> list[str | Path]:
    return [*TINY, "--save-dir", run]


def _reached(run: Path, update: int) -> bool:
    log = run / "log.jsonl"
    return log.exists() and any(f'"update": {number},' in log.read_text() for number in range(update, update + 10))


def test_other_text_is_another_run_unless_the_epoch_begins_anew(corpus: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    nmt_train(corpus, run, *RUN, "--max-update", "6")
    said = nmt_train(corpus, run, *RUN, "--bpe-dropout", "0.3", status=2)
    assert "variation.bpe_dropout: 0.2 -> 0.3" in said and "--reset-dataloader" in said
    nmt_train(corpus, run, *RUN, "--bpe-dropout", "0.3", "--reset-dataloader", "--max-update", "8")


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        ("--augment uper_case=0.1", 2, "unknown augmentation 'uper_case' (did you mean 'upper_case'?)"),
        ("--augment typos", 2, "such as typos=0.05"),
        ("--augment typos=0.1:word=1", 2, "typos has no option 'word' (did you mean 'words'?)"),
        ("--unigram-alpha 0.2", 2, "variation.unigram_alpha (--unigram-alpha) needs tokens of a unigram model"),
        ("--bpe-dropout 2", 2, "variation.bpe_dropout=2.0 must be at least 0 and less than 1"),
        ("--bpe-dropout 0.1 --unigram-alpha 1", 2, "exclude each other; set one of --bpe-dropout and --unigram-alpha"),
        ("--sampled-sides left", 2, "sampled_sides"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    corpus: Path, tmp_path: Path, options: str, status: int, expected: str
) -> None:
    said = nmt_train(corpus, tmp_path / "run", *UNVALIDATED, *options.split(), status=status)
    assert expected in said.splitlines()[-1] and not (tmp_path / "run").exists()


def test_a_corpus_without_text_is_refused_with_what_to_do(make_corpus: Any, tmp_path: Path) -> None:
    without = make_corpus()
    said = nmt_train(without, tmp_path / "run", "--augment", "typos=0.1", *UNVALIDATED, status=65)
    assert "make the corpus again with nmt-preprocess --keep-text" in said.splitlines()[-1]
    nmt_train(
        without, tmp_path / "run", "--bpe-dropout", "0.1", "--max-update", "2", *UNVALIDATED
    )  # pieces spell the text


def test_alignments_and_varied_text_exclude_each_other(make_corpus: Any, corpus: Path, tmp_path: Path) -> None:
    texts = corpus.parent
    (texts / "train.align").write_text("0-0\n" * 150, encoding="utf-8")
    prepared = ["--source-lang", "en", "--target-lang", "de", "--trainpref", texts / "train", "--align-suffix", "align"]
    done = run_copy(
        "preprocess", *prepared, "--destdir", tmp_path / "aligned", "--srcdict", corpus, "--tgtdict", corpus
    )
    assert done.returncode == 0, done.stderr
    guided = ("--criterion", "guided_alignment", "--bpe-dropout", "0.1", *UNVALIDATED)
    said = nmt_train(tmp_path / "aligned", tmp_path / "run", *guided, status=2)
    assert "word alignments, which exist only for the stored tokens; omit --bpe-dropout" in said.splitlines()[-1]
