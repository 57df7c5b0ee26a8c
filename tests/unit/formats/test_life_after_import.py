"""A model that came in is one like ours: averaged, fine-tuned, exported again, learned from, in ensembles, scored."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.averaging import average_checkpoints
from nmt.config.commands import AverageConfig
from nmt.config.exchange import ExportConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.config.translation import TranslationOptions
from nmt.criterions.config import WordDistillationConfig
from nmt.formats.exporting import export_model
from nmt.models.loading import load_model
from nmt.models.recurrent.lstm import LSTMConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.training.assemble import train
from nmt.translation import Line, Translator
from tests.commands import run_copy
from tests.unit.formats.other_models import PIECES, dictionaries, fsmt, imported_checkpoint, state_of, write

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class There:
    """What the tests share; they write elsewhere."""

    one: Path
    two: Path
    corpus: Path  # in the pieces of both
    ours: Path  # a model that learned from the first


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, make_run: Callable[..., TrainConfig]) -> There:
    folder = tmp_path_factory.mktemp("imported")
    dictionaries(folder)
    state, models = state_of(fsmt(folder / "hf")), []
    for factor in (1.0, 0.8):
        write(folder / "model.pt", state | {name: array * factor for name, array in state.items() if "fc" in name})
        models.append(imported_checkpoint(folder, output=str(folder / str(len(models)))))
    chosen = random.Random(1)
    for split, count in (("train", 300), ("valid", 30)):
        lines = [" ".join(chosen.choices(PIECES[:-4], k=chosen.randint(2, 6))) for _ in range(count)]
        for language in ("en", "de"):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    config = PreprocessConfig("en", "de", trainpref=str(folder / "train"), validpref=str(folder / "valid"))
    corpus, pieces = str(folder / "corpus"), str(models[0])
    preprocess(dataclasses.replace(config, srcdict=pieces, tgtdict=pieces, destdir=corpus))
    student = make_run(
        folder,
        data=[corpus],
        model=LSTMConfig(embedding_size=16, hidden_size=16, dropout=0.0),
        criterion=WordDistillationConfig(teacher=str(models[0]), distillation_weight=1.0),
        training=TrainingConfig(max_update=30),
        validation=ValidationConfig(interval=None, interval_updates=15, samples=0),
    )
    train(student)
    return There(*models, Path(corpus), folder / "run")


def validations(run: Path) -> list[float]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [event["loss"] for event in events if event["event"] == "valid"]


def test_two_are_averaged(there: There, tmp_path: Path) -> None:
    inputs, output = [str(there.one), str(there.two)], str(tmp_path / "mean")
    average_checkpoints(AverageConfig(inputs=inputs, output=output, data=[str(there.corpus)], device="cpu"))
    one, two, mean = (load_model(folder, "cpu").arrays for folder in (there.one, there.two, tmp_path / "mean"))
    for name, array in mean.items():
        np.testing.assert_allclose(array, (one[name] + two[name]) / 2, rtol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_model_is_fine_tuned_and_exported_again(there: There, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    start = ["--config", str(there.one), "--finetune-from-model", str(there.one)]
    options = "--lr 0.01 --warmup-updates 4 --max-update 24 --max-tokens 400 --validate-interval-updates 8 --cpu"
    options += " validation.interval=null --valid-samples 0 --no-html --save-dir run"
    done = run_copy("train", there.corpus, *start, *options.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    losses = validations(tmp_path / "run")
    assert losses[0] > losses[1] > losses[2], losses
    changed, before = (load_model(folder, "cpu").config for folder in (tmp_path / "run", there.one))
    assert changed == before
    given = ExportConfig(path=str(tmp_path / "run"), format="ctranslate2", output=str(tmp_path / "ct2"), sentences=8)
    assert export_model(given).difference < 1e-4


def test_a_model_of_ours_learns_from_it(there: There) -> None:
    losses = validations(there.ours)
    assert losses[-1] < losses[0], losses


def test_it_translates_in_an_ensemble_with_ours_and_scores_what_is_given(there: There) -> None:
    """The probability that both give a piece is the mean of what each gives it."""
    lines = [Line("p1 p2 p3", reference="p3 p4"), Line("p7", reference="p25 p1 p1")]
    paths = [str(there.one), str(there.ours), f"{there.one}:{there.ours}"]
    scoring = TranslationOptions(score_reference=True)
    each: list[Any] = []
    for path in paths:
        found = Translator.load(path, "cpu").hypotheses(lines, scoring)
        each.append([np.exp(one.hypotheses[0].token_scores) for one in found])
    for one, ours, both in zip(*each, strict=True):
        np.testing.assert_allclose(both, (one + ours) / 2, rtol=1e-4)
    texts = Translator.load(paths[2], "cpu").translate(["p1 p2 p3"], beam=2, max_len_b=5)
    assert set(texts[0].split()) <= set(PIECES[:-4])


def test_a_translation_has_the_score_that_the_search_gave_it(there: There) -> None:
    translator = Translator.load(there.one, "cpu")
    (found,) = translator.translations(["p1 p2 p3"], beam=3, min_len=2, max_len_a=0, max_len_b=5)
    best = found.hypotheses[0]
    given = [Line("p1 p2 p3", reference=best.text)]
    (scored,) = translator.hypotheses(given, TranslationOptions(score_reference=True))
    assert scored.hypotheses[0].pieces == best.pieces
    assert scored.hypotheses[0].token_scores[:-1] == pytest.approx(best.token_scores[:-1], abs=1e-4)
