"""Runs with low-rank adapters: what they store, how they resume, and what translates, averages and exports them."""

from __future__ import annotations

import os
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
from nmt.models.transformer.config import TransformerConfig
from nmt.models.transformer.own_weights import describe
from nmt.optim.schedules import ConstantConfig
from nmt.storage.checkpoints import FORMAT, KIND, checksums
from nmt.storage.files import read_manifest, replace_manifest
from nmt.storage.run_folder import checkpoints_in, set_pointer
from nmt.storage.tensor_file import read_tensors
from nmt.training.assemble import train
from nmt.translation import Translator
from nmt.translation.attention_view import module_of

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


def rewritten(adapter: Path, folder: Path, **facts: Any) -> Path:
    """Return a copy of a run folder whose checkpoints note other facts of their base model, and no relative path."""
    shutil.copytree(adapter, folder)
    for path in checkpoints_in(folder):
        manifest = read_manifest(path, KIND, FORMAT)
        manifest["made"]["adapter"] |= {"relative": "", **facts}
        replace_manifest(path, manifest)
    return folder


def half_way(adapter: Path, folder: Path) -> Path:
    """Return a copy of a run folder with its first checkpoint only."""
    shutil.copytree(adapter, folder)
    for path in checkpoints_in(folder)[1:]:
        shutil.rmtree(path)
    for name in ("last.json", "best.json"):
        (folder / name).unlink()
    return folder


def trained_on(base: Path, folder: Path) -> Path:
    """Return a copy of the base model's run folder whose best checkpoint is another one."""
    shutil.copytree(base, folder)
    set_pointer(folder, "best", checkpoints_in(folder)[0])
    return folder


def parameters(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(checkpoints_in(run)[-1] / "model.safetensors")


def test_checkpoints_hold_only_what_is_trained(base: Path, adapter: Path) -> None:
    stored, whole = parameters(adapter), parameters(base)
    assert all(name.endswith((".lora_up", ".lora_down", "norm.bias")) for name in stored) and len(stored) > 10
    assert not torch.equal(stored[NORM], whole[NORM])
    facts = load_model(adapter, "cpu").info.made["adapter"]
    (last,) = checkpoints_in(base)[-1:]
    expected = {"path": str(last.resolve()), "sha256": checksums(last)["model.safetensors"], "alpha": 6.0}
    assert facts == expected | {"relative": os.path.relpath(last, adapter)}


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
    half_way(adapter, tmp_path / "run")
    train(adapting(make_run, tmp_path, base))
    expected, resumed = parameters(adapter), parameters(tmp_path / "run")
    assert expected.keys() == resumed.keys() and all(torch.equal(expected[name], resumed[name]) for name in expected)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_an_adapter_translates_like_the_model_that_it_is_merged_to(adapter: Path, tmp_path: Path, engine: str) -> None:
    export_model(ExportConfig(path=str(adapter), output=str(tmp_path / "whole"), merge=True))
    assert "adapter" not in load_model(tmp_path / "whole", "cpu").info.made
    translations = [nmt.load(path, engine=engine).translate(LINES) for path in (adapter, tmp_path / "whole")]
    assert translations[0] == translations[1]
    size = sum(tensor.numel() for tensor in read_tensors(tmp_path / "whole/model.safetensors").values())
    card = (tmp_path / "whole/README.md").read_text(encoding="utf-8")
    assert f": {size:,} parameters." in card and "without changes" not in card


@pytest.mark.parametrize("merge", [True, False])
def test_some_layers_of_an_adapted_model_are_exported(make_run: MakeConfig, tmp_path: Path, merge: bool) -> None:
    parts = {
        "model": TransformerConfig(2, 1, d_model=16, d_ff=24, num_heads=2),
        "training": TrainingConfig(max_update=4),
    }
    train(make_run(tmp_path / "base", **parts))
    train(adapting(make_run, tmp_path, tmp_path / "base/run", **parts))
    export_model(
        ExportConfig(str(tmp_path / "run"), output=str(tmp_path / "one"), merge=merge, encoder_layers_to_keep=[2])
    )
    expected = nmt.load(tmp_path / "run", encoder_layers_to_keep=[2]).translate(LINES)
    assert nmt.load(tmp_path / "one").translate(LINES) == expected


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


def averaged(*runs: Path, output: Path) -> Path:
    inputs = [str(checkpoints_in(run)[-1]) for run in runs]
    return average_checkpoints(inputs=inputs, output=str(output), validate=False).folder


def test_adapters_of_a_base_that_was_copied_are_averaged(base: Path, adapter: Path, tmp_path: Path) -> None:
    copy = checkpoints_in(shutil.copytree(base, tmp_path / "copy"))[-1]
    other = rewritten(adapter, tmp_path / "other", path=str(copy))
    assert nmt.load(averaged(adapter, other, output=tmp_path / "mean")).translate(LINES)


def test_adapters_are_averaged_without_their_base(adapter: Path, tmp_path: Path) -> None:
    moved = rewritten(adapter, tmp_path / "moved", path="/gone")
    assert (averaged(moved, adapter, output=tmp_path / "mean") / "model.safetensors").is_file()


def test_the_average_of_adapters_stores_where_their_base_was_found(base: Path, adapter: Path, tmp_path: Path) -> None:
    (last,) = checkpoints_in(base)[-1:]
    linked = rewritten(adapter, tmp_path / "linked", path=f"/gone/{last.name}")
    (linked / "base").symlink_to(base)
    average = averaged(linked, output=tmp_path / "mean")
    assert load_model(average, "cpu").info.made["adapter"]["path"] == str(last.resolve())


def test_adapters_of_other_matrices_are_not_averaged(
    make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path
) -> None:
    options = replace(LORA, lora_on=["encoder.*"])
    train(adapting(make_run, tmp_path, base, parameters=options, training=TrainingConfig(max_update=4)))
    with pytest.raises(DataError, match=r"run/checkpoint-\S+ lacks decoder\.\S+\.lora_\w+, which \S+ has; omit one"):
        averaged(tmp_path / "run", adapter, output=tmp_path / "mean")


def test_adapters_of_another_base_or_alpha_are_not_averaged(base: Path, adapter: Path, tmp_path: Path) -> None:
    others = {
        "a whole model": base,
        "an adapter with alpha 5 of the base model with checksum ": rewritten(adapter, tmp_path / "alpha", alpha=5.0),
        "an adapter with alpha 6 of the base model with checksum 0123": rewritten(
            adapter, tmp_path / "missing", sha256="0123", path="no"
        ),
    }
    for kind, other in others.items():
        with pytest.raises(
            DataError, match=f"cannot average different kinds .* is an adapter with alpha 6 .* is {kind}"
        ):
            averaged(adapter, other, output=tmp_path / "mean")
    replaced = rewritten(adapter, tmp_path / "replaced", sha256="0123")
    with pytest.raises(DataError, match="base model is at none of these places .*base0.*: another model"):
        averaged(replaced, output=tmp_path / "mean")
    assert not (tmp_path / "mean").exists()


def test_layers_that_run_again_change_no_bit(make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path) -> None:
    again = TrainingConfig(max_update=4, checkpoint_activations=True)
    train(adapting(make_run, tmp_path, base, training=again))
    first = read_tensors(checkpoints_in(adapter)[0] / "model.safetensors")
    assert checkpoints_in(adapter)[0].name.endswith("00000004")
    assert all(torch.equal(tensor, first[name]) for name, tensor in parameters(tmp_path / "run").items())


def test_the_base_model_is_found_by_its_checksum(base: Path, adapter: Path, tmp_path: Path) -> None:
    first, last = checkpoints_in(base)[0], load_model(adapter, "cpu").base
    assert last is not None
    alone = shutil.copytree(checkpoints_in(adapter)[-1], tmp_path / "alone")
    shutil.copytree(adapter / "tokenizer", alone / "tokenizer")
    (tmp_path / "base").symlink_to(first)
    found = load_model(alone, "cpu").base
    assert found is not None and found.path == last.path
    moved = rewritten(adapter, tmp_path / "moved", path=f"/gone/{last.path.name}")
    (moved / "base").symlink_to(trained_on(base, tmp_path / "general"))
    found = load_model(moved, "cpu").base
    assert found is not None and found.checksum == last.checksum


def test_an_adapter_outside_its_run_finds_its_base_in_its_own_folder(base: Path, adapter: Path, tmp_path: Path) -> None:
    moved = rewritten(adapter, tmp_path / "run", path="/gone/checkpoint")
    alone = shutil.copytree(checkpoints_in(moved)[-1], tmp_path / "alone")
    shutil.copytree(adapter / "tokenizer", alone / "tokenizer")
    with pytest.raises(MissingInputError, match=r"a link to it, at \S+/alone/base$"):
        load_model(alone, "cpu")
    (alone / "base").symlink_to(checkpoints_in(base)[-1])
    assert load_model(alone, "cpu").base is not None


def test_an_adapter_and_its_base_can_be_moved_together(make_run: MakeConfig, base: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(base, folder / "general")
    train(adapting(make_run, folder / "adapter", folder / "general", training=TrainingConfig(max_update=4)))
    averaged(folder / "adapter/run", output=folder / "mean")
    folder = folder.rename(tmp_path / "moved")
    for path in (folder / "adapter/run", folder / "mean"):
        found = load_model(path, "cpu").base
        assert found is not None and found.path == checkpoints_in(folder / "general")[-1]


def test_messages_name_each_place_once(make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path) -> None:
    run = rewritten(adapter, tmp_path / "run", sha256="0123")
    (run / "base").symlink_to(base)
    with pytest.raises(DataError, match=rf"these places \({run}/base: another model\); put"):
        load_model(run, "cpu")
    shutil.rmtree(run)
    half_way(adapter, run)
    hidden = base.rename(tmp_path / "hidden")
    try:
        with pytest.raises(MissingInputError, match=rf"these places \({base}: no model; {run}/base: no model\); put"):
            train(adapting(make_run, tmp_path, base))
    finally:
        hidden.rename(base)


def test_another_or_missing_base_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    moved = rewritten(adapter, tmp_path / "moved", path="/gone")
    link, places = moved / "base", "is an adapter, and its base model is at none of these places"
    advice = "put the model that it was trained on, or a link to it, at .*moved/base"
    for target in (None, link):  # a link to itself leads nowhere
        if target is not None:
            link.symlink_to(target)
        with pytest.raises(MissingInputError, match=rf"{places} \(.*moved/base: no model; /gone: no model\); {advice}"):
            load_model(moved, "cpu")
    for target in (checkpoints_in(base)[0], moved):
        link.unlink()
        link.symlink_to(target)
        with pytest.raises(DataError, match=rf"{places} \(.*moved/base: another model; /gone: no model\); {advice}"):
            load_model(moved, "cpu")


@pytest.mark.parametrize("is_named", [True, False])
def test_a_run_resumes_on_its_base_model_wherever_it_is_now(
    make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path, is_named: bool
) -> None:
    run, moved = half_way(adapter, tmp_path / "run"), trained_on(base, tmp_path / "moved")
    hidden = base.rename(tmp_path / "hidden")
    try:
        if not is_named:
            (run / "base").symlink_to(moved)
        train(adapting(make_run, tmp_path, moved if is_named else base))
    finally:
        hidden.rename(base)
    assert all(torch.equal(tensor, parameters(run)[name]) for name, tensor in parameters(adapter).items())
    assert load_model(run, "cpu").info.made["adapter"]["path"] == str(checkpoints_in(moved)[-1])


def test_a_run_does_not_resume_on_another_base_model(
    make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path
) -> None:
    half_way(adapter, tmp_path / "run")
    (other,) = checkpoints_in(base)[:1]
    with pytest.raises(UsageError, match="was not trained on .*; resume it with --finetune-from-model .*, or choose"):
        train(adapting(make_run, tmp_path, other))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lora_rank": 2}, "parameters.lora_rank: 3 -> 2"),
        ({"lora_alpha": 5.0}, "parameters.lora_alpha: 6.0 -> 5.0"),
        ({"lora_on": ["decoder.*"]}, r"parameters.lora_on: null -> \['decoder.\*'\]"),
        ({"train_only": []}, "parameters.train_only: "),
        ({"freeze": ["decoder.*"]}, "parameters.freeze: "),
        ({"lora_rank": None, "lora_dropout": 0.0}, "parameters.lora_rank: 3 -> null"),
    ],
)
def test_options_that_an_adapter_depends_on_cannot_change(
    make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    half_way(adapter, tmp_path / "run")
    config = adapting(make_run, tmp_path, base, parameters=replace(LORA, **changes))
    for config.checkpoint.reset in (False, True):
        with pytest.raises(UsageError, match=rf"cannot change on resume \({message}.*--finetune-from-model"):
            train(config)


@pytest.mark.parametrize("alpha", [None, 6.0])
def test_a_run_resumes_with_the_same_alpha_by_default_or_by_option(
    make_run: MakeConfig, base: Path, tmp_path: Path, alpha: float | None
) -> None:
    four = TrainingConfig(max_update=4)
    train(adapting(make_run, tmp_path, base, parameters=replace(LORA, lora_alpha=alpha), training=four))
    other = replace(LORA, lora_alpha=6.0 if alpha is None else None)
    assert (
        train(adapting(make_run, tmp_path, base, parameters=other, training=TrainingConfig(max_update=8))).update == 8
    )


def test_the_dropout_of_an_adapter_can_change(make_run: MakeConfig, base: Path, adapter: Path, tmp_path: Path) -> None:
    half_way(adapter, tmp_path / "run")
    config = adapting(make_run, tmp_path, base, parameters=replace(LORA, lora_dropout=0.0))
    with pytest.raises(UsageError, match=r"\(parameters.lora_dropout: 0.2 -> null\).* resume with --reset-optimizer"):
        train(config)
    config.checkpoint.reset_optimizer = True
    assert train(config).update == 12


def test_an_export_of_an_adapter_needs_merge_or_a_format(adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is an adapter; add --merge to write a whole .*, or --format to"):
        export_model(ExportConfig(path=str(adapter), output=str(tmp_path / "no")))
    assert not (tmp_path / "no").exists()


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
    alone = Translator.load(paths[1], "cpu", engine="torch").translate(["ein mann", "rot"])
    translators = [Translator.load(path, "cpu", engine="torch") for path in paths]
    modules = [module_of(translator.members[0]) for translator in translators]
    tensors = [dict(module.named_parameters()) for module in modules]
    changed = {name for name, tensor in tensors[0].items() if tensors[1][name] is not tensor}
    assert changed == {name for name, tensor in tensors[0].items() if tensors[2][name] is not tensor}
    assert all(tensors[1][name] is not tensors[2][name] for name in changed)
    bias = "decoder.layers.0.feed_forward.inner.bias"
    assert {name for name in changed if "encoder.layers.0.self_attention" not in name} == {bias}
    assert len(changed) > 1 and translators[1].translate(["ein mann", "rot"]) == alone
