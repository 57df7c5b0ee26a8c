"""Criterions are handed what their builders ask for, and runs with them go on exactly where they stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig, TrainingConfig, ValidationConfig
from nmt.criterions import Criterion, CriterionParts, criterions
from nmt.criterions.config import (
    CrossEntropyConfig,
    ExpectedRewardConfig,
    GuidedAlignmentConfig,
    MinimumRiskConfig,
    RDropConfig,
    RewardKind,
    WordDistillationConfig,
)
from nmt.criterions.sentence_rewards import sentence_bleu, sentence_gleu
from nmt.data.corpus.folder import Corpus
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.distributed.world import World
from nmt.errors import DataError, UsageError
from nmt.models.transformer.transformer import Transformer
from nmt.optim.schedules import ConstantConfig
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.assemble import train
from nmt.training.loop.trainer import Trainer
from nmt.training.setup import parts as criterion_parts
from nmt.training.setup.datasets import open_datasets
from nmt.training.setup.parts import build_criterion, sampler
from tests.unit.criterions.tiny import TinyModel, batch_of

pytestmark = pytest.mark.slow  # whole runs

MakeConfig = Callable[..., TrainConfig]
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def aligned_corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Letters to copy, word i aligned to word i; the validation split has no alignments."""
    folder = tmp_path_factory.mktemp("aligned")
    lines = [
        " ".join("abcdefgh"[(start * step + 3 * i) % 8] for i in range(2 + start % 4))
        for start in range(9)
        for step in (1, 3)
    ]
    for split, some in (("train", lines), ("valid", lines[:4])):
        for language in ("src", "tgt"):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    pairs = [" ".join(f"{i}-{i}" for i in range(len(line.split()))) for line in lines]
    (folder / "train.align").write_text("".join(f"{line}\n" for line in pairs), encoding="utf-8")
    options: dict[str, Any] = {"trainpref": f"{folder}/train", "validpref": f"{folder}/valid", "align_suffix": "align"}
    config = PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), joined_dictionary=True, **options)
    preprocess(replace(config, destdir=f"{folder}/corpus"))
    return folder / "corpus"


@dataclass
class AskingConfig:
    """For a criterion of a plugin."""

    reward: RewardKind = RewardKind.gleu


@pytest.fixture
def asking() -> Iterator[Callable[[Callable[..., Criterion]], AskingConfig]]:
    def register(builder: Callable[..., Criterion]) -> AskingConfig:
        criterions.register("asking", AskingConfig)(builder)
        return AskingConfig()

    yield register
    criterions._entries.pop("asking", None)


def built(config: TrainConfig) -> Criterion:
    return build_criterion(config, open_datasets(config), CPU, World())


def test_a_builder_without_parts_gets_none(tiny_run: MakeConfig) -> None:
    assert isinstance(built(tiny_run(criterion=CrossEntropyConfig())), Criterion)


@pytest.mark.parametrize(("kind", "expected"), [(RewardKind.gleu, sentence_gleu), (RewardKind.bleu, sentence_bleu)])
def test_the_reward_is_the_one_that_is_named(
    tiny_run: MakeConfig, asking: Callable[[Any], AskingConfig], kind: RewardKind, expected: Any
) -> None:
    seen: list[Any] = []

    def build(config: AskingConfig, reward: Any) -> Criterion:
        seen.append(reward)
        return criterions.build(CrossEntropyConfig())

    built(tiny_run(criterion=replace(asking(build), reward=kind)))
    assert seen == [expected]


def test_all_parts_come_in_one_object_and_are_made_when_they_are_read(
    tiny_run: MakeConfig, asking: Callable[[Any], AskingConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    monkeypatch.setattr(criterion_parts, "sampler", lambda *_: made.append("sampler"))

    def build(config: AskingConfig, parts: CriterionParts) -> Criterion:
        assert parts.reward is sentence_gleu and not made
        _ = parts.sampler, parts.sampler
        return criterions.build(CrossEntropyConfig())

    built(tiny_run(criterion=asking(build)))
    assert made == ["sampler"]


def test_a_criterion_of_a_plugin_gets_what_it_names_and_keeps_its_defaults(
    tiny_run: MakeConfig, asking: Callable[[Any], AskingConfig]
) -> None:
    seen: dict[str, Any] = {}

    def build(config: AskingConfig, *, sharpness: float = 2.0, **others: Any) -> Criterion:
        seen.update(sharpness=sharpness, **others)
        return criterions.build(CrossEntropyConfig())

    built(tiny_run(criterion=asking(build)))
    assert seen == {"sharpness": 2.0}


def test_a_part_that_nobody_makes_is_refused_by_name(
    tiny_run: MakeConfig, asking: Callable[[Any], AskingConfig]
) -> None:
    def build(config: AskingConfig, samplar: Any) -> Criterion: ...  # type: ignore[empty-body]

    with pytest.raises(
        UsageError, match=r"'asking' takes an unknown argument 'samplar' \(did you mean 'sampler'\?\); supported: "
    ):
        built(tiny_run(criterion=asking(build)))


def test_what_is_drawn_depends_on_the_seed_alone_and_can_take_part_in_gradients() -> None:
    batch = batch_of(([4, 5, 6], [5, 4]), ([7], [6, 6, 7]))
    sample = sampler(ExpectedRewardConfig(samples=5, max_len_b=4))
    model = TinyModel()
    one, again, other = (sample(model, batch, seed) for seed in (1, 1, 2))
    assert one.tokens.shape[:2] == (2, 5) and not one.tokens.is_inference()
    assert torch.equal(one.tokens, again.tokens) and one.tokens.tolist() != other.tokens.tolist()
    assert one.lengths.max() <= 3 + 4 + 1 and (one.lengths >= 1).all()


def run_folder(config: TrainConfig, name: str, **limits: Any) -> TrainConfig:
    folder = Path(config.checkpoint.save_dir).parent / name
    checkpoint = replace(config.checkpoint, save_dir=str(folder))
    return replace(config, checkpoint=checkpoint, scheduler=ConstantConfig(), training=TrainingConfig(**limits))


def weights(config: TrainConfig) -> dict[str, torch.Tensor]:
    stored = read_checkpoint(checkpoints_in(Path(config.checkpoint.save_dir))[-1]).model
    return {name: tensor.clone() for name, tensor in stored.items()}


def train_events(config: TrainConfig) -> list[dict[str, Any]]:
    lines = (Path(config.checkpoint.save_dir) / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "train"]


OBJECTIVES: list[tuple[Any, str | None]] = [
    (ExpectedRewardConfig(samples=3, max_len_b=3), "auxiliary_reward"),
    (MinimumRiskConfig(samples=4, max_len_b=3), None),
    (RDropConfig(), "auxiliary_divergence"),
    (WordDistillationConfig(), "auxiliary_distillation"),
    (GuidedAlignmentConfig(), "auxiliary_alignment"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("criterion", "figure"), OBJECTIVES, ids=lambda value: type(value).__name__)
def test_training_half_way_and_going_on_gives_the_weights_of_training_at_once(
    tiny_run: MakeConfig, aligned_corpus: Path, criterion: Any, figure: str | None
) -> None:
    validation = ValidationConfig(interval=None, interval_updates=2, samples=0)
    config = tiny_run(data=[str(aligned_corpus)], validation=validation)
    if isinstance(criterion, WordDistillationConfig):
        teacher = run_folder(config, "teacher", max_update=2)
        train(teacher)
        criterion = replace(criterion, teacher=teacher.checkpoint.save_dir)
    config = replace(config, criterion=criterion)
    whole = run_folder(config, "whole", max_update=4)
    train(whole)
    for max_update in (2, 4):
        halves = run_folder(config, "halves", max_update=max_update)
        train(halves)
    expected, found = weights(whole), weights(halves)
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert figure is None or figure in train_events(whole)[0]


@pytest.mark.parametrize(
    "criterion",
    [ExpectedRewardConfig(samples=3, max_len_b=3), MinimumRiskConfig(samples=4, max_len_b=3)],
    ids=lambda value: type(value).__name__,
)
def test_samples_of_a_model_whose_scores_are_not_numbers_cost_an_update_and_not_the_run(
    tiny_run: MakeConfig, monkeypatch: pytest.MonkeyPatch, criterion: Any
) -> None:
    next_batches, encode, begun = Trainer._next_batches, Transformer.encode, list[int]()

    def counting(self: Trainer, update: int) -> Any:
        begun.append(update)
        return next_batches(self, update)

    def poisoned(self: Transformer, *arguments: Any) -> Any:
        memory = encode(self, *arguments)
        return replace(memory, states=memory.states * float("nan")) if len(begun) == 2 else memory

    monkeypatch.setattr(Trainer, "_next_batches", counting)
    monkeypatch.setattr(Transformer, "encode", poisoned)
    config = replace(tiny_run(), criterion=criterion, validation=ValidationConfig(interval=None, samples=0))
    config.training.max_update = 4
    assert train(config).update == 4 and begun == [1, 2, 2, 3, 4]
    events = map(json.loads, (Path(config.checkpoint.save_dir) / "log.jsonl").read_text().splitlines())
    assert [event["update"] for event in events if event["event"] == "skipped"] == [2]


def test_a_corpus_without_alignments_is_refused_before_anything_is_built(
    tiny_run: MakeConfig, copy_corpus: Path, aligned_corpus: Path
) -> None:
    config = tiny_run(data=[str(aligned_corpus)], criterion=GuidedAlignmentConfig())
    assert open_datasets(config).train.alignments is not None
    with pytest.raises(DataError, match=rf"split 'train' of {copy_corpus} has none.*--align-suffix"):
        train(tiny_run(data=[str(copy_corpus)], criterion=GuidedAlignmentConfig()))


def test_distillation_without_a_teacher_is_refused(tiny_run: MakeConfig) -> None:
    with pytest.raises(UsageError, match="--teacher"):
        train(tiny_run(criterion=WordDistillationConfig()))


def test_a_run_can_start_from_the_parameters_of_another(tiny_run: MakeConfig, aligned_corpus: Path) -> None:
    first = run_folder(tiny_run(data=[str(aligned_corpus)]), "first", max_update=3)
    train(first)
    second = run_folder(tiny_run(data=[str(aligned_corpus)]), "second", max_update=1)
    second.checkpoint.finetune_from_model = first.checkpoint.save_dir
    second.optimizer.lr = 1e-12
    train(second)
    for name, tensor in weights(first).items():
        torch.testing.assert_close(weights(second)[name], tensor, rtol=0.0, atol=1e-6)


def student_of(run: TrainConfig) -> TrainConfig:
    return replace(run, criterion=WordDistillationConfig(teacher=run.checkpoint.save_dir))


def test_models_of_other_vocabularies_are_refused(tiny_run: MakeConfig, aligned_corpus: Path, tmp_path: Path) -> None:
    first = run_folder(tiny_run(data=[str(aligned_corpus)]), "first", max_update=1)
    train(first)
    for language in ("src", "tgt"):
        (tmp_path / f"other.{language}").write_text("x y\ny z\n", encoding="utf-8")
    options: dict[str, Any] = {"trainpref": f"{tmp_path}/other", "destdir": f"{tmp_path}/other-corpus"}
    preprocess(PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), **options))
    pair = Corpus.open(tmp_path / "other-corpus").pair
    with pytest.raises(DataError, match=r"first and the corpus have different vocabularies.*--srcdict"):
        build_criterion(student_of(first), replace(open_datasets(first), pair=pair), CPU, World())


def test_a_teacher_is_frozen_and_evaluates(tiny_run: MakeConfig, aligned_corpus: Path) -> None:
    first = run_folder(tiny_run(data=[str(aligned_corpus)]), "first", max_update=1)
    train(first)
    criterion = build_criterion(student_of(first), open_datasets(first), CPU, World())
    (teacher,) = vars(criterion)["_teacher"]
    assert not teacher.training and not any(parameter.requires_grad for parameter in teacher.parameters())


def test_a_teacher_may_move_but_not_become_another(tiny_run: MakeConfig, aligned_corpus: Path, tmp_path: Path) -> None:
    config = tiny_run(data=[str(aligned_corpus)], validation=ValidationConfig(interval=None, samples=0))
    train(run_folder(config, "teacher", max_update=1))
    train(run_folder(replace(config, seed=2), "other", max_update=1))

    def student(teacher: str, max_update: int) -> TrainConfig:
        criterion = WordDistillationConfig(teacher=f"{tmp_path}/{teacher}")
        return run_folder(replace(config, criterion=criterion), "student", max_update=max_update)

    train(student("teacher", 1))
    (tmp_path / "teacher").rename(tmp_path / "moved")
    assert train(student("moved", 2)).update == 2
    with pytest.raises(UsageError, match=r"criterion\.teacher: its parameters changed"):
        train(student("other", 3))
