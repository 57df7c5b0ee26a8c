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
from nmt.models.transformer.config import TransformerConfig
from nmt.training.assemble import train


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
