"""Runs on several directions: their batches, validation scores by direction, and translation afterwards."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.averaging import average_checkpoints
from nmt.config.choices import OutputFormat, Sides
from nmt.config.commands import GenerateConfig
from nmt.config.sampling import CorpusSamplingConfig
from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.criterions.config import CrossEntropyConfig
from nmt.data.corpus.folder import Corpus, open_corpora
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import BOS
from nmt.errors import DataError, UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import pointed
from nmt.training.assemble import train
from nmt.training.loop.batches import read_batch
from nmt.training.result import TrainingResult
from nmt.training.setup.datasets import open_datasets, stages_of
from nmt.translation import Translator
from tests.three_languages import PAIRS, ZERO_SHOT, make_corpus, options, write_text

MakeConfig = Callable[..., TrainConfig]
SCORED = ValidationConfig(samples=1, metrics=["exact"], best_metric="exact", interval=None, interval_updates=2)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("many") / "text", tag_side=Sides.both)


@pytest.fixture(scope="module")
def run(
    make_run: MakeConfig, corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainConfig, TrainingResult]:
    """A run of six updates with a validation after every second one."""
    folder = tmp_path_factory.mktemp("run")
    config = make_run(folder, data=[str(corpus)], validation=SCORED, training=TrainingConfig(max_update=6))
    config.criterion = CrossEntropyConfig()
    return config, train(config)


def validations(config: TrainConfig) -> list[dict[str, Any]]:
    lines = (Path(config.checkpoint.save_dir) / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "valid"]


def figures(event: dict[str, Any], metric: str) -> list[float]:
    return [event[f"{name}.{metric}"] for name in PAIRS]


def test_a_batch_starts_each_target_with_the_token_of_its_language(corpus: Path) -> None:
    one = open_corpora([corpus])[1]
    batch = read_batch(one.split("train"), np.arange(4))
    token = one.pair.target.vocabulary.id("<2fr>")
    assert batch.started == 1 and batch.target_in[:, :2].tolist() == [[BOS, token]] * 4
    assert token not in batch.targets.tolist() and batch.source[:, 0].tolist() == [token] * 4


def test_zero_shot_directions_are_never_trained(tiny_run: MakeConfig, corpus: Path) -> None:
    config = tiny_run(data=[str(corpus)], train_subset="valid")  # the only text of zero-shot directions
    opened = open_datasets(config)
    assert opened.directions == dict.fromkeys(PAIRS, 6) and len(opened.train) == 24
    assert opened.pair.languages is not None
    assert (opened.pair.languages.trained, opened.pair.languages.zero_shot) == (tuple(PAIRS), tuple(ZERO_SHOT))
    with pytest.raises(DataError, match="de-fr has only zero-shot directions, so there is nothing to train on"):
        open_datasets(tiny_run(data=[str(corpus / "de-fr")]))


def test_directions_are_sampled_with_weights_or_a_temperature(tiny_run: MakeConfig, corpus: Path) -> None:
    config = tiny_run(data=[str(corpus)], sampling=CorpusSamplingConfig(weights=[1, 1, 1, 3]))
    (stage,) = stages_of(config, open_datasets(config))
    assert stage.mixture is not None and stage.mixture.counts == (27, 27, 27, 80)
    config.sampling = CorpusSamplingConfig(weights=[1, 2])
    with pytest.raises(UsageError, match=r"2 weights \(1 2\) for 4 corpora \(.*/en-de, .*/fr-en\)"):
        stages_of(config, open_datasets(config))


def test_a_temperature_brings_directions_of_unequal_sizes_closer(tiny_run: MakeConfig, tmp_path: Path) -> None:
    write_text(tmp_path, train=90, valid=6)
    for language in ("en", "fr"):  # en-fr and fr-en have a tenth of the pairs of en-de and de-en
        lines = (tmp_path / f"train.{language}").read_text().splitlines(keepends=True)[:9]
        (tmp_path / f"train.en-fr.{language}").write_text("".join(lines))
    corpus = preprocess(options(tmp_path)).folder
    for temperature, counts in ((1, (90, 9, 90, 9)), (5, (61, 38, 61, 38))):
        config = tiny_run(data=[str(corpus)], sampling=CorpusSamplingConfig(temperature=temperature))
        (stage,) = stages_of(config, open_datasets(config))
        assert stage.mixture is not None and stage.mixture.counts == counts


def test_each_direction_is_validated_and_only_trained_ones_count_in_the_mean(run: tuple[TrainConfig, Any]) -> None:
    events = validations(run[0])
    assert len(events) == 3
    for event in events:
        for metric in ("loss", "nll", "exact"):
            assert event[metric] == pytest.approx(np.mean(figures(event, metric)))
            assert all(f"zero-shot.{name}.{metric}" in event for name in ZERO_SHOT)
        assert event["ppl"] == pytest.approx(math.exp(event["nll"]))


def test_the_best_checkpoint_is_that_of_the_mean_or_of_a_named_direction(
    make_run: MakeConfig, corpus: Path, tmp_path: Path, run: tuple[TrainConfig, TrainingResult]
) -> None:
    config = replace(run[0], validation=replace(SCORED, best_metric="valid.zero-shot.de-fr.loss", patience=9))
    config.checkpoint = replace(config.checkpoint, save_dir=str(tmp_path / "named"), save_interval_updates=2)
    result = train(config)
    assert result.metric == "zero-shot.de-fr.loss"
    assert result.best == min(event["zero-shot.de-fr.loss"] for event in validations(config))
    assert run[1].metric == "exact" and run[1].best == max(event["exact"] for event in validations(run[0]))
    average = average_checkpoints(
        inputs=[str(tmp_path / "named")], output=str(tmp_path / "mean"), num_best_checkpoints=2, metric="en-fr.loss"
    )
    assert {"loss", "en-fr.loss", "zero-shot.fr-de.exact"} <= average.scores[-1].scores.keys()
    assert (
        LanguagePair.load(average.folder / "tokenizer").languages
        == LanguagePair.load(tmp_path / "named" / "tokenizer").languages
    )


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            "valid.en-it.loss",
            r"=en-it.loss: the run validates en-de, .*, zero-shot.fr-de; name the metric of one of these, such as "
            r"en-de.loss \(--best-checkpoint-metric\)",
        ),
        ("de-fr.loss", "de-fr.loss: the run validates en-de, "),
    ],
)
def test_the_metric_of_another_direction_is_refused(
    tiny_run: MakeConfig, corpus: Path, metric: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(tiny_run(data=[str(corpus)], validation=ValidationConfig(best_metric=metric)))


def test_a_run_of_one_direction_keeps_its_names(tiny_run: MakeConfig, corpus: Path) -> None:
    config = tiny_run(data=[str(corpus / "en-de")], training=TrainingConfig(max_update=4))
    train(config)
    assert {"loss", "nll", "ppl"} == {name for name in validations(config)[0] if name[-4:] in ("loss", "nll", "ppl")}
    config = tiny_run(data=[str(corpus / "en-de")], validation=ValidationConfig(best_metric="en-de.loss"))
    with pytest.raises(UsageError, match="the run validates one direction; name its metric loss"):
        train(config)


def test_a_run_that_is_stopped_resumes_exactly(tmp_path: Path, run: tuple[TrainConfig, TrainingResult]) -> None:
    config, result = run
    stopped = replace(config, checkpoint=replace(config.checkpoint, save_dir=str(tmp_path / "stopped")))
    for updates in (4, 6):
        stopped.training = TrainingConfig(max_update=updates)
        train(stopped)
    last, whole = pointed(tmp_path / "stopped", "last"), pointed(result.folder, "last")
    assert last is not None and whole is not None
    again, expected = (read_checkpoint(path).model for path in (last, whole))
    assert all(bool((again[name] == tensor).all()) for name, tensor in expected.items())
    assert validations(stopped)[-1]["en-fr.exact"] == validations(config)[-1]["en-fr.exact"]


@pytest.mark.parametrize("side", [None, Sides.source])
def test_tokens_in_other_places_than_those_of_the_first_model_are_reported(
    make_run: MakeConfig,
    run: tuple[TrainConfig, TrainingResult],
    corpus: Path,
    tmp_path: Path,
    side: Sides | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write_text(tmp_path, train=9, valid=2)
    other = preprocess(options(tmp_path, srcdict=str(corpus), tag_side=side)).folder
    config = make_run(tmp_path / "run", data=[str(other)], training=TrainingConfig(max_update=4))
    config.criterion = CrossEntropyConfig()
    config.checkpoint = replace(config.checkpoint, finetune_from_model=str(run[1].folder))
    train(config)
    warned = [text for text in caplog.messages if "are in other places than those of" in text]
    assert len(warned) == (side is not None)


@pytest.mark.parametrize("direction", [*PAIRS, *ZERO_SHOT])
def test_scores_of_references_are_the_loss_of_their_direction(
    run: tuple[TrainConfig, TrainingResult], corpus: Path, direction: str
) -> None:
    """The trained loss, and the scores of a translation, omit the token that translations start with."""
    translator = Translator.load(run[1].folder, device="cpu")
    one = Corpus.open(corpus / direction)
    split, config = (
        one.split("valid"),
        GenerateConfig(data=[str(corpus)], score_reference=True, format=OutputFormat.jsonl),
    )
    scored = [
        score
        for translation in translator.hypotheses_of_split(split, config, None, None, one.pair.direction())
        for score in translation.hypotheses[0].token_scores
    ]
    assert split.targets is not None
    assert len(scored) == sum(len(split.target(number)) for number in range(len(split)))
    best = next(event for event in validations(run[0]) if event["exact"] == run[1].best)
    name = direction if direction in PAIRS else f"zero-shot.{direction}"
    assert -sum(scored) / len(scored) == pytest.approx(best[f"{name}.nll"], rel=1e-4)


def test_a_run_translates_all_its_directions(run: tuple[TrainConfig, TrainingResult], corpus: Path) -> None:
    translator, found = Translator.load(run[1].folder, device="cpu"), set[str]()
    for direction in (*PAIRS, *ZERO_SHOT):
        source, target = direction.split("-")
        (translation,) = translator.translations(["a b c"], source_lang=source, target_lang=target)
        found.add(translation.source_pieces[0])
    assert found == {"<2en>", "<2de>", "<2fr>"}


def test_corpora_of_single_directions_make_a_run_that_knows_all(
    tiny_run: MakeConfig, tmp_path: Path, corpus: Path
) -> None:
    text = corpus.parent
    for source, target in (("en", "de"), ("fr", "en")):
        single = {"source_lang": source, "target_lang": target, "tag": target, "joined_dictionary": True}
        preprocess(options(text, pairs=[], zero_shot=[], destdir=f"{tmp_path}/{source}-{target}", **single))
    config = tiny_run(data=[f"{tmp_path}/en-de", f"{tmp_path}/fr-en"], training=TrainingConfig(max_update=4))
    train(config)
    known = LanguagePair.load(tmp_path / "run" / "tokenizer").languages
    assert known is not None and known.trained == ("en-de", "fr-en") and {*known.tokens} >= {"en", "de", "fr"}
    assert {"loss", "en-de.loss", "fr-en.loss"} <= validations(config)[0].keys()
    with pytest.raises(DataError, match="have language tokens in different places; .* --tag-side"):
        open_corpora([tmp_path / "en-de", corpus / "en-fr"])
    for side in (Sides.target, Sides.both):
        single |= {"destdir": f"{tmp_path}/{side.value}", "tag_side": side}
        preprocess(options(text, pairs=[], zero_shot=[], **single))
    with pytest.raises(DataError, match="have language tokens in different places; .* --tag-side"):
        open_corpora([tmp_path / "target", tmp_path / "both"])


def test_the_log_has_a_line_for_each_direction(
    tiny_run: MakeConfig, corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        train(tiny_run(data=[str(corpus)], training=TrainingConfig(max_update=4)))
    assert "160 training pairs in 4 directions (en-de 40, en-fr 40, de-en 40, fr-en 40)" in caplog.text
    assert "update 4 | validation | loss " in caplog.text and "| best so far" in caplog.text
    assert all(f"update 4 | validation {name} | loss " in caplog.text for name in (*PAIRS, "zero-shot.de-fr"))
