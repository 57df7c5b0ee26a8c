"""Validation: figures that do not depend on batches, and faults that do not end training."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.choices import Precision
from nmt.config.sections import BatchingConfig
from nmt.data.corpus.folder import Corpus, Split
from nmt.data.vocabulary import EOS
from nmt.distributed.world import World
from nmt.errors import DeviceError
from nmt.interface import Hypothesis
from nmt.scoring import Score, Scorer, TextOptions, scorers
from nmt.search.decoding import Engine
from nmt.search.requests import Sentences
from nmt.training.loop.batches import read_batch
from nmt.training.loop.learner import Arithmetic, Step
from nmt.training.loop.validation import LossValidator, TranslationValidator, ValidationStopped
from tests.unit.preprocessing.small_text import Text

FP32 = Arithmetic(torch.device("cpu"), Precision.fp32)
Make = Callable[..., Any]


def never() -> bool:
    return False


@pytest.mark.parametrize("batching", [BatchingConfig(10), BatchingConfig(1000), BatchingConfig(None, batch_size=1)])
def test_the_loss_is_the_mean_over_tokens_whatever_the_batches(
    make_step: Make, make_split: Make, batching: BatchingConfig
) -> None:
    step, split = make_step().eval(), make_split(20)
    alone = [step(read_batch(split, torch.tensor([index]).numpy())) for index in range(20)]
    expected = sum(float(report.nll_sum) for report in alone) / sum(len(split.target(index)) for index in range(20))
    figures = LossValidator(step, split, batching, FP32, World())(never)
    assert figures["nll"] == pytest.approx(expected, rel=1e-5)
    assert figures["loss"] == pytest.approx(expected, rel=1e-5)  # the criterion does not smooth
    assert figures["ppl"] == pytest.approx(math.exp(expected), rel=1e-5)


def test_sentences_beyond_max_tokens_are_validated_all_the_same(make_step: Make, make_split: Make) -> None:
    split = make_split(5)
    with_limit = LossValidator(make_step().eval(), split, BatchingConfig(max_tokens=1), FP32, World())(never)
    assert with_limit == pytest.approx(LossValidator(make_step().eval(), split, BatchingConfig(), FP32, World())(never))


def test_validation_computes_no_gradients(make_step: Make, make_split: Make) -> None:
    step: Step = make_step()
    LossValidator(step, make_split(5), BatchingConfig(), FP32, World())(never)
    assert all(parameter.grad is None for parameter in step.parameters())


def test_a_request_to_stop_ends_a_validation_between_batches(make_step: Make, make_split: Make) -> None:
    with pytest.raises(ValidationStopped):
        LossValidator(make_step(), make_split(5), BatchingConfig(), FP32, World())(lambda: True)


def test_a_validation_batch_that_the_gpu_cannot_hold_is_described(make_step: Make, make_split: Make) -> None:
    def exhausted(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    step = make_step()
    step.model.register_forward_pre_hook(exhausted)
    with pytest.raises(DeviceError, match=r"in validation, in a batch of 5 sentences .*--max-tokens"):
        LossValidator(step, make_split(5), BatchingConfig(), FP32, World())(never)


def test_a_validation_that_takes_long_says_how_far_it_is(
    copy_corpus: Path,
    make_step: Make,
    make_split: Make,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("nmt.progress.SECONDS_BETWEEN_LINES", 0.0)
    with caplog.at_level(logging.INFO, "nmt"):
        LossValidator(make_step(), make_split(5), BatchingConfig(None, batch_size=2), FP32, World())(never)
        translation_validator(copy_corpus, make_step(), sentences=5, batching=BatchingConfig(None, batch_size=3))(never)
    assert [message.partition(" sentences")[0] for message in caplog.messages] == [
        *(f"validation: loss of {done} of 5" for done in (2, 4, 5)),
        *(f"validation: translated {done} of 5" for done in (3, 5)),
    ]


class Second(World):
    """The second of two processes, which is told what the first one made."""

    rank, size = 1, 2

    def __init__(self, told: Any) -> None:
        self._told = told

    def part(self, items: Any) -> Any:
        return items

    def on_main(self, work: Callable[[], Any]) -> Any:
        return self._told


class Echo:
    """Translates each sentence as itself: on the copy task, perfectly."""

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        return [[Hypothesis(ids, 0.0, 0.0, np.zeros(len(ids)), None)] for ids in batch.sources]


class Broken:
    def find(self, engine: Engine, batch: Sentences) -> Any:
        raise RuntimeError("out of ideas")


def translation_validator(corpus: Path, step: Step, **changes: Any) -> TranslationValidator:
    opened = Corpus.open(corpus)
    parts: dict[str, Any] = {
        "search": Echo(),
        "split": opened.split("valid"),
        "scorers": {name: scorers.build(scorers.config_class(name)(), TextOptions()) for name in ("bleu", "exact")},
        "batching": BatchingConfig(max_tokens=50),
        "sentences": 1000,
        "samples": 0,
        "arithmetic": FP32,
        "world": World(),
    }
    return TranslationValidator(model=step.model, pair=opened.pair, **(parts | changes))


def test_a_perfect_translation_scores_in_full_whatever_the_order_of_batches(copy_corpus: Path, make_step: Make) -> None:
    scores = translation_validator(copy_corpus, make_step())(never)
    assert scores == {"bleu": pytest.approx(100.0), "exact": 100.0}


def test_references_are_made_of_ids_where_a_split_keeps_no_text(copy_corpus: Path, make_step: Make) -> None:
    split = Corpus.open(copy_corpus).split("train")
    assert split.targets.text() is None
    assert translation_validator(copy_corpus, make_step(), split=split, sentences=7)(never)["exact"] == 100.0


class Counting:
    """A scorer that keeps what it is given."""

    higher_is_better = True

    def __init__(self) -> None:
        self.hypotheses: list[str] = []

    def __call__(self, hypotheses: Any, references: Any) -> Any:
        self.hypotheses = list(hypotheses)
        return scorers.build(scorers.config_class("exact")(), TextOptions())(hypotheses, references)


@pytest.mark.parametrize("split", ["train", "valid"])
def test_text_that_was_cut_before_is_scored_and_shown_in_words(
    split: str, tmp_path: Path, make_step: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a split that keeps its text, and of one that does not."""
    text, counting = Text(tmp_path), Counting()
    text.write("train", ["ein hau@@ s", "rot"], ["ein hau@@ s", "rot"])
    text.write("valid", ["hau@@ s ein", "rot"], ["hau@@ s ein", "rot"])
    corpus, _ = text.make(joined_dictionary=True, validpref=f"{tmp_path}/valid")
    parts = {"split": corpus.split(split), "scorers": {"exact": counting}, "samples": 1}
    with caplog.at_level(logging.INFO, "nmt.training"):
        assert translation_validator(corpus.folder, make_step(), **parts)(never) == {"exact": 100.0}
    words = {"train": "ein haus", "valid": "haus ein"}[split]
    assert counting.hypotheses == [words, "rot"]
    shown = [message.split(":")[1].strip() for message in caplog.messages if message.startswith("sample")]
    assert shown == [words] * 3


def test_only_the_first_sentences_are_translated_if_so_limited(copy_corpus: Path, make_step: Make) -> None:
    counting: Scorer = Counting()
    translation_validator(copy_corpus, make_step(), scorers={"exact": counting}, sentences=3)(never)
    assert counting.hypotheses == Corpus.open(copy_corpus).split("valid").sources.text()[:3]  # type: ignore[index, attr-defined]


def test_samples_show_source_reference_and_hypothesis(
    copy_corpus: Path, make_step: Make, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        translation_validator(copy_corpus, make_step(), samples=2, scorers={})(never)
    lines = Corpus.open(copy_corpus).split("valid").sources.text() or []
    assert [message.split(":")[0] for message in caplog.messages] == [
        f"sample {number} {part}" for number in (1, 2) for part in ("source", "reference", "hypothesis")
    ]
    assert all(message.endswith(lines[number // 3]) for number, message in enumerate(caplog.messages))


def test_a_search_that_fails_is_reported_and_yields_no_scores(
    copy_corpus: Path, make_step: Make, caplog: pytest.LogCaptureFixture
) -> None:
    validator = translation_validator(copy_corpus, make_step(), search=Broken())
    assert validator(never) == {}
    assert validator.failures == {"translation": "RuntimeError: out of ideas"}
    assert "training continues" in caplog.text


def test_a_metric_that_fails_leaves_the_others_standing(copy_corpus: Path, make_step: Make) -> None:
    built = {"broken": Broken(), "exact": scorers.build(scorers.config_class("exact")(), TextOptions())}
    validator = translation_validator(copy_corpus, make_step(), scorers=built)
    assert validator(never) == {"exact": 100.0} and list(validator.failures) == ["broken"]


def test_the_first_process_finds_the_scores_of_all(copy_corpus: Path, make_step: Make) -> None:
    """Whatever a metric does in the others: they save or wait together."""
    world = Second(({"exact": 50.0}, {"bleu": "no memory"}))
    validator = translation_validator(copy_corpus, make_step(), world=world, scorers={"exact": Broken()})
    assert validator(never) == {"exact": 50.0}
    assert validator.failures == {"bleu": "no memory"}


def test_a_score_that_is_no_number_is_a_failure(copy_corpus: Path, make_step: Make) -> None:
    def wordy(*_: object) -> Score:
        return Score("wordy", "good", True, "")  # type: ignore[arg-type]

    validator = translation_validator(copy_corpus, make_step(), scorers={"wordy": wordy})
    assert validator(never) == {} and "could not convert" in validator.failures["wordy"]


class Chatty(Echo):
    """Writes a word more than there is, be there anything or nothing, and keeps how long the sentences were."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
        self.lengths += batch.lengths.tolist()
        return super().find(engine, Sentences([np.append(4, ids) for ids in batch.sources]))


class Given:
    """One side of a split: sentences of so many pieces, eos included."""

    def __init__(self, *lengths: int) -> None:
        self.lengths = np.array(lengths, dtype=np.int64)

    def __getitem__(self, index: int) -> Any:
        return np.array([4] * (int(self.lengths[index]) - 1) + [EOS])

    def text(self) -> list[str] | None:
        return None


@pytest.mark.parametrize("lengths", [(3, 1, 2, 1), (1, 1)], ids=["some", "all"])
def test_a_blank_line_is_not_translated(copy_corpus: Path, make_step: Make, lengths: tuple[int, ...]) -> None:
    """nmt-generate makes an empty line of it too."""
    counting, search = Counting(), Chatty()
    split = Split("valid", Given(*lengths), Given(*lengths))
    parts: dict[str, Any] = {"scorers": {"exact": counting}, "split": split, "search": search}
    translation_validator(copy_corpus, make_step(), **parts)(never)
    assert [len(line.split()) for line in counting.hypotheses] == [length if length > 1 else 0 for length in lengths]
    assert sorted(search.lengths) == sorted(length for length in lengths if length > 1)


def test_a_search_that_leaves_a_sentence_out_has_failed(copy_corpus: Path, make_step: Make) -> None:
    class Forgetful(Echo):
        def find(self, engine: Engine, batch: Sentences) -> list[list[Hypothesis]]:
            return super().find(engine, batch)[1:]

    validator = translation_validator(copy_corpus, make_step(), search=Forgetful())
    assert validator(never) == {} and list(validator.failures) == ["translation"]


def test_a_request_to_stop_is_no_failure(copy_corpus: Path, make_step: Make) -> None:
    validator = translation_validator(copy_corpus, make_step())
    with pytest.raises(ValidationStopped):
        validator(lambda: True)
    assert not validator.failures
