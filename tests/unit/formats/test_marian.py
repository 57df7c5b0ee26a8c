"""Marian's own models: the same scores as by Marian's formula, and whatever belongs to a model found beside it."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import yaml

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from nmt.translation import Translator
from tests.unit.formats.marian_formula import Array, MarianFormula
from tests.unit.formats.stored import scores

WIDTH, INNER, LAYERS = 16, 24, 2
PIECES = [f"p{number}" for number in range(30)]
SYMBOLS = ["</s>", "<unk>", *PIECES]
SOURCE, TARGET = ["p3", "p8", "p1", "p20"], ["p4", "p25", "p4"]
# As ``marian train`` writes them, as far as they matter to a Transformer.
OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": WIDTH,
    "enc-depth": LAYERS,
    "dec-depth": LAYERS,
    "input-types": [],
    "right-left": False,
    "transformer-heads": 2,
    "transformer-dim-ffn": INNER,
    "transformer-decoder-dim-ffn": 0,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "swish",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-tied-layers": [],
    "version": "v1.12.42 b7be0e964 2025-05-24 22:34:42 -0700",
}
PRE = {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"}
RMS = {"transformer-preprocess": "dr", "transformer-postprocess": "da", "transformer-postprocess-top": "r"}


def arrays(options: dict[str, Any], embeddings: str = "Wemb", output: str = "", rows: int = 32) -> dict[str, Array]:
    """A random model under Marian's names."""
    random, norm = np.random.default_rng(5), "ln"
    made: dict[str, Array] = {}

    def put(name: str, *shape: int) -> None:
        made[name] = (0.3 * random.standard_normal(shape)).astype(np.float32)

    def put_norm(name: str, ending: str = "") -> None:
        put(f"{name}_{norm}_scale{ending}", 1, WIDTH)
        made[f"{name}_{norm}_scale{ending}"] += 1
        if norm == "ln":
            put(f"{name}_ln_bias{ending}", 1, WIDTH)

    first = str(options["transformer-preprocess"]).replace("d", "")
    norm = "rms" if first == "r" else "ln"
    for name in embeddings.split():
        put(name, rows, WIDTH)
    if output:
        put(output, *((rows, WIDTH) if output.endswith("t") else (WIDTH, rows)))
    put("decoder_ff_logit_out_b", 1, rows)
    for side, kinds in (("encoder", ["self"]), ("decoder", ["self", "context"])):
        for number in range(1, LAYERS + 1):
            for kind in kinds:
                name = f"{side}_l{number}_{kind}"
                for part in "qkvo":
                    put(f"{name}_W{part}", WIDTH, WIDTH)
                    put(f"{name}_b{part}", 1, WIDTH)
                put_norm(f"{name}_Wo", "_pre" if first else "")
            name = f"{side}_l{number}_ffn"
            for part, shape in (("1", (WIDTH, INNER)), ("2", (INNER, WIDTH))):
                put(f"{name}_W{part}", *shape)
                put(f"{name}_b{part}", 1, shape[1])
            put_norm(f"{name}_ffn", "_pre" if first else "")
        if first:
            put_norm(f"{side}_top")
    return made


def write(path: Path, stored: dict[str, Array], options: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(options).encode() + b"\0"
    np.savez(path, **stored, **{"special:model.yml": np.frombuffer(text, dtype=np.int8)})
    return path


def vocabulary(path: Path, symbols: list[str] = SYMBOLS) -> Path:
    path.write_text("".join(f'"{symbol}": {number}\n' for number, symbol in enumerate(symbols)), encoding="utf-8")
    return path


def imported(path: Path, output: Path, **options: Any) -> list[Path]:
    named: dict[str, Any] = {"source_lang": "en", "target_lang": "de"}
    return import_model(ImportConfig(from_format="marian", path=str(path), output=str(output), **(named | options)))


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A model and its vocabulary."""
    write(tmp_path / "there" / "model.npz", arrays(OPTIONS), OPTIONS)
    vocabulary(tmp_path / "there" / "v.yml")
    return tmp_path / "there"


@pytest.mark.parametrize(
    ("changed", "embeddings", "output"),
    [
        ({}, "Wemb", ""),
        (PRE | {"transformer-ffn-activation": "relu"}, "encoder_Wemb decoder_Wemb", ""),
        (RMS, "Wemb", "decoder_ff_logit_out_Wt"),
        ({}, "encoder_Wemb decoder_Wemb", "decoder_ff_logit_out_W"),
    ],
    ids=["as OPUS-MT", "norms first, target embedding tied", "root mean square, embeddings tied", "of an old version"],
)
def test_an_imported_model_gives_the_scores_marians_formula(
    tmp_path: Path, changed: dict[str, Any], embeddings: str, output: str
) -> None:
    options = OPTIONS | changed
    stored = arrays(options, embeddings, output)
    path = write(tmp_path / "there" / "model.npz", stored, options)
    (folder,) = imported(path, tmp_path / "here", srcdict=str(vocabulary(tmp_path / "v.yml")))
    if output == "decoder_ff_logit_out_W":
        stored["decoder_ff_logit_out_Wt"] = stored.pop(output).T
    formula = MarianFormula(stored, options)
    source, target = ([*map(SYMBOLS.index, pieces), 0] for pieces in (SOURCE, TARGET))
    found = scores(folder, SOURCE, TARGET)
    pieces = load_model(folder, "cpu").pair.target.vocabulary.pieces
    expected = formula.log_probabilities(source, target)
    places = [pieces.index(piece) for piece in (*TARGET, "</s>")]
    np.testing.assert_allclose(found[range(4), places], expected, atol=2e-5)
    assert bool((found[:, [pieces.index("<pad>"), pieces.index("<s>")]] < -50).all()), "pieces that Marian has not"
    torch.testing.assert_close(found.logsumexp(-1), torch.zeros(4), atol=1e-5, rtol=0)


def test_a_decoder_list_says_what_belongs_together(there: Path, tmp_path: Path) -> None:
    """As OPUS-MT publishes it, with names that start from its own folder."""
    listed = {
        "relative-paths": True,
        "models": ["model.npz"],
        "vocabs": ["v.yml", "v.yml"],
        "beam-size": 6,
        "normalize": 0.7,
        "max-length-factor": 2,
    }
    (there / "decoder.yml").write_text(yaml.safe_dump(listed))
    for number, path in enumerate((there, there / "decoder.yml")):
        (folder,) = imported(path, tmp_path / str(number))
        search = load_model(folder, "cpu").tree["search"]
        expected = {"beam_size": 6, "length_penalty": "power", "lenpen": 0.7, "stop": "shrink", "max_len_a": 2.0}
        assert {name: search[name] for name in expected} == expected and search["forbid_unknown"] is True
        assert Translator.load(str(folder)).translate(["p3 p8", ""])[1] == ""


def test_the_list_that_training_leaves_beside_a_model_is_found_where_both_were_moved_to(
    there: Path, tmp_path: Path
) -> None:
    listed = {"models": ["old/place/model.npz"], "vocabs": ["old/place/v.yml"] * 2, "allow-unk": True}
    (there / "model.npz.decoder.yml").write_text(yaml.safe_dump(listed))
    (folder,) = imported(there / "model.npz", tmp_path / "here")
    search = load_model(folder, "cpu").tree["search"]
    assert (search["beam_size"], search["lenpen"], search["forbid_unknown"]) == (12, 0.0, False)


def test_two_models_are_an_ensemble(there: Path, tmp_path: Path) -> None:
    shutil.copy(there / "model.npz", there / "other.npz")
    paths = f"{there / 'model.npz'}:{there / 'other.npz'}"
    folders = imported(Path(paths), tmp_path / "here", srcdict=str(there / "v.yml"))
    assert [folder.name for folder in folders] == ["1", "2"]
    together = Translator.load(":".join(map(str, folders))).translate(["p3 p8"])
    assert together == Translator.load(str(folders[0])).translate(["p3 p8"])
    write(there / "other.npz", arrays(OPTIONS, rows=20), OPTIONS)
    with pytest.raises(UsageError, match="different vocabularies, so they cannot form an ensemble"):
        imported(Path(paths), tmp_path / "there again", srcdict=str(there / "v.yml"))


def test_a_model_may_know_the_first_pieces_of_a_vocabulary_only(there: Path, tmp_path: Path) -> None:
    write(there / "model.npz", arrays(OPTIONS, rows=20), OPTIONS)
    (folder,) = imported(there / "model.npz", tmp_path / "here", srcdict=str(there / "v.yml"))
    assert load_model(folder, "cpu").pair.source.vocabulary.pieces[4:] == tuple(PIECES[:18])


def test_a_sentencepiece_vocabulary_cuts_text(tmp_path: Path) -> None:
    lines = [f"ein kleiner Mann geht {number} Schritte weit" for number in range(150)]
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=file, vocab_size=40, bos_id=-1, eos_id=0, unk_id=1, minloglevel=2
    )
    theirs = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    (tmp_path / "v.spm").write_bytes(file.getvalue())
    pieces = theirs.id_to_piece(list(range(theirs.vocab_size())))
    path = write(tmp_path / "model.npz", arrays(OPTIONS, rows=len(pieces)), OPTIONS)
    (folder,) = imported(path, tmp_path / "here", srcdict=str(tmp_path / "v.spm"))
    assert_cut_alike(folder, theirs, lines[:3])
    # OPUS-MT has the list of the pieces apart, perhaps with tokens of languages, and what cuts the text beside the model.
    pieces[-1] = ">>deu<<"
    vocabulary(tmp_path / "v.yml", pieces)
    for side in ("source", "target"):
        shutil.copy(tmp_path / "v.spm", tmp_path / f"{side}.spm")
    (folder,) = imported(path, tmp_path / "as OPUS-MT", srcdict=str(tmp_path / "v.yml"))
    assert_cut_alike(folder, theirs, lines[:3])
    source = load_model(folder, "cpu").pair.source
    (cut,) = source.encode([f">>deu<< {lines[0]}"])
    assert [source.vocabulary.pieces[number] for number in cut] == [">>deu<<", *theirs.encode(lines[0], out_type=str)]
    (folder,) = imported(
        path,
        tmp_path / "named",
        srcdict=str(tmp_path / "v.yml"),
        bpe=Segmentation.sentencepiece,
        bpe_model=str(tmp_path / "v.spm"),
    )
    assert_cut_alike(folder, theirs, lines[:3])


def assert_cut_alike(folder: Path, theirs: Any, lines: list[str]) -> None:
    tokenizer = load_model(folder, "cpu").pair.source
    cut = [[tokenizer.vocabulary.pieces[number] for number in ids] for ids in tokenizer.encode(lines)]
    assert cut == [theirs.encode(line, out_type=str) for line in lines]
    assert [tokenizer.decode(ids.tolist()) for ids in tokenizer.encode(lines)] == lines


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"type": "s2s"}, "type=s2s; supported: transformer"),
        ({"transformer-decoder-autoreg": "rnn"}, "transformer-decoder-autoreg=rnn; supported: self-attention"),
        ({"transformer-ffn-activation": "gelu"}, "transformer-ffn-activation=gelu; supported: relu or swish"),
        ({"transformer-postprocess-emb": "nd"}, "transformer-postprocess-emb=nd; supported: nothing or d"),
        ({"transformer-tied-layers": [1, 1]}, r"transformer-tied-layers=\[1, 1\]"),
        ({"transformer-attention-mask": "alibi"}, "transformer-attention-mask=alibi"),
        ({"transformer-decoder-dim-ffn": 8}, "feed-forward widths 24 and 8 in its encoder and decoder"),
        ({"transformer-preprocess": "n"}, "norms after each sublayer"),
        ({"transformer-postprocess": "dhn"}, "transformer-postprocess=dhn"),
        ({"transformer-heads": 3}, "3 heads; the width must be even and divisible by the number of heads"),
        ({"transformer-heads": None}, "has no transformer-heads"),
        ({"dim-emb": "wide"}, "dim-emb='wide' must be a number above zero"),
        ({"enc-depth": 3}, "has no tensor 'encoder_l3_self_Wq'"),
        ({"dec-depth": 1}, "tensors that nmt does not support: decoder_l2"),
        ({"dim-emb": 8}, r"tensor 'Wemb' has the shape \(32, 16\)"),
    ],
)
def test_what_ours_is_not_is_refused_by_name(there: Path, tmp_path: Path, changed: dict[str, Any], says: str) -> None:
    write(there / "model.npz", arrays(OPTIONS), OPTIONS | changed)
    with pytest.raises(DataError, match=says):
        imported(there / "model.npz", tmp_path / "here", srcdict=str(there / "v.yml"))
    assert not (tmp_path / "here").exists()


def test_what_does_not_belong_together_is_said(there: Path, tmp_path: Path) -> None:
    def refused(kind: type[Exception], says: str, path: Path, **options: Any) -> None:
        with pytest.raises(kind, match=says):
            imported(path, tmp_path / "here", **options)

    model, pieces = there / "model.npz", str(there / "v.yml")
    refused(UsageError, "name the languages", model, source_lang="")
    refused(UsageError, "name the vocabularies of .*model.npz: --srcdict FILE", model)
    refused(MissingInputError, "decoder.yml is missing; name the model itself", there)
    refused(MissingInputError, "cannot read .*nothing.npz", there / "nothing.npz", srcdict=pieces)
    vocabulary(there / "short.yml", SYMBOLS[:20])
    refused(DataError, "has 32 source tokens, but the vocabulary has 20", model, srcdict=str(there / "short.yml"))
    vocabulary(there / "other.yml", ["<unk>", *PIECES, "end"])
    refused(DataError, "other.yml has no token </s>", model, srcdict=str(there / "other.yml"))
    shutil.copy(there / "v.yml", there / "v.fsv")
    refused(DataError, r"v\.fsv is a factored vocabulary", model, srcdict=str(there / "v.fsv"))
    (there / "decoder.yml").write_text("models: [model.npz]\nvocabs: [v.yml]\n")
    refused(DataError, "names 1 vocabularies; nmt needs one for the source and one for the target", there)
    refused(UsageError, "names several files", Path(f"{there / 'decoder.yml'}:{there / 'decoder.yml'}"))
    (there / "decoder.yml").write_text("models: 3\n")
    refused(DataError, "has no models", there, srcdict=pieces)
    (there / "decoder.yml").write_text("models: [")
    refused(DataError, "is not YAML", there)
    np.savez(there / "bare.npz", **arrays(OPTIONS))
    refused(DataError, r"has no options \(special:model.yml\)", there / "bare.npz", srcdict=pieces)
    assert not (tmp_path / "here").exists()
