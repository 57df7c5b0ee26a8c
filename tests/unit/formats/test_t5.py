"""T5 and MADLAD-400 of transformers beside ours: tokens, scores, translations, and the files that they come in."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import sentencepiece
import torch

from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.batching.batch import collate
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.sentencepiece import SentencePieceBuilder, SentencePieceTokenizer, UnigramConfig
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList, SentencePieceListConfig
from nmt.data.vocabulary import EOS, PAD, SPECIALS
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats.exporting import ExportComparison, export_model
from nmt.formats.importing import import_model
from nmt.models.loading import LoadedModel, load_model
from nmt.models.transformer.config import FeedForwardKind, NormKind, NormOrder, ScoreKind, StartSymbol
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.tensor_file import mapped_tensors
from nmt.translation import Translator
from tests.commands import run_copy
from tests.unit.formats.stored import HELD, run_example, store

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
pytest.importorskip("babel", reason="babel is not installed: nmt-toolkit[test]")

from tests.unit.formats import multilingual as there  # noqa: E402


def exported(model: Path, output: Path, **options: Any) -> ExportComparison:
    return export_model(
        ExportConfig(
            path=str(model), format="huggingface", output=str(output), **{"sentences": 3, "longest": 64} | options
        )
    )


@cache
def _unigram_pair() -> LanguagePair:
    tokenizer = SentencePieceBuilder(UnigramConfig(vocab_size=800, character_coverage=0.99)).train(
        there.names(500), seed=1
    )
    return LanguagePair("en", "de", tokenizer, tokenizer, shared=True)


@dataclass(frozen=True)
class BothT5:
    """A T5 or MADLAD of transformers and its import."""

    model: Any
    folder: Path
    here: Path
    processor: Any
    loaded: LoadedModel
    ids: npt.NDArray[np.int64]  # there, of our tokens

    @property
    def before(self) -> list[int]:
        """Our ids before a source."""
        return [*self.loaded.pair.direction("en", "de").source]


@pytest.fixture(scope="module", params=[False, True], ids=["T5", "MADLAD"])
def t5(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BothT5:
    folder, here = tmp_path_factory.mktemp("t5"), tmp_path_factory.mktemp("here") / "t5"
    model = there.t5(folder, madlad=request.param)
    loaded = load_model(there.imported(folder, here, source_lang="en", target_lang="de"), "cpu")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    ids = np.array(processor.piece_to_id(list(loaded.pair.source.vocabulary.pieces)))
    ids[[PAD, EOS]] = model.config.pad_token_id, model.config.eos_token_id
    tokens = [loaded.pair.source.vocabulary.pieces[number] for number in loaded.pair.direction("en", "de").source]
    assert tokens == (["<2de>"] if request.param else [])
    return BothT5(model, folder, here, processor, loaded, ids)


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.nightly)])
def test_text_in_many_scripts_is_cut_as_by_transformers(t5: BothT5, count: int) -> None:
    """Except for unknown characters: for those of MADLAD, which has bytes, transformers 5 writes the id 2, unknown in T5."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(t5.folder)
    lines, equal = [*there.names(count), "cafe\u0301 한글", "♠ unknown ♣♣"], 0
    for line, own in zip(lines, t5.loaded.pair.source.encode(lines), strict=True):
        theirs = tokenizer(line, add_special_tokens=False).input_ids
        known = 2 not in theirs
        assert t5.ids[own].tolist() == (theirs if known else t5.processor.encode(line)), line
        equal += known
    assert equal > 0.8 * len(lines)


def test_logits_of_t5_are_those_of_transformers(t5: BothT5) -> None:
    model, ids, lines, encode = t5.model, t5.ids, there.names(12), t5.loaded.pair.source.encode
    assert [ids[own].tolist() for own in encode(lines)] == t5.processor.encode(lines)
    sources, targets = (
        [np.array([*before, *own, EOS]) for own in encode(some)]
        for before, some in ((t5.before, lines), ((), lines[::-1]))
    )
    with torch.inference_mode():
        ours = t5.loaded.module.output.logits(t5.loaded.module(collate(sources, targets)).hidden)
        read = [np.array([model.config.decoder_start_token_id, *ids[target[:-1]]]) for target in targets]
        theirs = [
            model(input_ids=torch.from_numpy(ids[source])[None], decoder_input_ids=torch.from_numpy(some)[None]).logits[
                0
            ]
            for source, some in zip(sources, read)
        ]
    textual = [EOS, *range(len(SPECIALS), len(ids))]
    expected = torch.cat(theirs)[:, torch.from_numpy(ids[textual])]
    torch.testing.assert_close(ours[:, textual], expected, atol=1e-4, rtol=0)


def test_translations_of_t5_are_those_of_transformers(t5: BothT5) -> None:
    """With a beam of 4. Rows without a token are excluded there, before the probabilities sum to one."""
    model, lines, longest, eos = t5.model, there.names(20), 30, t5.model.config.eos_token_id
    sources = [torch.from_numpy(t5.ids[[*t5.before, *own, EOS]]) for own in t5.loaded.pair.source.encode(lines)]
    inputs = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True, padding_value=-1)
    known = {t5.processor.unk_id(), *t5.ids[[EOS, *range(len(SPECIALS), len(t5.ids))]]}
    known.discard(model.config.decoder_start_token_id)
    with torch.inference_mode():
        written = model.generate(
            input_ids=inputs.clamp(min=0),
            attention_mask=(inputs >= 0).long(),
            num_beams=4,
            max_length=longest,
            early_stopping=False,
            renormalize_logits=True,
            bad_words_ids=[[number] for number in range(model.config.vocab_size) if number not in known],
            use_cache=False,  # transformers 5.24 fails with the cache if the decoder has more layers than the encoder
        )
    options = {
        "beam": 4,
        "length_penalty": "power",
        "lenpen": 1,
        "max_len_a": 0,
        "max_len_b": longest - 2,
        "min_len": 0,
    }
    translator = Translator.load(t5.here, device="cpu")
    ours = [line.hypotheses[0] for line in translator.translations(lines, target_lang="de", **options)]
    vocabulary = t5.loaded.pair.target.vocabulary
    ended = [
        (t5.ids[[vocabulary.id(piece) for piece in own.pieces]].tolist(), other[1 : other.index(eos)])
        for own, other in zip(ours, written.tolist())
        if eos in other
    ]
    assert [own for own, _ in ended] == [other for _, other in ended]
    assert len(ended) >= 10 and len(set(map(str, ended))) >= 9


def test_t5_without_a_sentencepiece_model_is_the_same(t5: BothT5, tmp_path: Path) -> None:
    """transformers 5 writes tokenizer.json alone, with tokens of pretraining, and without the option for bytes of MADLAD."""
    folder = tmp_path / "there"
    shutil.copytree(t5.folder, folder)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "spiece.model").unlink()
    tree = json.loads((folder / "tokenizer.json").read_text())
    assert tree["model"]["vocab"][-1][0] == "<extra_id_0>"
    tree["model"]["byte_fallback"] = bool(t5.before)
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    (folder / "generation_config.json").write_text('{"max_length": 20}')
    loaded = load_model(there.imported(folder, tmp_path / "here", source_lang="en", target_lang="de"), "cpu")
    assert loaded.tree["search"]["max_len_b"] == 18  # there, the limit includes the first token and eos
    there.assert_same_parameters(t5.here, loaded.path)
    ours, same = t5.loaded.pair.source, loaded.pair.source
    assert same.vocabulary.pieces == ours.vocabulary.pieces
    lines = [*there.names(200), "\u2660 unknown \u2663", ""]
    for one, other in zip(ours.encode(lines), same.encode(lines), strict=True):
        assert one.tolist() == other.tolist() and ours.decode(one.tolist()) == same.decode(other.tolist())


@pytest.mark.parametrize("quantization", [Quantization.float32, Quantization.int8])
def test_ctranslate2_says_the_same_and_gives_the_model_back(
    t5: BothT5, tmp_path: Path, quantization: Quantization
) -> None:
    """Heads are of size 12 here, not d_model / num_heads = 8."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")
    options: dict[str, Any] = {"path": str(t5.here), "format": "ctranslate2", "output": str(tmp_path / "there")}
    is_exact = quantization is Quantization.float32
    found = export_model(
        ExportConfig(
            **options, sentences=20, longest=64, quantization=quantization, tolerance=1e-4 if is_exact else 2.0
        )
    )
    assert found.sentences == 20
    if is_exact:
        assert found.difference < 1e-4 and found.equal == found.sentences == 20
        (again,) = import_model(ImportConfig("ctranslate2", str(tmp_path / "there"), str(tmp_path / "again")))
        there.assert_same_parameters(t5.here, again)


def test_t5_goes_out_to_transformers_and_comes_back(
    t5: BothT5, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Except for rows that no token has. Characters of MADLAD that no token has are cut into bytes."""
    out = tmp_path / "out"
    found = exported(t5.here, out)
    assert found.difference < 2e-5 and found.equal == found.sentences == 3
    before, after = (mapped_tensors(path / "model.safetensors") for path in (t5.folder, out))
    assert before.keys() == after.keys()
    for name, array in after.items():
        np.testing.assert_array_equal(array, before[name][: len(array)], err_msg=name)
    again = load_model(there.imported(out, tmp_path / "again"), "cpu")
    there.assert_same_parameters(t5.here, again.path)
    assert again.pair.digest() == t5.loaded.pair.digest()
    assert (again.pair.source_lang, again.pair.target_lang) == ("en", "de")
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    for line in [*there.names(400), "\u2660 unknown \u2663\u2663", ""]:
        ids = t5.processor.encode(line)
        assert tokenizer(line, add_special_tokens=False).input_ids == ids, line
        if t5.processor.unk_id() not in ids:
            assert tokenizer.decode(ids) == t5.processor.decode(ids)
    assert ("<2de>" in (out / "README.md").read_text()) is bool(t5.before)
    run_example(out, monkeypatch)
    line = capsys.readouterr().out.removesuffix("\n")
    (ours,) = Translator.load(t5.here, device="cpu").translate(["A sentence to translate."], min_len=0)
    assert line[:40] == ours[:40]  # at the longest length, toolkits end differently


@pytest.mark.parametrize("scaled", [False, True])
def test_a_model_of_ours_goes_out_as_t5(tmp_path: Path, scaled: bool) -> None:
    """Scores of attention and embeddings may be scaled; T5 stores both in its matrices."""
    scales = {"attention_score": ScoreKind.scaled_dot, "embedding_scale": True, "start_symbol": StartSymbol.bos}
    run = store(tmp_path / "run", _unigram_pair(), **HELD["as T5"] | (scales if scaled else {}))
    found = exported(run, tmp_path / "out", sentences=20)
    assert found.difference < 2e-5 and found.equal == found.sentences == 20
    again = load_model(there.imported(tmp_path / "out", tmp_path / "again"), "cpu")
    assert again.pair.source.encode(["Deutsch"])[0].tolist() == _unigram_pair().source.encode(["Deutsch"])[0].tolist()
    assert exported(again.path, tmp_path / "twice").difference < 2e-5


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"decoder_norm": NormOrder.post}, "has norms before sublayers, but the model has some after them"),
        ({"embedding_norm": True}, "has no norm of the embeddings, but the model has one"),
        ({"norm_kind": NormKind.layer_norm}, "has RMSNorm, but the model has layer normalization"),
        (
            {"feed_forward": FeedForwardKind.glu},
            "has the feed-forward networks relu, gelu, geglu_tanh and swiglu, but",
        ),
        ({"d_v": 4}, "has one width for keys and values, but .*; set --format safetensors"),
        ({"share_all_embeddings": False}, "has one embedding for both sides, but the model has two"),
        ({"attention_bias": True}, r"has no biases, .* or fine-tune an imported model with --freeze '\*\.bias'"),
    ],
)
def test_what_t5_lacks_is_said(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    run = store(tmp_path / "run", _unigram_pair(), **HELD["as T5"] | options)
    with pytest.raises(UsageError, match=f"Hugging Face's T5 {says}"):
        exported(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_tokenizers_that_t5_lacks_are_refused(tmp_path: Path) -> None:
    ours = _unigram_pair().source
    pieces, content = ours.vocabulary.pieces, cast(SentencePieceTokenizer, ours).model_bytes()
    tokens = LanguageTokens({"en": pieces[10], "de": pieces[11]}, SourceToken.target, target=False)

    def stored(name: str, tokenizer: Tokenizer, **options: Any) -> Path:
        pair = LanguagePair("en", "de", tokenizer, tokenizer, shared=True)
        return store(tmp_path / name, pair, **HELD["as T5"] | options)

    def with_tokens(name: str, begin: int, end: int | None, *others: str) -> Path:
        return stored(name, SentencePieceList(SentencePieceListConfig(), content, [*pieces[begin:end], *others]))

    def unusual(name: str, start: StartSymbol) -> Path:
        """A model of sentencepiece's default symbols: <unk>, <s> and </s>."""
        (tmp_path / "text.model").write_bytes(there.sentencepiece_model("unigram"))
        tokenizer = SentencePieceBuilder(UnigramConfig()).from_file(tmp_path / "text.model")
        return stored(name, tokenizer, start_symbol=start)

    for run, says in (
        (store(tmp_path / "words", **HELD["as T5"]), "needs one unigram sentencepiece model for both sides"),
        (
            store(tmp_path / "tokens", replace(_unigram_pair(), languages=tokens), **HELD["as T5"]),
            ".*such as <2de>, but",
        ),
        (with_tokens("fewer", 4, -1), f"has the tokens .*, but '{pieces[-1]}' is only in the sentencepiece model"),
        (with_tokens("more", 4, None, "more"), "has the tokens .*, but 'more' is only in the vocabulary"),
        (unusual("bos", StartSymbol.bos), "has the special tokens of its .*, which has no <unk> of its own"),
        (unusual("pad", StartSymbol.pad), "has the special tokens of its .*, which has no <s> of its own"),
    ):
        with pytest.raises(UsageError, match=f"Hugging Face's T5 {says}"):
            exported(run, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_trimmed_t5_goes_out(t5: BothT5, tmp_path: Path) -> None:
    """Its sentencepiece model has fewer tokens."""
    fewer = there.imported(
        t5.folder, tmp_path / "fewer", vocabulary_text=[__file__], source_lang="en", target_lang="de"
    )
    found = exported(fewer, tmp_path / "out")
    assert found.difference < 2e-5 and found.equal == found.sentences == 3
    again = load_model(there.imported(tmp_path / "out", tmp_path / "again"), "cpu").pair
    assert again.digest() == load_model(fewer, "cpu").pair.digest()
    assert len(again.source.vocabulary) < len(t5.loaded.pair.source.vocabulary)


def test_a_fine_tuned_t5_without_biases_goes_out(t5: BothT5, tmp_path: Path) -> None:
    """Embeddings of source and target stay one matrix."""
    for split, lines in (("train", there.names(200)), ("valid", there.names(20))):
        for language in ("en", "de"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    pairs = PreprocessConfig("en", "de", trainpref=str(tmp_path / "train"), validpref=str(tmp_path / "valid"))
    preprocess(replace(pairs, srcdict=str(t5.here), tgtdict=str(t5.here), destdir=str(tmp_path / "corpus")))
    options = f"--config {t5.here} --finetune-from-model {t5.here} --freeze *.bias --lr 0.001 --warmup-updates 1 --cpu"
    options += " --max-update 3 --max-tokens 400 --valid-samples 0 --no-html --save-dir run"
    done = run_copy("train", "corpus", *options.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = exported(tmp_path / "run", tmp_path / "out")
    assert found.difference < 2e-5 and found.equal == found.sentences
    before, after = (mapped_tensors(path / "model.safetensors") for path in (t5.folder, tmp_path / "out"))
    assert not np.array_equal(before["shared.weight"][:100], after["shared.weight"][:100])


def test_damaged_t5_folders_are_refused(tmp_path: Path) -> None:
    there.t5(tmp_path, madlad=True)
    tree = json.loads((tmp_path / "config.json").read_text())

    def refused(says: str, kind: type[Exception] = DataError, target: str = "de", **options: Any) -> None:
        (tmp_path / "config.json").write_text(json.dumps(tree | options))
        with pytest.raises(kind, match=says):
            there.imported(tmp_path, tmp_path / "here", target_lang=target)
        assert not (tmp_path / "here").exists()

    refused("has no d_kv", d_kv=None)
    refused("has feed_forward_proj=gated-tanh", feed_forward_proj="gated-tanh")
    refused("decoder_start_token_id is not an id", pad_token_id="x")
    refused("the model has no language 'deu'", UsageError, target="deu")
    (tmp_path / "spiece.model").write_bytes(there.sentencepiece_model("unigram"))
    refused("embeddings of 2,028 tokens, but its tokenizer has 1,500")
    (tmp_path / "spiece.model").unlink()
    refused("holds no tokenizer: neither spiece.model nor tokenizer.json", MissingInputError)


def test_bfloat16_is_imported_as_the_same_numbers(t5: BothT5, tmp_path: Path) -> None:
    found = list[Path]()
    for dtype in (torch.bfloat16, torch.float32):
        folder = tmp_path / str(dtype)
        shutil.copytree(t5.folder, folder)
        copy.deepcopy(t5.model).bfloat16().to(dtype).save_pretrained(folder)
        found.append(there.imported(folder, tmp_path / f"{dtype} here", source_lang="en", target_lang="de"))
    there.assert_same_parameters(*found)
