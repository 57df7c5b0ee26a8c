"""Speed and memory of the paper's models, and a row of Table 3 beside the base model: from the script, and from its runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.data.tokenizers.sentencepiece import BpeConfig
from tests.tiny_models import write_tiny_corpus
from tests.unit.examples.wmt14_archives import FOLDER, load

throughput = load("throughput")
ROOT = FOLDER.parents[1]

SMALL = (
    "model.d_model=16 model.d_ff=32 model.num_heads=2 model.encoder_layers=1 model.decoder_layers=1 device.name=cpu "
    "batching.max_tokens=400 batching.tokens_per_update=800 scheduler.warmup_updates=2 report.log_interval=1 "
    "--max-update 4 --no-count-flops"
).split()  # they end before the minutes that they are given


def test_invented_text_has_every_word_and_sentences_of_the_length_that_is_assumed(tmp_path: Path) -> None:
    throughput.main(["invent", str(tmp_path / "text"), "--pairs", "2000", "--words", "500"])
    sides = [
        [line.split() for line in (tmp_path / f"text/train.{language}").read_text(encoding="utf-8").splitlines()]
        for language in ("en", "de")
    ]
    for side in sides:
        assert len(side) == 2000 and len({word for line in side for word in line}) == 500
        assert sum(map(len, side)) / 2000 == pytest.approx(throughput.MEAN_LENGTH, rel=0.05)
        assert all(1 <= len(line) <= throughput.LONGEST for line in side)
    ratios = [len(one) / len(other) for one, other in zip(*sides)]
    assert min(ratios) > 0.5 and max(ratios) < 2, "a sentence and its translation are of much the same length"


def write_run(folder: Path, *events: dict[str, Any], ended: bool = True) -> None:
    start = {"event": "start", "update": 0, "model": {"parameters": 7}, "devices": 2, "flops_per_token": 1e9}
    start["environment"] = {"device": "cuda:0", "gpu": "NVIDIA A100"}
    closing = [{"event": "end", "update": 40, "seconds": 90.0}] if ended else []
    folder.mkdir(parents=True)
    lines = "".join(f"{json.dumps(event)}\n" for event in [start, *events, *closing])
    (folder / "log.jsonl").write_text(lines, encoding="utf-8")
    (folder / "config.yaml").write_text(yaml.safe_dump({"batching": {"max_tokens": 3125}}), encoding="utf-8")


def trained(*speeds: float) -> list[dict[str, Any]]:
    return [
        {"event": "train", "update": 10 * number, "tokens_per_second": speed, "memory_mb": 1000.0 * number}
        for number, speed in enumerate(speeds, 1)
    ]


def validated(**perplexities: float) -> list[dict[str, Any]]:
    return [{"event": "valid", "update": int(key[1:]), "ppl": value} for key, value in perplexities.items()]


def test_speeds_and_the_pair_are_reported_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    write_run(folder / "base", *trained(1.0, 50_000.0, 70_000.0, 52_000.0))
    write_run(folder / "big", *trained(1.0, 20_000.0))
    write_run(folder / "base_row", *validated(u1000=9.5, u2000=8.25))
    write_run(folder / "c_2_layers", *validated(u1000=11.0, u2000=10.125, u3000=9.0))
    throughput.main(["report", str(folder), "--results", str(folder / "results.json")])
    assert capsys.readouterr().out.splitlines() == [
        "| model | hardware | target tokens a second | GB of memory a process | TFLOPS a device |",
        "|---|---|---|---|---|",
        "| base | 2 x NVIDIA A100 | 52,000 | 4 | 26 |",
        "| big | 2 x NVIDIA A100 | 20,000 | 2 | 10 |",
        "",
        "| perplexity after 2,000 updates | published, 100,000 updates | ours |",
        "|---|---|---|",
        "| base: 6 layers, width 512 | 4.92 | 8.25 |",
        "| C: 2 layers | 6.11 | 10.12 |",
    ]
    kept = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert [(one["experiment"], one["row"], one["ours"]) for one in kept] == [
        ("Speed of training", "Transformer (base)", 52000),
        ("Speed of training", "Transformer (base)", 4.0),
        ("Speed of training", "Transformer (big)", 20000),
        ("Speed of training", "Transformer (big)", 2.0),
        ("Table 3", "base: 6 layers, width 512", 8.25),
        ("Table 3", "C: 2 layers", 10.12),
    ]
    assert {one["hardware"] for one in kept} == {"2 x NVIDIA A100"} and kept[-1]["updates"] == 2000


@pytest.mark.parametrize(
    ("runs", "status", "said"),
    [
        ({}, 66, "has neither base nor big"),
        ({"base": trained(1.0)}, 65, "base has too few updates to measure its speed; give throughput.sh more MINUTES"),
        (
            {"base": trained(1.0, 2.0), "base_row": validated(u5=2.0), "c_2_layers": validated(u6=2.0)},
            65,
            "have no validation at the same update; give throughput.sh more HOURS",
        ),
    ],
)
def test_runs_that_say_nothing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], runs: dict[str, Any], status: int, said: str
) -> None:
    for name, events in runs.items():
        write_run(tmp_path / name, *events)
    with pytest.raises(SystemExit) as stopped:
        throughput.main(["report", str(tmp_path)])
    assert stopped.value.code == status and said in capsys.readouterr().err


def test_no_text_cannot_be_invented(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        throughput.main(["invent", str(tmp_path / "text"), "--pairs", "0"])
    assert stopped.value.code == 2 and "--pairs 0 --words 37000 makes no text" in capsys.readouterr().err


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }
    command = ["bash", str(FOLDER / "throughput.sh"), *words]
    return subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DEVICES": "two"}, "DEVICES=two is not a number of GPUs"),
        ({"MINUTES": "some"}, "MINUTES=some and HOURS=0 must be numbers"),
        ({"MINUTES": "0.0"}, "MINUTES=0.0 leaves no time to train"),
        ({"HOURS": "2"}, "HOURS=2 needs CORPUS=FOLDER"),
    ],
)
def test_the_script_refuses_what_it_cannot_do(tmp_path: Path, variables: dict[str, str], said: str) -> None:
    done = run(tmp_path, "runs", **variables)
    assert done.returncode == 2 and said in done.stderr and not [*tmp_path.iterdir()]


def test_a_corpus_of_another_size_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "runs/corpus").mkdir(parents=True)
    (tmp_path / "runs/corpus/manifest.json").write_text("", encoding="utf-8")
    (tmp_path / "runs/invented").write_text("300 pairs, 500 pieces\n", encoding="utf-8")
    done = run(tmp_path, "runs", PAIRS="400", PIECES="500")
    assert done.returncode == 2
    said = "runs/corpus was made of 300 pairs, 500 pieces, not 400 pairs, 500 pieces; choose another folder"
    assert done.stderr == f"throughput.sh: {said}\n"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_script_trains_on_invented_sentences(tmp_path: Path) -> None:
    done = run(tmp_path, "runs", *SMALL, MINUTES="3", PAIRS="300", PIECES="500")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "| base | " in done.stdout and "| big | " in done.stdout and "perplexity" not in done.stdout
    kept = json.loads((tmp_path / "runs/results.json").read_text(encoding="utf-8"))
    assert [one["metric"] for one in kept] == 2 * ["target tokens a second", "GB of memory a process"]
    config = yaml.safe_load((tmp_path / "runs/big/config.yaml").read_text(encoding="utf-8"))
    assert config["model"]["dropout"] == 0.3 and config["training"]["stop_time_hours"] == 0.05


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_the_script_trains_a_pair_of_rows_on_a_corpus(tmp_path: Path) -> None:
    corpus = write_tiny_corpus(tmp_path, joint=BpeConfig(vocab_size=40, hard_vocab_limit=False))
    options = [*SMALL, "--valid-subset", "train", "validation.interval_updates=1", "validation.max_sentences=2"]
    done = run(tmp_path, "runs", *options, HOURS="0.5", CORPUS=str(corpus))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "perplexity after 4 updates" in done.stdout and "| C: 2 layers | 6.11 | " in done.stdout
    layers = {
        name: yaml.safe_load((tmp_path / f"runs/{name}/config.yaml").read_text(encoding="utf-8"))["model"]
        for name in ("base_row", "c_2_layers")
    }
    assert [layers[name]["encoder_layers"] for name in ("base_row", "c_2_layers")] == [1, 2]
