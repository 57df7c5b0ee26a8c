"""``nmt.train``: a run on data of a Python program, its result, and the calls that it refuses."""

from __future__ import annotations

import json
import logging
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt.config.sections import CheckpointConfig, TrainConfig, TrainingConfig
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.errors import DataError, NMTError, OutputError, UsageError
from nmt.models.transformer.config import TransformerConfig
from nmt.storage.lock import one_writer
from nmt.storage.run_folder import resolve
from nmt.storage.tensor_file import read_tensors
from nmt.training.from_python import train
from nmt.training.result import TrainingResult
from tests.tiny_models import in_english, some_lines

PAIRS = [(line, in_english(line)) for line in some_lines(80, seed=3)]
MODEL = TransformerConfig(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, num_heads=2)
OPTIONS: dict[str, Any] = {"model": MODEL, "max_tokens": 200, "report.html": False, "progress": "none"}


def run(folder: Path, updates: int, data: Any = PAIRS, **options: Any) -> TrainingResult:
    return train(data, save_dir=folder, max_update=updates, **OPTIONS | options)


def parameters(run_folder: Path) -> dict[str, torch.Tensor]:
    return read_tensors(resolve(run_folder) / "model.safetensors")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """The result of a run of six updates that stopped after four."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    run(folder, 4, valid_metrics=["bleu"], valid_share=0.1)
    return run(folder, 6, valid_metrics=["bleu"], valid_share=0.1)


def test_a_result_has_curves_scores_and_a_translator(result: TrainingResult) -> None:
    losses, bleu = result.curves["valid.loss"], result.curves["valid.bleu"]
    assert [update for update, _ in losses] == [update for update, _ in bleu] and losses[-1][0] == 6
    assert result.curves["train.loss"][-1][1] > 0 and "valid.seconds" not in result.curves
    assert result.best_scores["loss"] == result.best == min(loss for _, loss in losses)
    assert set(result.best_scores) == {"loss", "nll", "ppl", "bleu"}
    assert len(result.translator.translate(["ein mann", "rot"], beam=1)) == 2
    assert result.translator is result.translator and repr(result.translator) == "<Translator source-target on cpu>"
    assert repr(result).startswith(f"<TrainingResult {result.folder}: 6 updates, ") and "\n" not in repr(result)
    assert result._repr_html_().startswith('<iframe title="Training run ')


def test_the_same_call_resumes_exactly(result: TrainingResult, tmp_path: Path) -> None:
    at_once = run(tmp_path / "run", 6, valid_metrics=["bleu"], valid_share=0.1)
    ours, theirs = parameters(result.folder), parameters(at_once.folder)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (
            PAIRS[1:],
            {},
            r"pairs: 80 -> 79; .*data: the pairs differ\); choose another save_dir, or resume with the stored",
        ),
        ([*PAIRS[1:], PAIRS[0]], {}, "was trained on other data .data: the pairs differ."),
        (PAIRS, {"vocab_size": 50}, "tokenizer.vocab_size: .* -> 50"),
        (PAIRS, {"valid_share": 0.2}, "valid: 8 -> 16"),
        (PAIRS, {"model": "transformer_tiny"}, "model.d_model: 8 -> 128"),
    ],
)
def test_other_data_or_options_are_refused(
    result: TrainingResult, data: Any, options: dict[str, Any], message: str
) -> None:
    before = (result.folder / "corpus" / "manifest.json").read_bytes()
    with pytest.raises(UsageError, match=message):
        run(result.folder, 8, data, **{"valid_metrics": ["bleu"], "valid_share": 0.1} | options)
    assert (result.folder / "corpus" / "manifest.json").read_bytes() == before


def test_the_stored_pairs_resume_a_run(result: TrainingResult) -> None:
    assert run(result.folder, 6, str(result.folder / "corpus"), valid_metrics=["bleu"]).update == 6


def test_data_that_differs_at_each_reading_is_told_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Shuffled(list[Any]):
        def __iter__(self) -> Any:
            return iter(random.sample(PAIRS, len(PAIRS)))

    caplog.set_level(logging.WARNING, "nmt")
    run(tmp_path / "run", 1, Shuffled(PAIRS))
    assert "data differs at each reading: " in caplog.text
    assert run(tmp_path / "run", 2, Shuffled(PAIRS)).update == 2
    with pytest.raises(UsageError, match="pairs: 80 -> 79"):
        run(tmp_path / "run", 3, PAIRS[1:])


def test_a_corpus_without_a_checkpoint_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="d_model=8 is not divisible"):
        run(tmp_path / "run", 1, model="transformer", **{"model.d_model": 8, "model.num_heads": 3})
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match="has no split 'nothing'"):
        run(tmp_path / "run", 1, train_subset="nothing")
    assert run(tmp_path / "run", 1, PAIRS[5:]).update == 1


def test_the_corpus_of_a_run_in_progress_is_not_replaced(tmp_path: Path) -> None:
    nmt.preprocess(PAIRS, destdir=tmp_path / "run" / "corpus", progress="none")
    before = (tmp_path / "run" / "corpus" / "manifest.json").read_bytes()
    with one_writer(tmp_path / "run"), pytest.raises(OutputError, match="is being written by"):
        run(tmp_path / "run", 1, PAIRS[5:])
    assert (tmp_path / "run" / "corpus" / "manifest.json").read_bytes() == before


def test_a_dataclass_gets_the_default_components_of_the_command(tmp_path: Path) -> None:
    nmt.preprocess(PAIRS, destdir=tmp_path / "corpus", progress="none")
    config = TrainConfig(
        data=[str(tmp_path / "corpus")],
        model=MODEL,
        training=TrainingConfig(max_update=1),
        checkpoint=CheckpointConfig(save_dir=str(tmp_path / "run")),
    )
    assert train(config).update == 1 and config.criterion is None
    stored = resolve(tmp_path / "run").joinpath("config.yaml").read_text(encoding="utf-8")
    usual = LabelSmoothedCrossEntropyConfig()
    assert f"name: label_smoothed_cross_entropy\n  label_smoothing: {usual.label_smoothing}" in stored
    assert "name: adam" in stored and "name: inverse_sqrt" in stored and "name: beam" in stored


def test_callbacks_and_threads(tmp_path: Path) -> None:
    updates = []

    class Counter(nmt.Callback):
        def on_update(self, event: Any) -> nmt.Stop | None:
            updates.append((event.update, threading.current_thread().name))
            return nmt.Stop("enough") if event.update == 2 else None

    results = []
    options = {"callbacks": [Counter()]}
    thread = threading.Thread(target=lambda: results.append(run(tmp_path / "run", 9, **options)), name="training")
    thread.start()
    thread.join()
    assert updates == [(1, "training"), (2, "training")]
    assert results[0].ending == "stopped by Counter: enough"


def test_an_end_that_a_killed_run_did_not_tell_is_told_after_a_start(tmp_path: Path) -> None:
    run(tmp_path / "run", 2)
    log = tmp_path / "run" / "log.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    log.write_text("".join(line for line in lines if '"event": "end"' not in line), encoding="utf-8")
    told = []

    class Events(nmt.Callback):
        def on_start(self, event: Any) -> None:
            told.append(event.name)

        on_end = on_start

    for _ in range(2):
        run(tmp_path / "run", 2, callbacks=[Events()])
    assert told == ["start", "end"]
    start, end = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()][-2:]
    assert start["seconds"] == end["seconds"] > 0 and start["lower_is_better"] == []


def test_a_notebook_shows_updates_and_validations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("nmt").setLevel(logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    run(tmp_path / "run", 2, progress="auto")
    shown = capsys.readouterr().err
    assert "held out 4 of 80 pairs" in shown
    assert "update 1 | loss " in shown and "update 2 | validation | loss " in shown and "2 updates are made" in shown
    run(tmp_path / "silent", 1, progress="none")
    assert "update 1" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"train needs data: train\(PAIRS\)"),
        ({"data": PAIRS, "modle": "x"}, r"train has no option 'modle' \(did you mean 'model'\?\)"),
        ({"data": PAIRS, "vocab_siz": 3}, r"train has no option 'vocab_siz' \(did you mean 'vocab_size'\?\)"),
        ({"data": PAIRS, "tsv": "x"}, "train has no option 'tsv'"),
        ({"data": [".", "text.tsv"]}, "data has both a corpus folder"),
        ({"data": ["."], "vocab_size": 3}, "vocab_size= needs text, but . is a corpus folder"),
        ({"data": TrainConfig(data=["x"]), "lr": 3}, "takes a dataclass of options or keyword arguments"),
        ({"data": TrainConfig(data=["x"]), "tokenizer": "bpe"}, "takes a dataclass of options or keyword arguments"),
        ({"data": (pair for pair in PAIRS)}, "pairs that have a length"),
    ],
)
def test_wrong_calls_are_one_line_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nmt.errors.NMTError, match=message) as error:
        train(**arguments)
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_several_processes_need_a_corpus_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(
        UsageError, match="several processes cannot prepare pairs or text; make a corpus with nmt.preprocess"
    ):
        train(PAIRS)


def test_completion_shows_the_public_names_only() -> None:
    assert {name for name in dir(nmt) if not name.startswith("__")} == set(nmt.__all__) - {"__version__"}
    assert nmt.errors.NMTError is NMTError
