"""Runs with low-rank adapters: what they store, how they resume, and what translates, averages and exports them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import nmt
from nmt.averaging import average_checkpoints
from nmt.config.choices import Compilation, NumberFormat
from nmt.config.exchange import ExportConfig
from nmt.config.sections import CheckpointConfig, ParametersConfig, TrainConfig, TrainingConfig
from nmt.engines.native import NativeModel
from nmt.engines.packing import Packing
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats.exporting import export_model
from nmt.models.loading import load_model
from nmt.models.transformer.own_weights import describe
from nmt.optim.schedules import ConstantConfig
from nmt.storage.checkpoints import checksums
from nmt.storage.run_folder import checkpoints_in
from nmt.storage.tensor_file import read_tensors
from nmt.training.assemble import train

MakeConfig = Callable[..., TrainConfig]
LINES = ["a b c d", "h g", "c c a e f"]
NORM = "encoder.layers.0.self_residual.norm.bias"
LORA = ParametersConfig(lora_rank=3, lora_dropout=0.2, train_only=["*norm.bias"])


@pytest.fixture(scope="module")
def base(make_run: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = make_run(tmp_path_factory.mktemp("base"))
    train(config)
    return Path(config.checkpoint.save_dir)


def adapting(make_run: MakeConfig, folder: Path, base: Path, **changes: Any) -> TrainConfig:
    checkpoint = CheckpointConfig(str(folder / "run"), save_interval_updates=4, finetune_from_model=str(base))
    checkpoint.keep_training_states = 5
    parts = {"parameters": LORA, "scheduler": ConstantConfig(), "checkpoint": checkpoint}
    return make_run(folder, **(parts | changes))


@pytest.fixture(scope="module")
def adapter(make_run: MakeConfig, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = adapting(make_run, tmp_path_factory.mktemp("adapter"), base)
    train(config)
    return Path(config.checkpoint.save_dir)


def parameters(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(checkpoints_in(run)[-1] / "model.safetensors")


def test_checkpoints_hold_only_what_is_trained(base: Path, adapter: Path) -> None:
    stored, whole = parameters(adapter), parameters(base)
    assert all(name.endswith((".lora_up", ".lora_down", "norm.bias")) for name in stored) and len(stored) > 10
    assert not torch.equal(stored[NORM], whole[NORM])
    facts = load_model(adapter, "cpu").info.made["adapter"]
    (last,) = checkpoints_in(base)[-1:]
    assert facts == {"path": str(last.resolve()), "sha256": checksums(last)["model.safetensors"], "alpha": 6.0}


def test_the_base_is_unchanged_and_everything_else_is_added(base: Path, adapter: Path) -> None:
    whole, own = parameters(base), load_model(adapter, "cpu").module.state_dict()
    changed = {name for name in whole if not torch.equal(whole[name], own[name])}
    assert whole.keys() == own.keys()
    assert {name for name in changed if not name.endswith("norm.bias")} == {
        name for name in whole if name.endswith("weight") and "norm" not in name and "embedding" not in name
    } - {"output.weight"}


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(
    make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path
) -> None:
    shutil.copytree(adapter, tmp_path / "run")
    for name in ("last.json", "best.json"):
        (tmp_path / "run" / name).unlink()
    for path in checkpoints_in(tmp_path / "run"):
        if not path.name.endswith("00000004"):
            shutil.rmtree(path)
    train(adapting(make_run, tmp_path, base))
    expected, resumed = parameters(adapter), parameters(tmp_path / "run")
    assert expected.keys() == resumed.keys() and all(torch.equal(expected[name], resumed[name]) for name in expected)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_an_adapter_translates_like_the_model_that_it_is_merged_to(adapter: Path, tmp_path: Path, engine: str) -> None:
    export_model(ExportConfig(path=str(adapter), output=str(tmp_path / "whole"), merge=True))
    assert "adapter" not in load_model(tmp_path / "whole", "cpu").info.made
    translations = [nmt.load(path, engine=engine).translate(LINES) for path in (adapter, tmp_path / "whole")]
    assert translations[0] == translations[1]


def test_each_request_to_a_server_chooses_its_adapter(
    make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path
) -> None:
    pytest.importorskip("starlette", reason="nmt-serve needs Starlette: pip install 'nmt-toolkit[serve]'")
    from tests.serving.servers import running

    train(adapting(make_run, tmp_path, base, training=TrainingConfig(max_update=4), scheduler=ConstantConfig(), seed=7))
    folders = {"general": base, "first": adapter, "second": tmp_path / "run"}
    for name, folder in folders.items():
        shutil.copytree(folder, tmp_path / name)
    with running("--path", ",".join(str(tmp_path / name) for name in folders), "--workers", "1") as server:
        answers = [
            server.post("/v1/translate", {"text": LINES, "model": name, "scores": True}).json["translations"]
            for name in [*folders, "first"]
        ]
    all_scores = []
    for folder, answer in zip([*folders.values(), adapter], answers):
        expected = [line.hypotheses[0] for line in nmt.load(folder).translations(LINES)]
        hypotheses = [line["hypotheses"][0] for line in answer]
        assert [each["text"] for each in hypotheses] == [each.text for each in expected]
        all_scores.append([each["score"] for each in hypotheses])
        assert all_scores[-1] == pytest.approx([each.score for each in expected], abs=1e-4)
    assert all_scores[1] == all_scores[3] and len({tuple(scores) for scores in all_scores}) == 3


def test_an_adapter_can_be_adapted(make_run: MakeConfig, adapter: Path, tmp_path: Path) -> None:
    options = ParametersConfig(lora_rank=1, lora_on=["encoder.*"])
    train(adapting(make_run, tmp_path, adapter, parameters=options, training=TrainingConfig(max_update=4)))
    own, under = (load_model(run, "cpu").arrays for run in (tmp_path / "run", adapter))
    changed = {name for name in own if not (own[name] == under[name]).all()}
    assert changed and all(name.startswith("encoder.") for name in changed)


def test_adapters_of_one_base_are_averaged(base: Path, adapter: Path, tmp_path: Path) -> None:
    inputs = [str(path) for path in checkpoints_in(adapter)[-2:]]
    average = average_checkpoints(inputs=inputs, output=str(tmp_path / "mean")).folder
    sides = [read_tensors(Path(path) / "model.safetensors") for path in inputs]
    for name, tensor in read_tensors(average / "model.safetensors").items():
        torch.testing.assert_close(tensor, (sides[0][name] + sides[1][name]) / 2)
    assert len(nmt.load(average).translate(LINES)) == 3
    with pytest.raises(DataError, match="do not have the same base model"):
        average_checkpoints(
            inputs=[inputs[0], str(checkpoints_in(base)[-1])], output=str(tmp_path / "no"), validate=False
        )


def test_layers_that_run_again_change_no_bit(make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path) -> None:
    again = TrainingConfig(max_update=4, checkpoint_activations=True)
    train(adapting(make_run, tmp_path, base, training=again))
    first = read_tensors(checkpoints_in(adapter)[0] / "model.safetensors")
    assert checkpoints_in(adapter)[0].name.endswith("00000004")
    assert all(torch.equal(tensor, first[name]) for name, tensor in parameters(tmp_path / "run").items())


def test_another_or_missing_base_is_refused(make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path) -> None:
    other, moved = tmp_path / "other", tmp_path / "moved"
    train(replace(make_run(tmp_path, seed=2), checkpoint=CheckpointConfig(str(other))))
    shutil.copytree(adapter, moved)
    (moved / "base").symlink_to(other)
    with pytest.raises(
        DataError, match=r"is an adapter of another base model than .*other.*; put the model .* at .*moved.base"
    ):
        load_model(moved, "cpu")
    (moved / "base").unlink()
    kept = base.rename(tmp_path / "elsewhere")
    try:
        with pytest.raises(
            MissingInputError, match="is an adapter of the model .* which is missing; restore it, or put it at"
        ):
            load_model(moved, "cpu")
        (moved / "base").symlink_to(kept)
        load_model(moved, "cpu")
    finally:
        kept.rename(base)
    shutil.copytree(adapter, tmp_path / "again" / "run")
    shutil.copytree(base, tmp_path / "aside")
    shutil.rmtree(base)
    shutil.copytree(other, base)
    config = adapting(make_run, tmp_path / "again", base, training=TrainingConfig(max_update=20))
    with pytest.raises(UsageError, match="was trained on .* restore this base model and this option"):
        train(config)
    shutil.rmtree(base)
    shutil.copytree(tmp_path / "aside", base)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"lora_on": ["decoder.*atention.*"]},
            r"parameters.lora_on: decoder.\*atention.\* matches none .*attention.query",
        ),
        ({"lora_rank": 0}, "lora_rank"),
        ({"lora_rank": None}, "need an adapter; set its rank with --lora-rank"),
    ],
)
def test_options_without_effect_are_refused(
    make_run: MakeConfig, base: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(adapting(make_run, tmp_path, base, parameters=replace(LORA, **options)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": TrainingConfig(compile=Compilation.layers)}, "--compile would compile the model again"),
        (
            {"parameters": replace(LORA, source_embeddings="vectors")},
            "--lora-rank keeps the base model; omit .*--source-embeddings",
        ),
    ],
)
def test_options_that_adapters_exclude_are_refused(
    make_run: MakeConfig, base: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(adapting(make_run, tmp_path, base, **changes))


def test_adapters_need_a_trained_model(make_run: MakeConfig, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="--lora-rank needs a trained model to adapt; name it with --finetune-from-model"
    ):
        train(make_run(tmp_path, parameters=LORA))


def test_adapters_of_one_base_share_the_matrices_that_they_do_not_change(
    make_run: MakeConfig, base: Path, tmp_path: Path
) -> None:
    options = replace(
        LORA, lora_on=["encoder.*self_attention*"], train_only=["decoder.layers.0.feed_forward.inner.bias"]
    )
    paths = [base]
    for seed in (1, 2):
        train(adapting(make_run, tmp_path / str(seed), base, parameters=options, seed=seed))
        paths.append(tmp_path / str(seed) / "run")
    packings = [Packing(NumberFormat.float32, load_model(path, "cpu").checksum) for path in paths]
    for path, packing in zip(paths, packings):
        loaded = load_model(path, "cpu")
        NativeModel(describe(loaded.config, loaded.sizes, loaded.arrays, loaded.origin), packing)
    panels = [{name for name in packing.arrays if name.endswith(".panels")} for packing in packings]
    assert panels[1] == panels[2] < panels[0]
    assert panels[1] == {"source.0.look_output.panels", "source.0.projection.panels", "target.0.inner.panels"}
