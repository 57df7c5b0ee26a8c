"""The scripts of ``benchmarks/`` stand ready: each runs in its smallest size and prints its tables."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.config.sections import TrainConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.training.assemble import train
from tests.tiny_models import in_english, some_lines, write_tiny_corpus, write_tiny_model

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(script: str, *arguments: object) -> list[list[str]]:
    """The rows of the tables that a script prints, their cells without space."""
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.splitlines() if "|" in line]


@pytest.mark.nightly
def test_speeds_of_training(copy_corpus: Path) -> None:
    rows = run("training_speed.py", copy_corpus, "--shape", "smallest", "--rounds", 2, "--threads", 1)
    assert [row[0] for row in rows] == ["engine", "---", "nmt fp32", "nmt auto"]
    for _, speed, rounds, ratio, memory in rows[2:]:
        low, high = (float(figure.replace(",", "")) for figure in rounds.split(" to "))
        assert 0 < low <= float(speed.replace(",", "")) <= high
        assert float(ratio) > 0 and float(memory.replace(",", "")) > 50


@pytest.mark.nightly
def test_speeds_of_adapters(copy_corpus: Path, tiny_run: Callable[..., TrainConfig], tmp_path: Path) -> None:
    train(tiny_run())
    rows = run("adapter_speed.py", copy_corpus, tmp_path / "run", "--rounds", 1, "--updates", 5, "--threads", 1)
    assert [row[0] for row in rows[:3]] == ["trained", "---", "all parameters"] and len(rows) == 8
    assert rows[2][3] == "1.000" and all(float(ratio) > 0 for _, _, _, ratio, _ in rows[3:])


@pytest.mark.nightly
def test_the_price_of_weights(tmp_path: Path) -> None:
    for split in ("train", "valid"):
        for language in ("en", "de"):
            lines = (f"{split} {language} {number % 7} {number} {number * number}\n" for number in range(200))
            (tmp_path / f"{split}.{language}").write_text("".join(lines))
    options = ("--rounds", 1, "--updates", 5, "--threads", 1, "--vocab-size", 60)
    rows = run("weights_speed.py", tmp_path / "train", tmp_path / "valid", *options)
    assert [row[0] for row in rows[2:]] == ["without weights", "weights of pairs", "weights of tokens"]
    assert rows[2][3] == "1.000" and all(float(ratio) > 0 for _, _, _, ratio, _ in rows[2:])
    rows = run("weights_speed.py", tmp_path / "train", tmp_path / "valid", *options, "--paired", 20)
    assert [row[0] for row in rows[2:]] == ["weights of pairs", "weights of tokens"]
    for _, ratio, interval in rows[2:]:
        low, high = map(float, interval.split(" to "))
        assert 0 < low <= float(ratio) <= high


@pytest.mark.nightly
def test_the_price_of_varied_text(tmp_path: Path) -> None:
    corpus = write_tiny_corpus(tmp_path, joint=BpeConfig(vocab_size=40, hard_vocab_limit=False))
    rows = run("varied_text.py", corpus, "--turns", 3, "--threads", 1, "--with", "--bpe-dropout 0.2 --readers 1")
    assert [row[0] for row in rows[2:]] == ["none", "`--bpe-dropout 0.2 --readers 1`"]
    check_varied(rows[2:])


@pytest.mark.nightly
def test_the_price_of_a_mixture(tmp_path: Path) -> None:
    first = write_tiny_corpus(tmp_path)
    (tmp_path / "more").mkdir()
    corpora = [first, *(shutil.copytree(first, tmp_path / "more" / name) for name in ("second", "third"))]
    rows = run("varied_text.py", *corpora, "--turns", 3, "--threads", 1, "--with", "--sampling-weights 3,1,1")
    assert [row[0] for row in rows[2:]] == ["none", "`--sampling-weights 3,1,1`"]
    check_varied(rows[2:])


def check_varied(rows: list[list[str]]) -> None:
    for _, speed, ratio, _, pieces, reading, planning in rows:
        assert float(speed.replace(",", "")) > 0 and float(ratio) > 0 and float(pieces.replace(",", "")) > 100
        assert 0 <= float(reading.removesuffix(" %")) < 100 and float(planning) >= 0


@pytest.mark.nightly
def test_speeds_of_preprocessing(tmp_path: Path) -> None:
    lines = some_lines(100)
    for language, side in (("de", lines), ("en", map(in_english, lines))):
        with gzip.open(tmp_path / f"train.{language}.gz", "wt", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in side)
    rows = run("preprocess.py", tmp_path, "--pairs", 250, "--pieces", 40, "--workers", 2, "--rounds", 1)
    assert [row[:2] for row in rows[2:]] == [
        [f"nmt {name}, --workers 2", "250"] for name in ("learned", "given", "words")
    ]
    for _, _, speed, rounds, processor, ratio, memory, own in rows[2:]:
        assert float(speed.replace(",", "")) > 0 and rounds == f"{speed} to {speed}" and ratio == ""
        assert float(processor) > 0 and float(memory) >= float(own) > 20


@pytest.mark.nightly
def test_learning_curves_go_on_where_they_were_stopped(copy_corpus: Path, tmp_path: Path) -> None:
    """A second call finds finished runs and prints their figures again."""
    small = "--shape smallest --tokens 20000 --every 4 --threads 1 --paths plain bf16".split()
    rows = run("learning_curves.py", copy_corpus, tmp_path, *small)
    assert rows[0] == ["updates", "plain", "bf16"]
    assert rows == run("learning_curves.py", copy_corpus, tmp_path, *small)
    start, *_, end, differences = rows[2:]
    assert all(float(last) < float(first) for first, last in zip(start[1:], end[1:]))
    assert differences[:2] == ["end, minus plain", "+0.0000"]
    assert len({*end[1:]}) > 1, "the paths are really others"


def test_speeds_of_translation(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=20)
    lines = some_lines(30)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "references").write_text("".join(f"{in_english(line)}\n" for line in lines), encoding="utf-8")
    given = [model, tmp_path / "text", "--references", tmp_path / "references", "--rounds", 1]
    rows = run("decoding_speed.py", *given, "--ours", "--workers 1", "--batch-size 1 --workers 1")
    assert [row[0] for row in rows[2:]] == ["nmt --workers 1", "nmt --batch-size 1 --workers 1"]
    assert all(float(row[1].replace(",", "")) > 0 and 0 <= float(row[4]) <= 100 for row in rows[2:])
    assert [row[5] for row in rows[2:]][0] == "100.0%"


def test_speeds_of_serving(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=20)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in some_lines(60)), encoding="utf-8")
    given = [model, tmp_path / "text", "--rounds", 1, "--clients", 5, "--workers", 1, "--lines-per-request", 1, 7]
    rows = run("serving_speed.py", *given, "--ours", "--device cpu --max-len-b 5")
    assert [row[0] for row in rows[2:]] == [
        "nmt-generate",
        "5 clients, 1 line per request",
        "5 clients, 7 lines per request",
    ]
    for _, speed, _, ratio, failed, other, *_ in rows[2:]:
        assert float(speed) > 0 and float(ratio) > 0 and (failed, other) == ("0", "0")


@pytest.mark.nightly
def test_speeds_of_more_and_more_lines(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=20)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in some_lines(30)), encoding="utf-8")
    given = [model, tmp_path / "text", "--sizes", 20, 50, "--rounds", 2, "--ours", "--workers 1 --max-len-b 5"]
    rows = run("decoding_growth.py", *given)
    assert [row[0] for row in rows] == ["lines", "---", "20", "50"]
    for _, speed, rounds, memory in rows[2:]:
        low, high = (float(figure.replace(",", "")) for figure in rounds.split(" to "))
        assert 0 < low <= float(speed.replace(",", "")) <= high and float(memory.replace(",", "")) > 20


@pytest.mark.nightly
def test_translations_in_other_batches(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=60)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in some_lines(200)), encoding="utf-8")
    rows = run("batch_invariance.py", model, tmp_path / "text", "--lines", 150, "--ours", "--max-len-b 5")
    assert rows[0][0] == "setting, 150 lines" and len(rows) == 5
    assert all(row[3] == "0" and float(row[4]) < 1e-4 for row in rows[2:])


def test_padding_of_budgets(copy_corpus: Path) -> None:
    rows = run("padding.py", copy_corpus)
    assert len(rows) == 6 and rows[2][0] == "`--max-tokens 4096`"
    assert all(float(after.split()[0]) <= 5.0 for *_, after in rows[2:])


@pytest.mark.nightly
def test_what_a_large_corpus_costs(tmp_path: Path) -> None:
    """The second process finds what the first one's start has made."""
    rows = run("large_corpus.py", "--pairs", 3000, "--folder", tmp_path / "corpus")
    assert [row[:2] for row in rows[2:]] == [["first process", "3,000"], ["second process", "3,000"]]
    assert all(float(row[5].split()[0]) < 100 for row in rows[2:])


@pytest.mark.nightly
def test_what_the_import_of_a_multilingual_model_costs(tmp_path: Path) -> None:
    """Nearly all of it is one embedding, which is in memory once."""
    rows = run("multilingual_import.py", "--layers", 1, "--folder", tmp_path)
    assert rows[2][:2] == ["float32", "1.23 GB"]
    assert float(rows[2][3].split()[0]) < 2.5


@pytest.mark.nightly
def test_training_on_one_device(tmp_path: Path) -> None:
    given = (
        f"{tmp_path / 'corpus'} --generate 2000 --device cpu --models transformer_tiny --max-tokens 2048 --updates 6"
    )
    rows = run("device_training.py", *given.split(), "--precisions", "fp32", "bf16_output")
    assert [row[:2] for row in rows if row[0] == "`transformer_tiny`"][:2] == [
        ["`transformer_tiny`", "`fp32`"],
        ["`transformer_tiny`", "`bf16_output`"],
    ]
    shares = [row[4] for row in rows if row[1] in ("`fp32`", "`bf16_output`")]
    assert all(re.fullmatch(r"\d+%", share) for share in shares)


@pytest.mark.nightly
def test_the_files_of_an_update_and_of_a_line(tmp_path: Path) -> None:
    output = tmp_path / "files.json"
    run("files_of_an_update.py", "--output", output)
    counted = json.loads(output.read_text())
    assert {"nmt/training/loop/trainer.py", "nmt/models/transformer/attention.py"} <= set(counted["one update"])
    assert {"nmt/translation/translator.py", "nmt/search/beam.py"} <= set(counted["one line translated"])
    assert all((BENCHMARKS.parent / name).is_file() for names in counted.values() for name in names)


@pytest.mark.nightly
def test_a_finetuned_import_translates_alike_in_three_toolkits(tmp_path: Path) -> None:
    """The tokens of each line, also of lines with unknown letters."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
    for split, count, seed in (("train", 3000, 1), ("valid", 40, 2), ("test", 200, 3)):
        lines = some_lines(count, seed)
        unknown = " \u2660" if split == "test" else ""
        (tmp_path / f"{split}.de").write_text("".join(f"{line}\n" for line in lines))
        (tmp_path / f"{split}.en").write_text("".join(f"{in_english(line)}{unknown}\n" for line in lines))
    sizes = "--updates 500 --max-tokens 500 --lines 200 --pieces 80".split()
    rows = run("finetuned_exports.py", tmp_path, tmp_path / "work", *sizes)
    same = {name: (int(equal), int(compared), int(different)) for name, equal, compared, different in rows[2:]}
    assert same["nmt"][1] >= 150 and same["nmt"][2] >= 50
    assert same["CTranslate2"] == same["transformers"] == same["nmt"]
    assert same["nmt, int8"][0] >= 0.8 * same["nmt"][1]
