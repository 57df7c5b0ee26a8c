"""A smaller model of some layers: the same as a model that was built with these layers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.config.exchange import ExportConfig
from nmt.config.sections import TrainConfig, TrainingConfig
from nmt.errors import UsageError
from nmt.formats.exporting import export_model
from nmt.models.loading import load_model
from nmt.models.recurrent.config import LSTMConfig
from nmt.models.transformer.config import TransformerConfig, TransformerMoEConfig
from nmt.serving.config import ServeConfig
from nmt.serving.translating import LoadedModels
from nmt.training.assemble import train
from tests.commands import run_copy


@pytest.fixture(scope="module")
def run(make_run: Callable[..., TrainConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = TransformerConfig(3, 2, d_model=16, d_ff=24, num_heads=2, layer_dropout=0.3)
    config = make_run(tmp_path_factory.mktemp("layers"), model=model)
    train(config)
    return Path(config.checkpoint.save_dir)


def export(run: Path, folder: Path, **options: Any) -> Path:
    export_model(ExportConfig(path=str(run), output=str(folder), **options))
    return folder


def test_the_kept_layers_keep_their_order_and_parameters(run: Path, tmp_path: Path) -> None:
    small = export(run, tmp_path / "small", encoder_layers_to_keep=[3, 1], decoder_layers_to_keep=[2])
    whole, loaded = load_model(run, "cpu"), load_model(small, "cpu")
    assert (loaded.config.encoder_layers, loaded.config.decoder_layers) == (2, 1)
    pairs = {"encoder.layers.0": "encoder.layers.0", "encoder.layers.1": "encoder.layers.2"}
    pairs |= {"decoder.layers.0": "decoder.layers.1", "source_input": "source_input"}
    for own, original in pairs.items():
        names = [name for name in loaded.arrays if name.startswith(own + ".")]
        assert names and all((loaded.arrays[n] == whole.arrays[n.replace(own, original, 1)]).all() for n in names)
    assert whole.info.scores and not loaded.info.scores, "they were those of all layers"
    assert len(nmt.load(small).translate(["a b", "c"])) == 2


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_model_is_loaded_with_some_layers(run: Path, tmp_path: Path, engine: str) -> None:
    small = export(run, tmp_path / "small", encoder_layers_to_keep=[1, 3], decoder_layers_to_keep=[2])
    lines = ["a b c", "h h g", "d e"]
    whole = nmt.load(
        run, engine=engine
    )  # in memory at the same time: its packed matrices are not used for other layers
    loaded = nmt.load(run, engine=engine, encoder_layers_to_keep=[3, 1], decoder_layers_to_keep=[2])
    scores = [
        [line.hypotheses[0].score for line in each.translations(lines)]
        for each in (loaded, nmt.load(small, engine=engine), whole)
    ]
    assert scores[0] == scores[1] != scores[2]


def test_the_commands_load_some_layers(run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a b c\nh h g\n", encoding="utf-8")
    done = run_copy("generate", "--path", run, "--input", text, "--encoder-layers-to-keep", "2", "--workers", "1")
    translations = nmt.load(run, encoder_layers_to_keep=[2]).translate(["a b c", "h h g"])
    assert done.stdout.decode().splitlines() == translations
    served = LoadedModels.load(ServeConfig(path=[str(run)], encoder_layers_to_keep=[2]))
    assert [translator.translate(["a b c", "h h g"]) for translator in served.translators.values()] == [translations]


def test_layers_that_are_not_there_are_not_loaded(run: Path) -> None:
    with pytest.raises(UsageError, match="--decoder-layers-to-keep 3: name each layer once, from 1 to 2"):
        nmt.load(run, decoder_layers_to_keep=[3])


@pytest.mark.parametrize("layers", [1, 0, "1,3", ["1"]])
def test_layers_must_be_a_list_of_numbers(run: Path, layers: Any) -> None:
    with pytest.raises(UsageError, match="encoder_layers_to_keep=.* is not a list of layer numbers; give one, such as"):
        nmt.load(run, encoder_layers_to_keep=layers)


def test_layers_that_form_no_model_are_refused(make_run: Callable[..., TrainConfig], tmp_path: Path) -> None:
    model = TransformerMoEConfig(2, 1, d_model=16, d_ff=24, num_heads=2, num_experts=2)
    config = make_run(tmp_path, model=model, training=TrainingConfig(max_update=4))
    train(config)
    for engine in ("auto", "torch"):
        with pytest.raises(UsageError, match="with some of its layers holds another architecture: encoder.layers.0"):
            nmt.load(config.checkpoint.save_dir, engine=engine, encoder_layers_to_keep=[1])


def test_all_layers_are_the_model(run: Path, tmp_path: Path) -> None:
    same = export(run, tmp_path / "same", encoder_layers_to_keep=[1, 2, 3])
    lines = ["a b c", "h h g"]
    assert nmt.load(same).translate(lines) == nmt.load(run).translate(lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_layers_to_keep": [4]}, "--encoder-layers-to-keep 4: name each layer once, from 1 to 3"),
        ({"decoder_layers_to_keep": [0]}, "--decoder-layers-to-keep 0: name each layer once, from 1 to 2"),
        ({"encoder_layers_to_keep": [1, 1]}, "name each layer once"),
        ({"encoder_layers_to_keep": [1], "format": "safetensors"}, "omit --format safetensors"),
    ],
)
def test_layers_that_are_not_there_are_refused(
    run: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        export(run, tmp_path / "no", **options)
    assert not (tmp_path / "no").exists()


def test_other_stacks_are_refused(make_run: Callable[..., TrainConfig], tmp_path: Path) -> None:
    model = LSTMConfig(num_layers=2, embedding_size=8, hidden_size=8)
    config = make_run(tmp_path, model=model, training=TrainingConfig(max_update=4))
    train(config)
    with pytest.raises(UsageError, match="the encoder of .* cannot drop layers; omit it"):
        export(Path(config.checkpoint.save_dir), tmp_path / "no", encoder_layers_to_keep=[1])
