"""Models of transformers beside ours: the same scores after an import, and the same tensors after going there and back."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.sentencepiece import BpeConfig, SentencePieceBuilder
from nmt.data.vocabulary import BOS, EOS, UNK
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats.exporting import export_model
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from nmt.models.transformer.config import DecoderKind, FeedForwardKind, NormOrder, PositionKind
from nmt.translation import Translator
from tests.unit.formats.other_models import PIECES, assert_same_scores, fsmt, marian, theirs
from tests.unit.formats.stored import PAIR, store

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")


def imported(folder: Path, output: Path, **options: Any) -> Path:
    given = ImportConfig(from_format="huggingface", path=str(folder), output=str(output), **options)
    (found,) = import_model(given)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"activation_function": "gelu", "scale_embedding": False},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "activation_function": "relu"},
    ],
    ids=["as OPUS-MT", "gelu", "several embeddings"],
)
def test_an_imported_marian_model_gives_the_same_scores(tmp_path: Path, options: dict[str, Any]) -> None:
    model = marian(tmp_path / "there", **options)
    found = imported(tmp_path / "there", tmp_path / "here", source_lang="en", target_lang="de")
    ids = json.loads((tmp_path / "there" / "vocab.json").read_text())
    assert_same_scores(found, theirs(model, ids, ids))


@pytest.mark.parametrize("learned", [False, True])
def test_an_imported_fsmt_model_gives_the_same_scores(tmp_path: Path, learned: bool) -> None:
    model = fsmt(tmp_path / "there", learned=learned)
    found = imported(tmp_path / "there", tmp_path / "here")
    source, target = (json.loads((tmp_path / "there" / f"vocab-{side}.json").read_text()) for side in ("src", "tgt"))
    assert_same_scores(found, theirs(model, source, target))
    loaded = load_model(found, "cpu")
    assert loaded.pair.source_lang == "en"
    assert loaded.config.positions is (PositionKind.learned if learned else PositionKind.sinusoidal)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": NormOrder.pre, "attention_bias": True},
        {"share_all_embeddings": False, "share_decoder_embeddings": False, "output_bias": True},
    ],
    ids=["paper", "norms first", "several embeddings"],
)
def test_a_model_comes_back_tensor_by_tensor(tmp_path: Path, options: dict[str, Any]) -> None:
    before = store(tmp_path / "run", **options)
    compared = export_model(
        ExportConfig(path=str(before), format="huggingface", output=str(tmp_path / "there"), sentences=8, longest=128)
    )
    assert compared.difference < 1e-5 and compared.equal == compared.sentences == 8
    after = imported(tmp_path / "there", tmp_path / "back", source_lang="en", target_lang="de")
    one, other = load_model(before, "cpu"), load_model(after, "cpu")
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(other.arrays[name], array, err_msg=name)
    assert one.pair.digest() == other.pair.digest()


@pytest.mark.parametrize(("first", "forced"), [(False, None), (True, "p2")])
def test_translations_begin_with_a_language_only_if_the_model_wants_it(
    tmp_path: Path, first: bool, forced: str | None
) -> None:
    """A Marian model with --tag-side source or both."""
    languages = LanguageTokens({"en": "p1", "de": "p2"}, SourceToken.target, target=first)
    before = store(tmp_path / "run", replace(PAIR, languages=languages))
    compared = export_model(
        ExportConfig(path=str(before), format="huggingface", output=str(tmp_path / "there"), sentences=8, longest=128)
    )
    assert compared.equal == compared.sentences == 8
    used = json.loads((tmp_path / "there" / "generation_config.json").read_text())
    ids = json.loads((tmp_path / "there" / "vocab.json").read_text())
    assert json.loads((tmp_path / "there" / "config.json").read_text())["model_type"] == "marian"
    assert used.get("forced_bos_token_id") == ids.get(forced)


def test_an_export_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    there = tmp_path / "there"
    export_model(ExportConfig(path=str(store(tmp_path / "run")), format="huggingface", output=str(there), sentences=2))
    content = bytearray((there / "model.safetensors").read_bytes())
    content[-5] ^= 1  # of the last number
    (there / "model.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="model.safetensors is damaged"):
        imported(there, tmp_path / "back", source_lang="en", target_lang="de")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"decoder": DecoderKind.ssru}, "the model has SSRUs; export it to safetensors"),
        ({"positions": PositionKind.learned}, "sinusoidal positions, but the model has others"),
        ({"position_offset": 2}, "sinusoids from position 0 on"),
        ({"embedding_norm": True}, "no norm of the embeddings"),
        ({"feed_forward": FeedForwardKind.gelu_tanh}, "with relu, gelu or swish and without gates"),
        ({"decoder_norm": NormOrder.pre}, "one order of norms"),
        ({"norm_epsilon": 1e-6}, "layer norm with epsilon 1e-05"),
        ({"d_k": 5}, "num_heads, not 5; export it to safetensors"),
        ({"d_v": 6}, "num_heads, not 6; export it to safetensors"),
        (
            {"norm": NormOrder.pre, "share_decoder_embeddings": False, "share_all_embeddings": False},
            "Pegasus share all",
        ),
    ],
)
def test_what_it_cannot_hold_is_said(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    run = store(tmp_path / "run", **options)
    with pytest.raises(UsageError, match=says):
        export_model(ExportConfig(path=str(run), format="huggingface", output=str(tmp_path / "there")))
    assert not (tmp_path / "there").exists()


def test_models_of_other_kinds_are_refused_with_the_reason(tmp_path: Path) -> None:
    marian(tmp_path / "there")
    config = tmp_path / "there" / "config.json"
    tree = json.loads(config.read_text())

    def refused(says: str, kind: type[Exception] = DataError, **changed: Any) -> None:
        config.write_text(json.dumps(tree | changed))
        with pytest.raises(kind, match=says):
            imported(tmp_path / "there", tmp_path / "here", source_lang="en", target_lang="de")
        assert not (tmp_path / "here").exists()

    refused("type nllb-moe: it has layers of experts", model_type="nllb-moe")
    refused("type bart: it cuts text into bytes", model_type="bart")
    refused("type bert: nmt reads only marian, pegasus, fsmt", model_type="bert")
    refused("has the activation tanh", activation_function="tanh")
    refused("encoder_ffn_dim=24 and decoder_ffn_dim=48", decoder_ffn_dim=48)
    refused("has no d_model", d_model=None)
    refused("eos_token_id=99 is not an id", eos_token_id=99)
    refused("no tensor 'model.encoder.layers.2", encoder_layers=3)
    refused("tensors that nmt does not support: model.encoder.layers.1", encoder_layers=1)
    (tmp_path / "there" / "model.safetensors").unlink()
    refused("neither model.safetensors nor pytorch_model.bin, nor shards", MissingInputError)


@pytest.mark.parametrize("more", [{}, {"early_stopping": True}, {"early_stopping": "never", "length_penalty": 0.3}])
def test_an_imported_model_translates_as_there_without_options(tmp_path: Path, more: dict[str, Any]) -> None:
    """Except for the tokens that transformers may write and nmt does not."""
    model = marian(tmp_path / "made")
    with torch.no_grad():  # so that translations differ, and some end before the limit
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "positions" not in name:
                parameter.normal_(0, 2.4 if name.endswith("encoder_attn.out_proj.weight") else 0.3)
        model.final_logits_bias.zero_()[0, 0] = 3.0
    there, options = tmp_path / "there", {"num_beams": 4, "max_length": 24, **more}
    model.save_pretrained(there)
    (there / "generation_config.json").write_text(json.dumps(options))
    shutil.copy(tmp_path / "made" / "vocab.json", there)
    ids = json.loads((there / "vocab.json").read_text())
    lines = [[PIECES[(7 * row + 3 * column) % 30] for column in range(1 + row % 8)] for row in range(40)]
    theirs = [
        model.generate(
            input_ids=torch.tensor([[*(ids[piece] for piece in line), ids["</s>"]]]),
            bad_words_ids=[[ids["<unk>"]], [ids["<pad>"]]],
            min_new_tokens=1,
            **options,
        )[0].tolist()
        for line in lines
    ]
    found = imported(there, tmp_path / "here", source_lang="en", target_lang="de")
    ours = Translator.load(found, device="cpu").translations([" ".join(line) for line in lines])
    ended = [  # before the limit, where transformers gives </s> a probability of one
        ([ids[piece] for piece in one.hypotheses[0].pieces], other[1:-1])
        for one, other in zip(ours, theirs)
        if len(other) < 24
    ]
    assert [own for own, _ in ended] == [other for _, other in ended]
    assert len(ended) >= 20 and len(set(map(str, ended))) >= 4


def test_a_search_comes_back(tmp_path: Path) -> None:
    marian(tmp_path / "there")
    options = {"num_beams": 6, "length_penalty": 0.8, "max_length": 40, "early_stopping": "never"}
    (tmp_path / "there" / "generation_config.json").write_text(json.dumps(options))
    found = imported(tmp_path / "there", tmp_path / "here", source_lang="en", target_lang="de")
    search = load_model(found, "cpu").tree["search"]
    assert (search["beam_size"], search["lenpen"], search["length_penalty"]) == (6, 0.8, "power")
    assert (search["max_len_a"], search["max_len_b"], search["stop"]) == (0, 38, "bound")
    export_model(ExportConfig(path=str(found), format="huggingface", output=str(tmp_path / "back"), sentences=2))
    used = json.loads((tmp_path / "back" / "generation_config.json").read_text())
    assert used.items() >= options.items()


def test_an_export_that_says_something_else_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmt.formats.huggingface import writing

    run = store(tmp_path / "run")
    original = writing.tensors_of
    monkeypatch.setattr(
        writing,
        "tensors_of",
        lambda *model: {name: array + ("fc1.bias" in name) for name, array in original(*model).items()},
    )
    with pytest.raises(DataError, match="log-probabilities differ by .* nothing was written"):
        export_model(ExportConfig(path=str(run), format="huggingface", output=str(tmp_path / "there"), sentences=4))
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_learned_positions_that_claim_the_layout_of_sinusoids_are_refused(tmp_path: Path) -> None:
    fsmt(tmp_path / "there", learned=True)
    path = tmp_path / "there" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"nmt_sinusoid_layout": "interleaved"}))
    with pytest.raises(DataError, match="has learned positions, but nmt_sinusoid_layout requires sinusoidal ones"):
        imported(tmp_path / "there", tmp_path / "here")


@pytest.mark.parametrize("value", [0, -1, "many", 2.5, [1], {"a": 2}, None, True, 10**9])
def test_strange_configurations_are_refused(tmp_path: Path, value: Any) -> None:
    marian(tmp_path / "there")
    config = tmp_path / "there" / "config.json"
    tree = json.loads(config.read_text())
    sizes = "d_model encoder_layers decoder_layers encoder_attention_heads decoder_ffn_dim pad_token_id".split()
    for name in (*sizes, "activation_function", "model_type"):
        if (name, value) in (("decoder_ffn_dim", None), ("pad_token_id", 0)):
            continue  # nothing is said, which is nothing wrong; and 0 is an id
        config.write_text(json.dumps(tree | {name: value}))
        with pytest.raises(DataError):
            imported(tmp_path / "there", tmp_path / "here", source_lang="en", target_lang="de")
        assert not (tmp_path / "here").exists(), name


@pytest.mark.parametrize(
    "used", [{"num_beams": "x", "length_penalty": [1]}, {"num_beams": -1, "length_penalty": -1.0}, [1]]
)
def test_a_search_that_makes_no_sense_is_ours(tmp_path: Path, used: Any) -> None:
    marian(tmp_path / "there")
    (tmp_path / "there" / "generation_config.json").write_text(json.dumps(used))
    found = imported(tmp_path / "there", tmp_path / "here", source_lang="en", target_lang="de")
    assert load_model(found, "cpu").tree["search"]["beam_size"] == 5


def test_the_tokenizer_there_cuts_text_as_ours(tmp_path: Path) -> None:
    """And leaves out what begins a translation."""
    lines = [f"ein kleiner Mann geht {number} Schritte weit" for number in range(150)]
    tokenizer = SentencePieceBuilder(BpeConfig(vocab_size=60)).train(lines, seed=1)
    run = store(tmp_path / "run", LanguagePair("en", "de", tokenizer, tokenizer, shared=True))
    export_model(
        ExportConfig(path=str(run), format="huggingface", output=str(tmp_path / "there"), sentences=2, longest=128)
    )
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "there")
    ours = tokenizer.encode(lines)
    assert [theirs(line).input_ids for line in lines] == [[*ids.tolist(), EOS] for ids in ours]
    assert theirs.model_max_length == 128
    assert theirs.decode([BOS, *ours[3].tolist(), EOS], skip_special_tokens=True) == lines[3]


def test_text_with_the_token_of_a_language_is_cut_as_there(tmp_path: Path) -> None:
    """OPUS-MT's models of many languages: before the text stands into which it is to be translated."""
    lines = [f"ein kleiner Mann geht {number} Schritte weit" for number in range(150)]
    tokenizer = SentencePieceBuilder(BpeConfig(vocab_size=60)).train(lines, seed=1)
    symbols = ["</s>", "<unk>", *tokenizer.vocabulary.pieces[4:], ">>deu<<", ">>zlm_Latn<<", "<pad>"]
    marian(tmp_path / "there", symbols=symbols)
    for side in ("source", "target"):
        tokenizer.save(tmp_path / "there", side)
        (tmp_path / "there" / f"{side}.model").rename(tmp_path / "there" / f"{side}.spm")
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path / "there")
    ours = load_model(imported(tmp_path / "there", tmp_path / "here", source_lang="en", target_lang="de"), "cpu").pair
    for line in (">>deu<< ein Mann", ">>zlm_Latn<<ein Mann", "ein Mann", "ein >>deu<< Mann", ">>deu<<", " >>deu<< ein"):
        given = theirs(line).input_ids
        ids = ours.source.encode([line])[0].tolist()
        assert [symbols[number] for number in given] == [*(ours.source.vocabulary.pieces[one] for one in ids), "</s>"]
        if UNK not in ids:  # they omit it
            assert ours.source.decode(ids) == theirs.decode(given, skip_special_tokens=True)


def test_a_quantization_is_not_for_it(tmp_path: Path) -> None:
    run = store(tmp_path / "run")
    with pytest.raises(UsageError, match="--quantization int8 is only for ctranslate2"):
        export_model(
            ExportConfig(
                path=str(run), format="huggingface", output=str(tmp_path / "there"), quantization=Quantization.int8
            )
        )
