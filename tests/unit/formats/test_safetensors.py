"""Our own description of a model in a file of arrays and one of words, there and back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from nmt.config.choices import Segmentation
from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.formats import safetensors
from nmt.formats.exporting import ExportComparison, export_model
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from nmt.models.transformer.config import DecoderKind, FeedForwardKind, NormOrder, PositionKind
from nmt.models.transformer.own_weights import describe
from nmt.models.transformer.weights import arrays_of
from tests.unit.formats.stored import HELD, store

pytestmark = pytest.mark.slow
MORE: dict[str, dict[str, Any]] = {
    "recurrence": {"decoder": DecoderKind.ssru},
    "slopes": {"positions": PositionKind.alibi},
    "distances of each head": {"positions": PositionKind.relative, "relative_distance": 3},
    "wide heads": {"d_k": 10, "d_v": 7, "feed_forward": FeedForwardKind.geglu, "decoder_norm": NormOrder.pre},
    "other waves": {"sinusoid_base": 500.0, "position_offset": 3, "dropout": 0.3},
}


def exported(run: Path, output: Path, **options: Any) -> ExportComparison:
    return export_model(
        ExportConfig(path=str(run), format="safetensors", output=str(output), **({"sentences": 4} | options))
    )


def imported(folder: Path, output: Path, **options: Any) -> Path:
    (found,) = import_model(ImportConfig(from_format="safetensors", path=str(folder), output=str(output), **options))
    return found


@pytest.mark.parametrize("name", HELD | MORE)
def test_a_model_comes_back_tensor_by_tensor(tmp_path: Path, name: str) -> None:
    run = store(tmp_path / "run", **(HELD | MORE)[name])
    compared = exported(run, tmp_path / "there")
    assert compared.difference == 0 and compared.equal == compared.sentences == 4
    one, other = load_model(run, "cpu"), load_model(imported(tmp_path / "there", tmp_path / "back"), "cpu")
    assert one.config == other.config and one.arrays.keys() == other.arrays.keys()
    for key, array in one.arrays.items():
        np.testing.assert_array_equal(other.arrays[key], array, err_msg=key)
    assert one.pair.digest() == other.pair.digest()


def test_the_arrays_have_the_names_of_the_description_and_each_is_stored_once(tmp_path: Path) -> None:
    run = store(tmp_path / "run", dropout=0.2)
    exported(run, tmp_path / "there")
    stored = load_file(tmp_path / "there" / "model.safetensors")
    loaded = load_model(run, "cpu")
    weights = describe(loaded.config, loaded.sizes, loaded.arrays, "here")
    for name, array in arrays_of(weights):
        if name not in ("target.embedding", "output.weight"):
            np.testing.assert_array_equal(stored.pop(name), array)
    assert not stored
    description = json.loads((tmp_path / "there" / "description.json").read_text())
    assert description["same"] == {"target.embedding": "source.embedding", "output.weight": "source.embedding"}
    assert description["training"] == {
        "dropout": 0.2,
        **dict.fromkeys(("attention_dropout", "activation_dropout", "layer_dropout"), 0.0),
    }
    assert description["search"]["beam_size"] == 5


@pytest.mark.parametrize("name", ["model.safetensors", "description.json", "tokenizer/pair.json", "manifest.json"])
def test_an_export_with_a_flipped_bit_is_refused(name: str, there: Path, tmp_path: Path) -> None:
    """One bit of a weight would be another model."""
    folder = shutil.copytree(there, tmp_path / "there")
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{folder}.* is damaged"):
        imported(folder, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("key", ["kind", "format", "files", "written_by"])
def test_damage_of_a_key_of_the_manifest_does_not_hide_the_checksums(key: str, there: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(there, tmp_path / "there")
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace(f'"{key}"', f'"{key[:-1]}~"', 1))
    with pytest.raises(DataError, match="manifest.json|holds no export"):
        imported(folder, tmp_path / "back")


def test_the_model_card_of_an_export_may_be_edited_and_a_manifest_of_others_says_nothing(
    there: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(there, tmp_path / "there")
    (folder / "README.md").write_text("A better text.")
    imported(folder, tmp_path / "back")
    (folder / "manifest.json").write_text('{"name": "an application", "files": []}')
    imported(folder, tmp_path / "again")
    first, second = (load_model(tmp_path / name, "cpu").arrays for name in ("back", "again"))
    np.testing.assert_equal(dict(first), dict(second))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    exported(store(folder / "run", positions=PositionKind.learned, max_positions=40), folder / "there", sentences=1)
    return folder / "there"


def refused(there: Path, output: Path, tree: Any = None, arrays: Any = None) -> str:
    """What is said of a folder with another description or other arrays."""
    files = there / "description.json", there / "model.safetensors", there / "manifest.json"
    before = [path.read_bytes() for path in files]
    try:
        files[2].unlink()  # its checksums would say more
        if tree is not None:
            files[0].write_text(json.dumps(tree))
        if arrays is not None:
            save_file(arrays, files[1])
        with pytest.raises(DataError) as caught:
            imported(there, output)
    finally:
        for path, content in zip(files, before):
            path.write_bytes(content)
    assert not output.exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"format": 2}, "has format 2; this version reads format 1"),
        ({"num_heads": 0}, "num_heads=0 must be above zero"),
        ({"num_heads": "2"}, "num_heads='2' is not a whole number"),
        ({"num_heads": 3}, "attention_scale"),
        ({"start": 7}, "start=7 must be 0, 2 or 3"),
        ({"norm_epsilon": float("nan")}, "norm_epsilon=nan must be above zero"),
        ({"activation": "tanh"}, "activation='tanh' must be one of relu"),
        ({"activation": "sigmoid"}, "has activation sigmoid, which is not supported"),
        ({"attention_scale": 0.7}, "attention_scale=0.7; nmt supports only"),
        ({"more": 1}, "does not know the option more"),
        ({"source": {"scale": 4.0, "norm_first": False, "positions": "x"}}, "positions='x' must be one of"),
        ({"source": {"scale": 4.0, "norm_first": False, "positions": {"width": 6}}}, "positions of width 6"),
        ({"source": {"scale": 4.0, "norm_first": True, "positions": None}}, "no tensor 'source.norm.weight'"),
        ({"source": {"scale": 9.0, "norm_first": False, "positions": None}}, "scales of embeddings 9.0 and 4.0"),
        ({"source": {"scale": 4.0}}, "is damaged"),
        ({"same": {"a": "b"}}, "'a' is an invalid alias of 'b'"),
        ({"same": {"target.embedding": 1}}, "must be a mapping of names"),
        ({"same": {}}, "has no tensor 'target.embedding'"),
        ({"training": [1]}, "training=[1] must be a mapping"),
        ({"search": {"name": "nothing"}}, "unknown search 'nothing'"),
        ({"search": {"name": "beam", "beam_size": -1}}, "beam_size=-1"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(there: Path, tmp_path: Path, changed: Any, says: str) -> None:
    tree = json.loads((there / "description.json").read_text())
    assert says in refused(there, tmp_path / "back", tree=tree | changed)


def test_arrays_that_are_no_model_are_refused(there: Path, tmp_path: Path) -> None:
    arrays, output = load_file(there / "model.safetensors"), tmp_path / "back"
    inner, norm = "source.layers.1.feed_forward.inner", "target.layers.1.cross_norm.bias"
    gate = {"source.layers.1.feed_forward.gate.weight": arrays[f"{inner}.weight"]}
    assert "which is not supported together with its other parameters" in refused(there, output, arrays=arrays | gate)
    without = {name: array for name, array in arrays.items() if name != norm}
    assert f"no tensor '{norm}'" in refused(there, output, arrays=without)
    without = {name: array for name, array in arrays.items() if "layers.0" not in name}
    assert "no tensor 'source.layers.0.self_attention.query.weight'" in refused(there, output, arrays=without)
    assert "tensors that nmt does not support: other" in refused(there, output, arrays=arrays | {"other": arrays[norm]})
    short = arrays | {f"{inner}.weight": arrays[f"{inner}.weight"][:5]}
    assert "instead of (5)" in refused(there, output, arrays=short)
    whole = arrays | {norm: arrays[norm].astype(np.int64)}
    assert "holds int64, not floating-point numbers" in refused(there, output, arrays=whole)
    assert "check it for NaN" in refused(there, output, arrays=arrays | {norm: arrays[norm] * np.nan})


def test_truncated_and_scrambled_files_are_a_sentence(there: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for path in (there / "model.safetensors", there / "description.json"):
        content = path.read_bytes()
        try:
            for end in rng.integers(len(content) - 2, size=20):
                path.write_bytes(content[:end])
                with pytest.raises(DataError):
                    imported(there, tmp_path / "back")
                assert not (tmp_path / "back").exists()
            for place in rng.integers(min(len(content), 4000), size=40):
                path.write_bytes(content[:place] + rng.bytes(2) + content[place + 2 :])
                try:
                    imported(there, tmp_path / "back", overwrite=True)
                except NMTError as error:
                    assert error.exit_status == 65 and "\n" not in str(error)
        finally:
            path.write_bytes(content)


def test_what_is_missing_is_named(there: Path, tmp_path: Path) -> None:
    for name in ("description.json", "model.safetensors", "tokenizer/pair.json"):
        kept = (there / name).rename(tmp_path / "aside")
        with pytest.raises((MissingInputError, DataError), match="is missing"):
            imported(there, tmp_path / "back")
        kept.rename(there / name)


def test_an_export_that_is_another_model_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = safetensors._each_once

    def changed(weights: Any) -> Any:
        stored, same = original(weights)
        return {name: array + ("inner.bias" in name) for name, array in stored.items()}, same

    monkeypatch.setattr(safetensors, "_each_once", changed)
    run = store(tmp_path / "run")
    with pytest.raises(DataError, match="log-probabilities differ"):
        exported(run, tmp_path / "there")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_what_it_cannot_hold_is_said(tmp_path: Path) -> None:
    run = store(tmp_path / "run")
    with pytest.raises(UsageError, match="--quantization int8 is only for ctranslate2"):
        exported(run, tmp_path / "there", quantization=Quantization.int8)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("given", [{"srcdict": "x"}, {"bpe": Segmentation.subword_nmt}, {"moses": True}])
@pytest.mark.parametrize("from_format", ["safetensors", "huggingface"])
def test_a_whole_model_needs_nothing_beside_it(from_format: str, given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"a folder of {from_format} holds its .*tokenizers; omit --"):
        import_model(ImportConfig(from_format=from_format, path="there", output=str(tmp_path / "here"), **given))
