"""Models, training and translation on the device that stands in for a GPU, against the CPU.

What a device of its own shows: tensors that were forgotten on the CPU, numbers that Python reads, memory that runs out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import nmt
from nmt.config.choices import Precision
from nmt.config.sections import (
    BatchingConfig,
    CheckpointConfig,
    DeviceConfig,
    ParametersConfig,
    TrainConfig,
    TrainingConfig,
    ValidationConfig,
)
from nmt.criterions import criterions
from nmt.criterions.config import RDropConfig
from nmt.data.language_pair import LanguagePair
from nmt.devices import choose_device, device_named, faults
from nmt.devices.kinds import Accelerator, device_of
from nmt.distributed.world import World
from nmt.doctor.outcomes import Outcome, results
from nmt.doctor.suite import full
from nmt.engines.ensemble import EnsembleEngine
from nmt.engines.model_engine import ModelDecoding, ModelEngine
from nmt.interface import Batch, LossReport
from nmt.models.transformer.config import TransformerConfig
from nmt.optim.config import MuonConfig, ScheduleFreeAdamWConfig
from nmt.optim.schedules import ConstantConfig
from nmt.search import searches
from nmt.search.config import BeamConfig, DiverseBeamConfig, GreedyConfig, SamplingConfig
from nmt.search.decoding import Scores
from nmt.search.requests import Sentences
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.tensor_file import read_tensors
from nmt.testing import conformance
from nmt.testing.subjects import Subject, kinds, subject, toy_batch
from nmt.training.assemble import train
from nmt.training.checkpoints.run_state import RunSettings
from nmt.training.loop.learner import Arithmetic, Step
from nmt.training.setup import parts
from tests.devices.stand_in import DEVICE, IS_CUDA, NAME, budget, memory_of
from tests.devices.waits import Wait, noted

BY_DAY = ("transformer", "lstm_bahdanau", "gnmt_tiny", "deep_att", "lstm_moe", "conv_s2s_tiny", "bytenet_tiny")
BY_DAY += ("neural_turing_machine", "memory_network", "neural_gpu_tiny", "transformer_moe_tiny", "lightconv")
AUTOCAST_BY_DAY = ("transformer", "lstm_bahdanau", "transformer_moe_tiny", "lightconv")
KINDS = kinds()


def some(by_day: tuple[str, ...]) -> list[Any]:
    """Return all models as parameters of a test, the others marked for the night."""
    return [
        pytest.param(kind, id=kind.name, marks=[] if kind.name in by_day else pytest.mark.nightly) for kind in KINDS
    ]


# Where the passes of an update wait for the device, and why they must.
EXPERTS = {
    ("bincount", "layers/experts.py"),
    ("_local_scalar_dense", "layers/experts.py"),
}  # the largest group is a shape
ALLOWED: Mapping[str, set[tuple[str, str]]] = {
    "transformer_moe": EXPERTS | {("index", "models/transformer/transformer_moe.py")},  # real positions are a shape
    "lstm_moe": EXPERTS | {("index", "models/recurrent/lstm_moe.py")},
}


def family(name: str) -> str:
    return next((known for known in ALLOWED if name.startswith(known)), name)


def places(waits: list[Wait]) -> set[tuple[str, str]]:
    return {(wait.operation, wait.file) for wait in waits}


def passes(of: Subject, device: str, precision: Precision) -> tuple[float, dict[str, torch.Tensor], list[Wait]]:
    """Return the loss and the gradients of a batch, and where the two passes waited."""
    criterion = criterions.build(criterions.config_class("label_smoothed_cross_entropy")())
    step = Step(of.model(), criterion).to(device).eval()
    arithmetic = Arithmetic(torch.device(device), precision)
    batch = toy_batch(of.built, [5, 3, 7, 4], [4, 6, 3, 5]).to(torch.device(device))
    with noted() as waits:
        with arithmetic.forward_pass():
            report = step(batch)
        report.loss_sum.backward()
        waited = [*waits]
    gradients = {name: part.grad.cpu() for name, part in step.named_parameters() if part.grad is not None}
    return float(report.loss_sum), gradients, waited


@pytest.mark.parametrize("model", some(BY_DAY))
def test_loss_and_gradients_are_those_of_the_cpu_and_nothing_is_waited_for(model: Subject) -> None:
    expected, there = (passes(model, device, Precision.fp32) for device in ("cpu", NAME))
    assert there[0] == pytest.approx(expected[0], rel=1e-4)
    assert there[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        torch.testing.assert_close(
            there[1][name], gradient, rtol=1e-3, atol=1e-4, msg=lambda text, n=name: f"{n}: {text}"
        )
    assert places(there[2]) == ALLOWED.get(family(model.name), set())


@pytest.mark.parametrize("model", some(AUTOCAST_BY_DAY))
def test_autocast_gives_nearly_the_same_loss(model: Subject) -> None:
    full, half = (passes(model, NAME, precision)[0] for precision in (Precision.fp32, Precision.bf16))
    assert half != full
    assert half == pytest.approx(full, rel=0.05)


LAWS_BY_DAY = (
    "steps_equal_teacher_forcing",
    "rows_commute_with_steps",
    "sentences_have_shortlists_of_their_own",
    "a_wide_beam_is_exhaustive",
)  # quick ones; half a second for all


@pytest.mark.parametrize("name", BY_DAY)
def test_the_model_obeys_quick_laws_on_the_device(name: str) -> None:
    for law in [law for law in conformance.LAWS if law.name in LAWS_BY_DAY]:
        law(replace(subject(name), device=NAME))


@pytest.mark.nightly
@pytest.mark.parametrize("model", KINDS, ids=str)
def test_the_model_obeys_every_law_on_the_device(model: Subject) -> None:
    conformance.check(replace(model, device=NAME))


SEARCHES = [BeamConfig(beam_size=3, max_len_b=5), DiverseBeamConfig(beam_size=4, groups=2, max_len_b=5)]
SEARCHES += [GreedyConfig(max_len_b=5), SamplingConfig(max_len_b=5, topp=0.9), SamplingConfig(max_len_b=5, topk=3)]


@pytest.mark.parametrize("config", SEARCHES, ids=lambda config: type(config).__name__)
@pytest.mark.parametrize("name", ["transformer_tiny", "lstm_tiny"])
def test_a_step_of_a_search_waits_once(name: str, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group of a diverse beam chooses after those before it, and waits."""
    step, steps = ModelDecoding.step, list[Scores]()
    monkeypatch.setattr(ModelDecoding, "step", lambda *arguments: steps.append(step(*arguments)) or steps[-1])
    sources = [np.array([5, 9, 7, 2]), np.array([6, 2])]
    found = {}
    for device in ("cpu", NAME):
        engine, before = ModelEngine(subject(name).model().to(device), device), len(steps)
        with noted() as waits:
            found[device] = searches.build(config, 1).find(engine, Sentences(sources))
        forced = 2  # steps at which a sentence ends at its limit; they read the scores of these tokens too
        at_most = getattr(config, "groups", 1) * (len(steps) - before + forced)
        assert len(waits) <= (at_most if device == NAME else 0), waits
    for here, there in zip(found["cpu"], found[NAME], strict=True):
        assert there[0].tokens.tolist() == here[0].tokens.tolist()
        assert there[0].score == pytest.approx(here[0].score, abs=1e-4)


def test_a_device_that_cannot_rank_integers_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, found = Sentences([np.array([5, 9, 7, 2]), np.array([6, 2])]), list[list[int]]()
    for ranks in (True, False):
        monkeypatch.setattr(type(device_of(DEVICE)), "ranks_int64", ranks)
        engine = ModelEngine(subject("transformer_tiny").model().to(DEVICE), DEVICE)
        with noted() as waits:
            search = searches.build(BeamConfig(beam_size=3, max_len_b=5), 1)
            found.append([best[0].tokens.tolist() for best in search.find(engine, sources)])
            found[-1].append(len(waits))
    *translations, waited = zip(*found, strict=True)
    assert all(first == second for first, second in translations) and waited[1] > waited[0]


def test_the_attention_of_an_ensemble_comes_with_its_translations() -> None:
    sources, found = Sentences([np.array([5, 9, 7, 2]), np.array([6, 2])], attention=True), {}
    for device in ("cpu", NAME):
        members = [ModelEngine(subject("transformer_tiny").model(seed).to(device), device) for seed in (1, 2)]
        search = searches.build(BeamConfig(beam_size=3, max_len_b=5), 1)
        found[device] = search.find(EnsembleEngine(members), sources)
    for here, there in zip(found["cpu"], found[NAME], strict=True):
        assert there[0].tokens.tolist() == here[0].tokens.tolist()
        np.testing.assert_allclose(there[0].attention, here[0].attention, atol=1e-5)


# Nothing is compiled: torch's compiler has no kernels for the device. Whole runs are tested by commands.
LEFT_OUT = ("compiled", "all devices", "a killed rank", "speed")
SLOW = ("training step: ", "forecast of memory")  # on the second device


def test_every_check_of_the_doctor_passes_or_says_why_not() -> None:
    left_out = LEFT_OUT if IS_CUDA else (*LEFT_OUT, *SLOW)
    found = list(results([check for check in full() if not check.name.startswith(left_out)], [DEVICE]))
    assert [result for result in found if result.outcome is Outcome.failed] == []
    skipped = {result.check for result in found if result.outcome is Outcome.skipped}
    assert skipped == (set() if IS_CUDA else {"attention without padding", "recorded steps", "no waiting in an update"})
    assert len(found) > (50 if IS_CUDA else 8)


def test_the_device_is_chosen_by_name_and_by_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device_named(NAME) == NAME and choose_device(f"{NAME}:0") == DEVICE
    assert isinstance(device_of(DEVICE), Accelerator)
    assert device_named("auto") == NAME


def test_a_run_keeps_what_it_began_without(
    runs: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path))
    file, entry = tmp_path / "devices.json", faults.versions(DEVICE)

    def train_until(update: int, *recorded: str) -> str:
        monkeypatch.setattr(faults, "_avoided", {})
        caplog.clear()
        file.write_text(json.dumps({faults.hardware_name(DEVICE): {**entry, "faults": recorded}}), encoding="utf-8")
        with caplog.at_level("INFO", "nmt"):
            runs("run", NAME, Precision.usual, training=replace(LIMITS, max_update=update))
        return caplog.text

    other = "fp16" if device_of(DEVICE).halves else "fp32"
    kept = f"training on {NAME} in {other} (chosen by --precision usual)"
    assert kept in (log := train_until(4, "bf16")) and "because nmt-doctor failed: bf16" in log
    assert kept in train_until(5)
    warning = "nmt-doctor failed after this run had started: fused optimizer; the resumed run still uses it"
    assert warning in (log := train_until(6, "bf16", "fused_optimizer")) and kept in log
    values = json.loads((checkpoints_in(tmp_path / "run")[-1] / "training.json").read_text())
    assert values["avoided"] == ["bf16"]


@pytest.mark.parametrize(
    ("avoided", "computed_on", "expected"),
    [
        (["bf16", "of another version"], f"{NAME} in fp32", {faults.FastPath.bf16}),
        ([], f"{NAME} in fp32", set()),
        ([], "cpu in fp32", {faults.FastPath.tf32}),
        (None, f"{NAME} in fp32", {faults.FastPath.tf32}),
    ],
    ids=["kept", "kept, nothing", "another kind of device", "before there was a record"],
)
def test_a_resumed_run_avoids_what_it_avoided_on_this_kind_of_device(
    avoided: list[str] | None, computed_on: str, expected: set[faults.FastPath], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "recorded_faults", lambda device: frozenset({faults.FastPath.tf32}))
    monkeypatch.setattr(faults, "_avoided", {})
    settings = RunSettings("", {}, 1, None, 1, "fp32", computed_on, {}, avoided)
    parts._avoid_faults(DEVICE, World(), settings)
    assert faults.avoided(DEVICE) == expected


@pytest.fixture
def runs(tiny_run: Callable[..., TrainConfig], tmp_path: Path) -> Callable[..., Path]:
    """Trains in a folder on a device; other arguments replace sections of the configuration."""

    def run(folder: str, device: str, precision: Precision = Precision.fp32, **sections: Any) -> Path:
        config = tiny_run(device=DeviceConfig(device, precision), search=GreedyConfig(max_len_b=4), **sections)
        config.checkpoint = replace(config.checkpoint, save_dir=str(tmp_path / folder))
        train(config)
        return tmp_path / folder

    return run


def losses(run: Path) -> dict[str, float]:
    """Losses of training and validation, by event and update."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return {f"{e['event']} {e['update']}": e["loss"] for e in events if e["event"] in ("train", "valid")}


def skipped(run: Path) -> list[int]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [event["update"] for event in events if event["event"] == "skipped"]


def weights(run: Path) -> dict[str, Tensor]:
    return read_tensors(checkpoints_in(run)[-1] / "model.safetensors")


# A CPU draws dropout in its own way, and the halves of a batch draw other numbers than the whole.
WITHOUT_DROPOUT = TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, dropout=0.0)
LIMITS = TrainingConfig(max_update=8, clip_norm=1.0)
CHECKED = ValidationConfig(interval_updates=4, metrics=("bleu",), samples=0, max_sentences=4)


@pytest.mark.parametrize(
    "sections",
    [
        pytest.param({}, id="adam"),
        pytest.param({"optimizer": MuonConfig()}, id="muon"),
        pytest.param({"optimizer": ScheduleFreeAdamWConfig(), "scheduler": ConstantConfig()}, id="schedule_free"),
        pytest.param({"criterion": RDropConfig()}, id="r_drop"),
        pytest.param({"training": replace(LIMITS, ema_decay=0.9)}, id="mean_of_weights"),
    ],
)
def test_training_on_the_device_is_training_on_the_cpu(runs: Callable[..., Path], sections: dict[str, Any]) -> None:
    options = {"training": LIMITS, "validation": CHECKED, "model": WITHOUT_DROPOUT} | sections
    here, there = (runs(device, device, **options) for device in ("cpu", NAME))
    assert losses(there) == pytest.approx(losses(here), rel=1e-3) and len(losses(there)) > 3
    for name, expected in weights(here).items():
        torch.testing.assert_close(weights(there)[name], expected, rtol=1e-2, atol=1e-3)


def test_embeddings_of_a_file_stay_on_the_device(runs: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text(f"a {' '.join(['0.5'] * 16)}\n", encoding="utf-8")
    parameters = ParametersConfig(source_embeddings=str(tmp_path / "v.txt"), freeze_embeddings=True)
    run = runs("run", NAME, training=LIMITS, model=WITHOUT_DROPOUT, parameters=parameters)
    row = LanguagePair.load(run / "tokenizer").source.vocabulary.id("a")
    assert bool((weights(run)["source_input.embedding.table.weight"][row] == 0.5).all())


def test_an_adapter_on_the_device_is_that_of_the_cpu(
    runs: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some updates are NaN: the device skips them itself, before the CPU knows of them."""
    base = runs("base", "cpu", training=LIMITS, model=WITHOUT_DROPOUT)
    forward = Step.forward

    def spoilt(step: Step, batch: Batch) -> LossReport:
        report = forward(step, batch)
        is_spoilt = step.training and bool((batch.sentence_ids % 29 == 0).any())
        return replace(report, loss_sum=report.loss_sum * float("nan")) if is_spoilt else report

    monkeypatch.setattr(Step, "forward", spoilt)
    options = {"model": WITHOUT_DROPOUT, "parameters": ParametersConfig(lora_rank=2, train_only=["*norm.bias"])}
    options["checkpoint"] = CheckpointConfig(finetune_from_model=str(base))
    here, there = (runs(device, device, training=LIMITS, **options) for device in ("cpu", NAME))
    runs("parts", NAME, training=replace(LIMITS, max_update=4), **options)
    parts = runs("parts", NAME, training=LIMITS, **options)
    assert skipped(here) == skipped(there) == skipped(parts) and 0 < len(skipped(here)) < 8
    assert any(name.endswith(".lora_up") for name in weights(here)) and weights(here).keys() == weights(there).keys()
    for name, expected in weights(here).items():
        torch.testing.assert_close(weights(there)[name], expected, rtol=1e-2, atol=1e-3)
        assert torch.equal(weights(parts)[name], weights(there)[name])


@pytest.mark.parametrize("precision", [Precision.bf16, Precision.fp16])
def test_a_run_that_stopped_goes_on_exactly(runs: Callable[..., Path], precision: Precision) -> None:
    undisturbed = runs("whole", NAME, precision, training=LIMITS, validation=CHECKED)
    runs("parts", NAME, precision, training=replace(LIMITS, max_update=5), validation=CHECKED)
    resumed = runs("parts", NAME, precision, training=LIMITS, validation=CHECKED)
    assert losses(resumed).items() >= losses(undisturbed).items() and len(losses(undisturbed)) > 3
    before, after = weights(undisturbed), weights(resumed)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_the_device_skips_updates_without_weight(
    runs: Callable[..., Path], make_copy_corpus: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The next update is launched before Python knows."""
    corpus = make_copy_corpus(weights=(0, 0, 2, 0.5), train=24, valid=4)
    batching = BatchingConfig(batch_size=1)
    options = {"data": [str(corpus)], "batching": batching, "training": LIMITS, "model": WITHOUT_DROPOUT}
    here, there = (runs(device, device, **options) for device in ("cpu", NAME))
    assert caplog.text.count("all weights of its pairs are 0") > 4
    assert losses(there) == pytest.approx(losses(here), rel=1e-3)
    for name, expected in weights(here).items():
        torch.testing.assert_close(weights(there)[name], expected, rtol=1e-2, atol=1e-3)


def test_an_update_waits_for_nothing_but_its_numbers(runs: Callable[..., Path]) -> None:
    """Training reads a report of an update while the next one is computed, and copies a checkpoint at once."""
    waits = {}
    for updates in (4, 8):
        with noted() as noted_waits:
            runs(str(updates), NAME, training=replace(LIMITS, max_update=updates))
            waits[updates] = Counter((wait.file, wait.function) for wait in noted_waits)
    one_checkpoint_more = {
        ("training/loop/learner.py", "all_finite"): 1,
        ("training/checkpoints/writer.py", "_on_cpu"): 2,
    }
    assert waits[8] - waits[4] == Counter(one_checkpoint_more), "parameters, and the state of the optimizer"


def test_a_batch_that_does_not_fit_is_computed_in_halves(
    runs: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    # CUDA's allocator gives memory in pieces of 2 MiB.
    model = replace(WITHOUT_DROPOUT, d_model=128, d_ff=512) if IS_CUDA else WITHOUT_DROPOUT
    large = {"training": LIMITS, "batching": BatchingConfig(max_tokens=800), "model": model}
    need = memory_of(lambda: runs("roomy", NAME, **large))
    with budget(0.7 * need), caplog.at_level("WARNING", "nmt"):
        short = runs("short", NAME, **large)
    assert "out of memory" in caplog.text and "are split in halves" in caplog.text
    assert losses(short) == pytest.approx(losses(short.with_name("roomy")), rel=1e-4)


def test_a_checkpoint_is_copied_where_no_memory_is_left() -> None:
    """All tensors are packed on the device for one copy, unless there is no room for that."""
    tensors = [torch.full((2**20,), float(number), device=DEVICE) for number in range(3)]
    with budget(0):
        copies = device_of(DEVICE).copied(tensors)
    assert [copy.unique().tolist() for copy in copies] == [[0.0], [1.0], [2.0]]
    assert {copy.device.type for copy in copies} == {"cpu"}


def test_translating_goes_on_in_halves_if_memory_is_short(runs: Callable[..., Path]) -> None:
    folder = str(runs("run", NAME, training=LIMITS))
    translator = nmt.load(folder, device=NAME, precision="fp32")
    lines = [" ".join("abcdefgh"[: 1 + number % 8]) for number in range(40)]
    expected = list[str]()
    need = memory_of(lambda: expected.extend(translator.translate(lines)))
    with budget(0.6 * need):
        assert translator.translate(lines) == expected
    assert nmt.load(folder, device="cpu").translate(lines) == expected
