"""M2M100, NLLB and mBART-50 of transformers beside ours: tokens, scores, translations, and the files that they come in."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.exchange import ImportConfig
from nmt.data.batching.batch import collate
from nmt.data.language_pair import LanguagePair
from nmt.data.vocabulary import EOS, SPECIALS, UNK
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats.importing import import_model
from nmt.models.loading import load_model
from nmt.translation import Translator

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
pytest.importorskip("babel", reason="babel is not installed: nmt-toolkit[test]")

from tests.unit.formats import multilingual as there  # noqa: E402

KINDS = list(there.MAKERS)


@dataclass(frozen=True)
class Both:
    """A model of transformers and its import."""

    kind: str
    folder: Path
    here: Path
    tokenizer: Any

    @property
    def model(self) -> Any:
        return transformers.AutoModelForSeq2SeqLM.from_pretrained(self.folder).eval()

    @property
    def pair(self) -> LanguagePair:
        return load_model(self.here, "cpu").pair


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Both]:
    """Each kind is made once; tests change copies."""
    made = dict[str, Both]()

    def of(kind: str) -> Both:
        if kind not in made:
            folder, here = tmp_path_factory.mktemp(kind), tmp_path_factory.mktemp("here") / kind
            tokenizer = there.MAKERS[kind](folder)
            made[kind] = Both(kind, folder, there.imported(folder, here), tokenizer)
        return made[kind]

    return of


@pytest.mark.parametrize("count", [400, pytest.param(5000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_text_in_many_scripts_is_cut_and_joined_as_there(both: Callable[[str], Both], kind: str, count: int) -> None:
    """Except for a space at the end, which sentencepiece removes, and the newer tokenizers of transformers keep; and for the
    second accent of a letter, which these lose."""
    one = both(kind)
    tokenizer = one.pair.source
    lines = [line for line in there.names(count) if not line.endswith("\u200c")]
    lines += ["ﬁne  ½ Ｆｕｌｌ", "cafe\u0301 한글 \u1112\u1161\u11ab", "♠ unknown ♣♣", ""]
    ids = there.ids_there(one.tokenizer)
    pieces = tokenizer.vocabulary.pieces
    for line, own in zip(lines, tokenizer.encode(lines), strict=True):
        theirs = one.tokenizer(line, add_special_tokens=False).input_ids
        assert [ids[pieces[number]] for number in own] == theirs
        if UNK not in own:  # left out there, and marked here
            assert tokenizer.decode(own.tolist()) == one.tokenizer.decode(theirs).strip()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(both: Callable[[str], Both], kind: str) -> None:
    one = both(kind)
    loaded = load_model(one.here, "cpu")
    direction = loaded.pair.direction(there.SOURCES[kind], there.TARGETS[kind])
    lines = there.names(24)
    sources, targets = (
        [np.array([*first, *ids, EOS]) for ids in loaded.pair.source.encode(some)]
        for first, some in ((direction.source, lines), (direction.target, lines[::-1]))
    )
    known = there.ids_there(one.tokenizer)
    ids = np.array([known[piece] for piece in loaded.pair.source.vocabulary.pieces])
    one.tokenizer.src_lang = there.SOURCES[kind]
    assert [ids[source].tolist() for source in sources] == [one.tokenizer(line).input_ids for line in lines]
    model = one.model
    with torch.inference_mode():
        ours = loaded.module.output.logits(loaded.module(collate(sources, targets)).hidden)
        theirs = torch.cat(
            [
                model(
                    input_ids=torch.from_numpy(ids[source])[None],
                    decoder_input_ids=torch.from_numpy(np.array([2, *ids[target[:-1]]]))[None],
                ).logits[0]
                for source, target in zip(sources, targets)
            ]
        )
    torch.testing.assert_close(ours, theirs[:, torch.from_numpy(ids)], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("kind", "early", "stop"), [*((kind, True, "first") for kind in KINDS), ("nllb", False, "estimate")]
)
def test_translations_are_those_of_transformers(both: Callable[[str], Both], kind: str, early: bool, stop: str) -> None:
    """With a beam of 4. Rows without a token are excluded there; here they do not exist."""
    one, lines, longest = both(kind), there.names(40), 60
    source, target = there.SOURCES[kind], there.TARGETS[kind]
    model, tokenizer = one.model, one.tokenizer
    tokenizer.src_lang = source
    known = there.ids_there(tokenizer)
    without = {*range(model.config.vocab_size)} - {*known.values()} | {known["<s>"], known["<pad>"]}
    with torch.inference_mode():
        written = model.generate(
            **tokenizer(lines, return_tensors="pt", padding=True),
            forced_bos_token_id=there.language_id(tokenizer, target),
            num_beams=4,
            max_length=longest,
            min_new_tokens=2,
            early_stopping=early,
            bad_words_ids=[[number] for number in without],
        )
    pieces = {number: piece for piece, number in known.items()}
    hidden = {*SPECIALS, *one.pair.language_tokens.tokens.values()}
    theirs = [
        "".join(piece for piece in map(pieces.__getitem__, ids) if piece not in hidden).replace("▁", " ").strip()
        if tokenizer.eos_token_id in ids[1:]
        else None  # stopped at the limit, where nmt ends a translation with </s>
        for ids in written.tolist()
    ]
    options = {
        "beam": 4,
        "length_penalty": "power",
        "lenpen": 1,
        "max_len_a": 0,
        "max_len_b": longest - 3,
        "stop": stop,
    }
    ours = Translator.load(one.here, device="cpu").translate(lines, source_lang=source, target_lang=target, **options)
    ended = [(line, other) for line, other in zip(ours, theirs) if other is not None]
    assert [line for line, _ in ended] == [other for _, other in ended]
    assert len(ended) >= 15 and len(set(ended)) >= 6


def test_the_same_model_in_other_files_is_the_same(both: Callable[[str], Both], tmp_path: Path) -> None:
    """Shards, pickles, a sentencepiece model with a list of languages, and ids of added tokens."""
    one, model = both("nllb"), both("nllb").model
    languages = [*one.pair.language_tokens.tokens.values()]
    ids = there.ids_there(one.tokenizer)

    def assert_same(name: str, **options: Any) -> None:
        found = there.imported(tmp_path / name, tmp_path / f"{name} here", **options)
        there.assert_same_parameters(one.here, found)
        assert load_model(found, "cpu").pair.digest() == one.pair.digest()

    def begun(name: str) -> Path:
        shutil.copytree(one.folder, tmp_path / name)
        (tmp_path / name / "model.safetensors").unlink()
        return tmp_path / name

    model.save_pretrained(begun("shards"), max_shard_size="100KB")
    assert len([*(tmp_path / "shards").glob("*.safetensors")]) > 3
    assert_same("shards")
    state = model.state_dict() | {"model.encoder.embed_positions.weights": torch.zeros(66, 32)}
    torch.save(state, begun("pickled") / "pytorch_model.bin")
    assert_same("pickled")
    folder, names = begun("pickled shards"), sorted(state)
    places = {name: f"pytorch_model-{number % 2}.bin" for number, name in enumerate(names)}
    for file in set(places.values()):
        torch.save({name: state[name] for name in names if places[name] == file}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert_same("pickled shards")
    folder = tmp_path / "older"
    shutil.copytree(one.folder, folder)
    (folder / "sentencepiece.bpe.model").write_bytes(there.sentencepiece_model("bpe"))
    (folder / "tokenizer.json").unlink()
    added = {str(ids[token]): {"content": token} for token in (*languages, "<mask>")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    assert_same("older", target_lang="deu_Latn")


def test_a_list_of_languages_without_ids_must_have_the_order_of_the_model(
    both: Callable[[str], Both], tmp_path: Path
) -> None:
    """As in facebook/mbart-large-50."""
    one, content = both("mbart"), there.sentencepiece_model("unigram")
    languages = [*one.pair.language_tokens.tokens.values()]
    for name, order in (("same", languages), ("turned", languages[::-1])):
        folder = tmp_path / name
        shutil.copytree(one.folder, folder)
        (folder / "sentencepiece.bpe.model").write_bytes(content)
        (folder / "tokenizer.json").unlink()
        (folder / "tokenizer_config.json").unlink()
        (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": order}))
    found = there.imported(tmp_path / "same", tmp_path / "here")
    there.assert_same_parameters(one.here, found)
    assert load_model(found, "cpu").pair.digest() == one.pair.digest()
    with pytest.raises(DataError, match=f"lists {len(languages)} languages without ids, and their order is unknown"):
        there.imported(tmp_path / "turned", tmp_path / "not here")
    other = there.sentencepiece_model("unigram", vocab_size=1495)
    (tmp_path / "same" / "sentencepiece.bpe.model").write_bytes(other)
    with pytest.raises(DataError, match="embeddings of 1,554 tokens, but its tokenizer has 1,549"):
        there.imported(tmp_path / "same", tmp_path / "not here")
    assert not (tmp_path / "not here").exists()


def test_a_default_direction_is_stored(both: Callable[[str], Both], tmp_path: Path) -> None:
    one = both("mbart")
    assert (one.pair.source_lang, one.pair.target_lang) == ("", "")
    pair = load_model(there.imported(one.folder, tmp_path / "a", source_lang="en_XX", target_lang="de_DE"), "cpu").pair
    assert (pair.source_lang, pair.target_lang) == ("en_XX", "de_DE")
    shutil.copytree(one.folder, tmp_path / "there")
    path = tmp_path / "there" / "generation_config.json"
    options = {"forced_bos_token_id": there.language_id(one.tokenizer, "ko_KR"), "max_length": 200, "num_beams": 7}
    path.write_text(json.dumps(options))
    loaded = load_model(there.imported(tmp_path / "there", tmp_path / "b"), "cpu")
    assert (loaded.pair.source_lang, loaded.pair.target_lang) == ("", "ko_KR")
    search = loaded.tree["search"]
    assert (search["beam_size"], search["max_len_a"], search["max_len_b"]) == (7, 0.0, 197)
    with pytest.raises(UsageError, match=r"the model has no language 'de' \(did you mean de_DE\?\)"):
        there.imported(one.folder, tmp_path / "c", target_lang="de")


def test_damaged_folders_are_refused_and_nothing_is_written(both: Callable[[str], Both], tmp_path: Path) -> None:
    one = both("nllb")

    def refused(
        says: str, change: Callable[[Path], object], kind: type[Exception] = DataError, of: str = "nllb"
    ) -> None:
        folder = tmp_path / "there"
        shutil.copytree(both(of).folder, folder)
        change(folder)
        with pytest.raises(kind, match=says):
            there.imported(folder, tmp_path / "here")
        assert {path.name for path in tmp_path.iterdir()} == {"there"}
        shutil.rmtree(folder)

    def shards(folder: Path) -> Any:
        (folder / "model.safetensors").unlink()
        one.model.save_pretrained(folder, max_shard_size="100KB")
        return sorted(folder.glob("*.safetensors"))[1]

    def changed(name: str, **options: Any) -> Callable[[Path], object]:
        def change(folder: Path) -> None:
            path = folder / name
            tree = json.loads(path.read_text()) if path.is_file() else {}
            path.write_text(json.dumps(tree | options))

        return change

    refused("model-00002-of-.* is missing: it is one of the", lambda folder: shards(folder).unlink(), MissingInputError)
    refused("model-00002-of-.* has no tensor", lambda folder: _replaced(shards(folder)))
    refused("embeddings of 1,\\d{3} tokens, but its tokenizer has 1,\\d{3}", _without_last_tokens)
    refused("embeddings of 1,\\d{3} tokens, but its tokenizer has 1,\\d{3}", _with_more_tokens, of="m2m100")
    refused("the id 5 is that of", changed("added_tokens.json", other=5))
    refused("no token has the id 1[0-9]{3};", changed("added_tokens.json", other=5000))
    refused("id is not a number", changed("added_tokens.json", other="many"))
    refused("tokenizer.json is damaged", changed("tokenizer.json", model={"type": "WordPiece", "vocab": {}}))
    refused(
        "tokenizer.json is damaged, .*normalizer Lowercase", changed("tokenizer.json", normalizer={"type": "Lowercase"})
    )
    refused("holds no tokenizer", lambda folder: (folder / "tokenizer.json").unlink(), MissingInputError)
    refused("sources end in the token of their language", changed("tokenizer_config.json", legacy_behaviour=True))
    refused("sources end in the token", changed("config.json", decoder_start_token_id=1502), of="mbart")
    refused("list no languages", changed("tokenizer_config.json", language_codes="other"), of="m2m100")
    refused("layers of experts", changed("config.json", model_type="nllb-moe"))
    refused("it cuts text into bytes", changed("config.json", model_type="bart"))
    with pytest.raises(MissingInputError, match="nowhere does not exist"):
        import_model(ImportConfig("", str(tmp_path / "nowhere"), str(tmp_path / "here")))


def _replaced(shard: Path) -> None:
    """Put another shard at the place of one."""
    shutil.copy(sorted(shard.parent.glob("*.safetensors"))[0], shard)


def _with_more_tokens(folder: Path) -> None:
    """Add five tokens, so that the languages, which follow them, have other ids."""
    path = folder / "vocab.json"
    ids = json.loads(path.read_text())
    path.write_text(json.dumps(ids | {f"more{number}": len(ids) + number for number in range(5)}))


def _without_last_tokens(folder: Path) -> None:
    path = folder / "tokenizer.json"
    tree = json.loads(path.read_text())
    tree["added_tokens"] = sorted(tree["added_tokens"], key=lambda token: token["id"])[:-9]
    path.write_text(json.dumps(tree))
    options = folder / "tokenizer_config.json"
    options.write_text(json.dumps(json.loads(options.read_text()) | {"extra_special_tokens": []}))


_PEAK = """
import re, sys
from pathlib import Path
from nmt.config.exchange import ImportConfig
from nmt.formats.importing import import_model
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
import nmt.formats.huggingface, nmt.models.transformer.config
before = peak()
import_model(ImportConfig("huggingface", sys.argv[1], sys.argv[2]))
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs the peak memory of a process from Linux")
def test_an_import_needs_less_memory_than_the_model(both: Callable[[str], Both], tmp_path: Path) -> None:
    """In bfloat16, which is widened to twice its size."""
    one = both("m2m100")
    shutil.copytree(one.folder, tmp_path / "there")
    sizes = there.SIZES | {
        "d_model": 512,
        "encoder_layers": 4,
        "decoder_layers": 4,
        "encoder_ffn_dim": 2048,
        "decoder_ffn_dim": 2048,
    }
    config = transformers.M2M100Config(vocab_size=one.model.config.vocab_size, **sizes)
    transformers.M2M100ForConditionalGeneration(config).bfloat16().save_pretrained(tmp_path / "there")
    command = [sys.executable, "-c", _PEAK, str(tmp_path / "there"), str(tmp_path / "here")]
    needed = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])
    assert needed < 0.5 * (tmp_path / "there" / "model.safetensors").stat().st_size
