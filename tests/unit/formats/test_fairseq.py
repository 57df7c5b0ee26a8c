"""Checkpoints as fairseq writes them. What they should say is computed by transformers, whose FSMT is fairseq's model."""

from __future__ import annotations

import argparse
import logging
import os
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.data.corpus.folder import Corpus
from nmt.errors import DataError, MissingInputError, OutputError, UsageError
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from nmt.models.transformer.config import PositionKind
from tests.unit.formats.other_models import (
    OPTIONS,
    assert_same_scores,
    dictionaries,
    fsmt,
    imported_checkpoint,
    state_of,
    theirs,
    write,
)
from tests.unit.preprocessing.test_fairseq_corpus import mapped

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("learned", [False, True])
def test_an_imported_checkpoint_gives_the_same_scores(tmp_path: Path, learned: bool) -> None:
    model = fsmt(tmp_path / "there", learned=learned)
    source, target = dictionaries(tmp_path)
    write(tmp_path / "model.pt", state_of(model))
    found = imported_checkpoint(tmp_path)
    assert_same_scores(found, theirs(model, source, target))
    config = load_model(found, "cpu").config
    assert config.positions is (PositionKind.learned if learned else PositionKind.sinusoidal)
    assert config.dropout == 0.25


def test_the_norm_of_the_embeddings_is_read(tmp_path: Path) -> None:
    state = state_of(fsmt(tmp_path / "there"))
    dictionaries(tmp_path)
    norms = {
        f"{side}.layernorm_embedding.{part}": torch.randn(16)
        for side in ("encoder", "decoder")
        for part in ("weight", "bias")
    }
    write(tmp_path / "model.pt", state | norms, layernorm_embedding=True)
    loaded = load_model(imported_checkpoint(tmp_path), "cpu")
    assert loaded.config.embedding_norm
    for side, name in (("encoder", "source_input"), ("decoder", "target_input")):
        for part in ("weight", "bias"):
            expected = norms[f"{side}.layernorm_embedding.{part}"]
            assert torch.equal(loaded.module.state_dict()[f"{name}.norm.{part}"], expected)


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_learned_positions_of_two_lengths_are_cut_to_the_shorter(
    tmp_path: Path, side: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = fsmt(tmp_path / "there", learned=True)
    source, target = dictionaries(tmp_path)
    state = state_of(model)
    state[f"{side}.embed_positions.weight"] = state[f"{side}.embed_positions.weight"][
        :22
    ]  # the first two are of padding
    write(tmp_path / "model.pt", state)
    with caplog.at_level(logging.WARNING, logger="nmt"):
        found = imported_checkpoint(tmp_path)
    assert_same_scores(found, theirs(model, source, target))
    assert load_model(found, "cpu").config.max_positions == 20
    assert "only the first 20 of each are used" in caplog.text


def test_the_last_of_several_entries_for_a_piece_is_what_text_is_read_as(tmp_path: Path) -> None:
    model = fsmt(tmp_path / "there")
    source, target = dictionaries(tmp_path)
    entries = (tmp_path / "dict.en.txt").read_text().splitlines()[:-1]
    (tmp_path / "dict.en.txt").write_text("\n".join([*entries, "p3 7 #fairseq:overwrite"]) + "\n")
    write(tmp_path / "model.pt", state_of(model))
    found = imported_checkpoint(tmp_path)
    assert_same_scores(found, theirs(model, source | {"p3": source["p29"]}, target))


def test_names_and_files_of_old_versions_are_read(tmp_path: Path) -> None:
    """Options in a namespace, queries, keys and values in one matrix, numbered norms, and torch's format before 1.6."""
    model = fsmt(tmp_path / "there")
    source, target = dictionaries(tmp_path)
    state = state_of(model)
    for name in [name for name in state if name.endswith(("q_proj.weight", "q_proj.bias"))]:
        parts = [state.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        state[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    numbers = {
        "self_attn_layer_norm": 0,
        "encoder_attn_layer_norm": 1,
        "final_layer_norm": {"encoder": 1, "decoder": 2},
    }
    for name in [name for name in state if "layer_norm" in name]:
        side, _, layer, norm, kind = name.split(".")
        number = numbers[norm]
        number = number[side] if isinstance(number, dict) else number
        state[f"{side}.layers.{layer}.layer_norms.{number}.{kind}"] = state.pop(name)
    checkpoint = {"args": argparse.Namespace(**OPTIONS), "model": state}
    torch.save(checkpoint, tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    assert_same_scores(imported_checkpoint(tmp_path), theirs(model, source, target))


def test_several_checkpoints_are_an_ensemble(tmp_path: Path) -> None:
    dictionaries(tmp_path)
    paths = [write(tmp_path / f"{name}.pt", state_of(fsmt(tmp_path / name))) for name in ("one", "two")]
    given = ImportConfig(
        from_format="fairseq",
        path=":".join(map(str, paths)),
        srcdict=str(tmp_path / "dict.en.txt"),
        tgtdict=str(tmp_path / "dict.de.txt"),
        source_lang="en",
        target_lang="de",
        output=str(tmp_path / "here"),
    )
    found = import_model(given)
    assert found == [tmp_path / "here" / "1", tmp_path / "here" / "2"]
    assert load_model(found[0], "cpu").pair.digest() == load_model(found[1], "cpu").pair.digest()
    again = replace(given, overwrite=True)
    assert import_model(again) == found
    one = replace(again, path=str(paths[0]))
    with pytest.raises(OutputError, match="here holds files that do not belong to a checkpoint"):
        import_model(one)
    import_model(replace(one, output=str(tmp_path / "single")))
    with pytest.raises(
        OutputError, match=r"single already holds .*, which is not one of the 2 models; choose another --output"
    ):
        import_model(replace(again, output=str(tmp_path / "single")))


def test_a_binarised_corpus_becomes_one_of_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the dictionaries that stand in its folder."""
    there = tmp_path / "data-bin"
    there.mkdir()
    source, target = dictionaries(there)
    for language, ids in (("en", source), ("de", target)):
        sentences = [[ids["p1"], ids["p2"], 2], [ids["p7"], 2], [2]]
        mapped(there / f"train.en-de.{language}", sentences)
    caplog.set_level(logging.INFO)
    output = imported_checkpoint(tmp_path, path=str(there), srcdict=None, tgtdict=None, output=str(tmp_path / "corpus"))
    assert "train: 2 of 3 pairs kept" in caplog.text and "train: 1 dropped: empty source" in caplog.text
    corpus = Corpus.open(output)
    split = corpus.split("train")
    assert len(split) == 2
    assert [corpus.pair.source.decode(split.source(number).tolist()) for number in range(2)] == ["p1 p2", "p7"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"arch": "fconv"}, "architecture fconv; nmt can import only Transformers"),
        ({"no_cross_attention": True}, "no_cross_attention=True, which nmt does not support"),
        ({"layernorm_embedding": True}, "has no tensor 'encoder.layernorm_embedding.weight'"),
        ({"adaptive_softmax_cutoff": [10, 20]}, "adaptive_softmax_cutoff"),
        ({"activation_fn": "tanh"}, "has the activation tanh"),
        ({"decoder_ffn_embed_dim": 48}, "encoder_ffn_embed_dim=24 and decoder_ffn_embed_dim=48"),
    ],
)
def test_what_no_model_of_ours_has_is_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    dictionaries(tmp_path)
    write(tmp_path / "model.pt", state_of(fsmt(tmp_path / "there")), **options)
    with pytest.raises(DataError, match=says):
        imported_checkpoint(tmp_path)
    assert not (tmp_path / "here").exists()


def test_what_does_not_fit_together_is_said(tmp_path: Path) -> None:
    dictionaries(tmp_path)
    state = state_of(fsmt(tmp_path / "there"))

    def refused(kind: type[Exception], says: str, **given: Any) -> None:
        with pytest.raises(kind, match=says):
            imported_checkpoint(tmp_path, **given)
        assert not (tmp_path / "here").exists()

    write(tmp_path / "model.pt", state)
    refused(DataError, "has 34 source tokens, but the vocabulary has 30", srcdict=str(tmp_path / "dict.de.txt"))
    refused(UsageError, "name the languages", source_lang="")
    refused(UsageError, "name the dictionary", srcdict=None)
    refused(UsageError, "needs the file that segmented the text: --bpe-model", bpe=Segmentation.sentencepiece)
    refused(UsageError, "give the kind of .*: --bpe", bpe_model=str(tmp_path / "dict.en.txt"))
    refused(UsageError, "--moses is for --bpe subword_nmt or fastbpe", moses=True)
    refused(MissingInputError, "does not exist|cannot read", path=str(tmp_path / "nowhere.pt"))
    write(tmp_path / "model.pt", state, share_all_embeddings=True)
    refused(DataError, "differs from the embedding")
    write(tmp_path / "model.pt", {name: tensor for name, tensor in state.items() if "fc2.bias" not in name})
    assert imported_checkpoint(tmp_path).is_dir()  # a linear map without a bias is one
    write(tmp_path / "model.pt", state | {"decoder.adaptive.head.weight": torch.zeros(2)})
    with pytest.raises(DataError, match="tensors that nmt does not support: decoder.adaptive.head.weight"):
        imported_checkpoint(tmp_path, output=str(tmp_path / "other"))


STRANGE = [
    torch.zeros(3),
    torch.zeros(0, 4),
    torch.zeros(5, 7, 2),
    torch.tensor(1.5),
    torch.zeros(16, 16).int(),
    "text",
    None,
]


@pytest.mark.slow
@pytest.mark.parametrize("strange", STRANGE, ids=[str(getattr(one, "shape", one)) for one in STRANGE])
def test_a_tensor_of_another_shape_is_refused_wherever_it_stands(tmp_path: Path, strange: Any) -> None:
    dictionaries(tmp_path)
    state = state_of(fsmt(tmp_path / "there", learned=True))
    read = [name for name in state if "layers.1" not in name and "version" not in name and "fc1_weight" not in name]
    for name in read:
        write(tmp_path / "model.pt", state | {name: strange})
        with pytest.raises(DataError):
            imported_checkpoint(tmp_path)
    assert not (tmp_path / "here").exists() and len(read) > 30


@pytest.mark.parametrize("value", [0, -3, "many", 1.5, [2], 7, {"a": 1}])
def test_strange_options_are_refused(tmp_path: Path, value: Any) -> None:
    dictionaries(tmp_path)
    state = state_of(fsmt(tmp_path / "there"))
    for name in ("encoder_attention_heads", "activation_fn", "no_cross_attention", "arch"):
        other = {"decoder_attention_heads": value} if name == "encoder_attention_heads" else {}
        write(tmp_path / "model.pt", state, **{name: value}, **other)
        if value == 0 and name != "encoder_attention_heads":  # not set
            continue
        with pytest.raises(DataError):
            imported_checkpoint(tmp_path)
    write(tmp_path / "model.pt", state, dropout=value)
    assert load_model(imported_checkpoint(tmp_path), "cpu").config.dropout == 0.1  # nothing depends on it: ours


class _Runs:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {os.environ['NMT_TEST_TOUCHED']}",)


def test_nothing_in_a_checkpoint_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dictionaries(tmp_path)
    touched = tmp_path / "touched"
    monkeypatch.setenv("NMT_TEST_TOUCHED", str(touched))
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(_Runs()))
    torch.save({"model": {}, "args": _Runs()}, tmp_path / "model.pt")
    for name in ("model.pt", "plain.pkl"):
        with pytest.raises(DataError, match="system"):
            imported_checkpoint(tmp_path, path=str(tmp_path / name))
    assert not touched.exists() and not (tmp_path / "here").exists()


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    dictionaries(tmp_path)
    path = write(tmp_path / "model.pt", state_of(fsmt(tmp_path / "there")))
    content = path.read_bytes()
    for damaged in (
        content[:-2000],
        content[: len(content) // 2],
        b"",
        b"no checkpoint",
        np.random.default_rng(1).bytes(500),
    ):
        path.write_bytes(damaged)
        with pytest.raises(DataError):
            imported_checkpoint(tmp_path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("model/data.pkl", b"\x00" * 2**24)
    with pytest.raises(DataError):
        imported_checkpoint(tmp_path)
    assert not (tmp_path / "here").exists()
