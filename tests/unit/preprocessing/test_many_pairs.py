"""``--pairs``: several directions in one corpus folder, with the tokens of their languages on either side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import Sides
from nmt.config.preprocessing import FilterConfig, PreprocessConfig
from nmt.config.variation import VariationConfig
from nmt.data.batching.variation import PlannedBatch, Variation
from nmt.data.corpus.folder import Corpus, open_corpora
from nmt.data.corpus.stored_text import StoredPairs
from nmt.data.language_pair import LanguagePair
from nmt.data.languages import LanguageTokens, SourceToken
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.storage.files import Verify
from tests.three_languages import LETTERS, PAIRS, ZERO_SHOT, make_corpus, options, write_text


def texts(corpus: Corpus, split: str, number: int) -> tuple[str, str]:
    """The stored tokens of both sides."""
    stored = corpus.split(split)
    assert stored.targets is not None
    sides = (corpus.pair.source, stored.source(number)), (corpus.pair.target, stored.targets[number])
    source, target = (" ".join(side.pieces(ids[:-1].tolist())) for side, ids in sides)
    return source, target


def plain(folder: Path, split: str, language: str, number: int) -> str:
    return (folder / f"{split}.{language}").read_text().splitlines()[number]


@pytest.mark.parametrize(
    ("side", "before"), [(None, (1, 0)), (Sides.source, (1, 0)), (Sides.target, (0, 1)), (Sides.both, (1, 1))]
)
def test_the_token_of_the_target_language_is_on_the_chosen_side(
    tmp_path: Path, side: Sides | None, before: tuple[int, int]
) -> None:
    corpora = open_corpora([make_corpus(tmp_path, tag_side=side)], Verify.full)
    assert [corpus.direction for corpus in corpora] == [*PAIRS, *ZERO_SHOT]
    for corpus in corpora:
        source, target = corpus.direction.split("-")
        for split in corpus.splits:
            expected = [plain(tmp_path, split, language, 3) for language in (source, target)]
            tagged = [f"<2{target}> " * count + line for count, line in zip(before, expected)]
            assert texts(corpus, split, 3) == tuple(tagged)
            read = corpus.split(split)
            assert (read.started, corpus.pair.target.decode(read.target(3).tolist())) == (before[1], expected[1])


def test_a_zero_shot_direction_has_no_training_text(tmp_path: Path) -> None:
    corpora = open_corpora([make_corpus(tmp_path)])
    assert [corpus.direction for corpus in corpora if corpus.is_zero_shot] == ZERO_SHOT
    assert {corpus.direction: corpus.splits for corpus in corpora if "train" not in corpus.splits} == dict.fromkeys(
        ZERO_SHOT, ("valid",)
    )


def test_a_vocabulary_is_learned_once_from_each_file_and_knows_all_languages(tmp_path: Path) -> None:
    learned = []
    for name, pairs in (("all", PAIRS), ("half", ["en-de", "fr-en"])):
        corpus = make_corpus(tmp_path / name, srcdict=None, tokenizer=BpeConfig(vocab_size=40), pairs=pairs)
        learned.append(LanguagePair.load(corpus / "tokenizer"))
    assert learned[0].digest() == learned[1].digest()  # the same three files, although "en" is in more directions
    assert all(learned[0].source.vocabulary.id(f"<2{language}>") > 3 for language in ("en", "de", "fr"))


def test_text_of_one_pair_is_found_under_the_names_of_fairseq(tmp_path: Path) -> None:
    write_text(tmp_path, train=3, valid=2)
    for language in ("de", "fr"):
        (tmp_path / f"train.{language}").rename(tmp_path / f"train.en-{language}.{language}")
        (tmp_path / f"train.en-{language}.en").write_text(f"{'a ' if language == 'de' else 'b '}\n" * 3)
    preprocess(options(tmp_path, zero_shot=[]))
    found = {name: texts(Corpus.open(tmp_path / "corpus" / name), "train", 0) for name in PAIRS}
    assert found["en-de"][0] == "<2de> a" and found["en-fr"][0] == "<2fr> b"
    assert found["de-en"] == (f"<2en> {found['en-de'][1]}", "a")


def test_filters_see_the_text_without_its_tokens(tmp_path: Path) -> None:
    filters = FilterConfig(max_length=4)
    corpora = open_corpora([make_corpus(tmp_path, tag_side=Sides.both, filters=filters)])
    lines = (tmp_path / "train.en").read_text().splitlines()
    assert {len(corpus.split("train")) for corpus in corpora[:4]} == {sum(len(line.split()) <= 4 for line in lines)}


def test_a_corpus_of_several_directions_is_replaced_and_checked_as_a_whole(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path)
    with pytest.raises(NMTError, match="is not empty"):
        preprocess(options(tmp_path))
    preprocess(options(tmp_path, overwrite=True, zero_shot=[]))
    assert not (folder / "de-fr").exists()
    (folder / "fr-en" / "train.fr.tokens.npy").unlink()
    with pytest.raises(DataError, match=r"fr-en/train.fr.tokens.npy is missing"):
        open_corpora([folder])


def test_one_direction_is_opened_by_its_languages_or_its_folder(tmp_path: Path) -> None:
    folder = make_corpus(tmp_path)
    assert Corpus.open_one(folder, "de", "fr").folder == Corpus.open(folder / "de-fr").folder == folder / "de-fr"
    assert (
        Corpus.open_one(folder / "en-de", "de", "en").direction == "en-de"
    )  # languages of a plain corpus are not chosen
    for asked in ((None, None), ("en", None), ("it", "en")):
        with pytest.raises(DataError, match="has the directions en-de, .*, fr-de; name the folder of one, such as"):
            Corpus.open_one(folder, *asked)
    with pytest.raises(DataError, match="has the directions"):
        Corpus.open(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": ["ende"]}, "--pairs ende is not a direction; write two languages"),
        ({"pairs": ["en-en"]}, "--pairs en-en is not a direction"),
        ({"pairs": ["en-de", "en-de"]}, "direction en-de is named twice"),
        ({"zero_shot": ["en-de"]}, "direction en-de is named twice; name each once, trained or zero-shot"),
        ({"zero_shot": ["en-it"]}, "--zero-shot en-it must have two languages of --pairs, which are en, de, fr"),
        ({"pairs": []}, "--zero-shot de-fr,fr-de needs the trained directions too; add --pairs"),
        ({"validpref": None}, "--zero-shot needs text to score; give --validpref"),
        ({"tag": "de"}, "--pairs excludes --tag; omit it"),
        ({"source_lang": "en"}, "--pairs excludes --source-lang; omit it"),
        ({"align_suffix": "align"}, "--pairs excludes --align-suffix; omit it"),
        ({"shard": "1/2"}, "--pairs excludes --shard; omit it"),
        ({"filters": FilterConfig(source_script="Latin")}, "--pairs excludes --source-script and --target-script"),
        ({"trainpref": "text.tsv"}, "--pairs cannot read the columns of text.tsv"),
        (
            {"pairs": [], "zero_shot": [], "source_lang": "en", "target_lang": "de", "tag_side": Sides.both},
            "--tag-side needs a language token; add --tag LANGUAGE or --pairs",
        ),
    ],
)
def test_impossible_pairs_are_refused_before_text_is_read(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        preprocess(options(tmp_path, **changes))


def test_a_language_without_text_or_without_a_token_is_refused(tmp_path: Path) -> None:
    write_text(tmp_path, train=3, valid=2)
    with pytest.raises(MissingInputError, match=r"train.it nor .* exists"):
        preprocess(options(tmp_path, pairs=["en-it"], zero_shot=[]))
    (tmp_path / "tokens").write_text("\n".join(["<2en>", *LETTERS]))
    with pytest.raises(UsageError, match="lacks the language token '<2de>'; a learned vocabulary .*<2en>,<2de>,<2fr>"):
        preprocess(options(tmp_path))
    assert not (tmp_path / "corpus").exists()


def test_a_language_that_the_existing_vocabulary_lacks_is_refused(tmp_path: Path) -> None:
    existing, destination = str(make_corpus(tmp_path / "text")), str(tmp_path / "new")
    (tmp_path / "text" / "train.it").write_bytes((tmp_path / "text" / "train.de").read_bytes())
    for changes in (
        {"pairs": ["en-it"], "zero_shot": []},
        {"pairs": [], "zero_shot": [], "source_lang": "en", "target_lang": "de", "tag": "it", "tgtdict": existing},
    ):
        config = options(tmp_path / "text", srcdict=existing, destdir=destination, validpref=None, **changes)
        with pytest.raises(UsageError, match=r"the model has no language 'it'; it has en, de, fr$") as refused:
            preprocess(config)
        assert "--user-defined-symbols" not in str(refused.value) and not Path(destination).exists()


def single(folder: Path, **changes: Any) -> Corpus:
    """The corpus from "en" to "de" alone."""
    parts: dict[str, Any] = {"pairs": [], "zero_shot": [], "source_lang": "en", "target_lang": "de", "tag": "de"}
    config = options(folder, **(parts | {"joined_dictionary": True, "overwrite": True} | changes))
    return Corpus.open(Path(preprocess(config).folder))


def test_alignments_count_the_tokens_of_both_sides(tmp_path: Path) -> None:
    write_text(tmp_path, train=3, valid=2)
    (tmp_path / "train.align").write_text("0-0 1-1\n" * 3)
    read = {}
    for side in (None, Sides.source, Sides.target, Sides.both):
        corpus = single(tmp_path, tag="de" if side else None, tag_side=side, align_suffix="align")
        alignments = corpus.split("train").alignments
        assert alignments is not None
        read[side] = alignments[0].tolist()
    assert read[None] == [[0, 0], [1, 1]] and read[Sides.source] == [[1, 0], [2, 1]]
    assert read[Sides.target] == [[0, 1], [1, 2]] and read[Sides.both] == [[1, 1], [2, 2]]


def test_shards_with_tokens_on_both_sides_make_the_whole_corpus(tmp_path: Path) -> None:
    write_text(tmp_path, train=9, valid=2)
    whole = single(tmp_path, tag_side=Sides.both, destdir=f"{tmp_path}/whole")
    for number in (1, 2):
        changes: dict[str, Any] = {"shard": f"{number}/2", "tgtdict": f"{tmp_path}/tokens"}
        preprocess(
            dataclasses.replace(
                options(tmp_path, pairs=[], zero_shot=[]),
                source_lang="en",
                target_lang="de",
                tag="de",
                tag_side=Sides.both,
                destdir=f"{tmp_path}/shards",
                **changes,
            )
        )
    merged = PreprocessConfig(merge=f"{tmp_path}/shards", destdir=f"{tmp_path}/merged", tokenizer=WordsConfig())
    joined = Corpus.open(Path(preprocess(merged).folder))
    assert joined.started == 1
    assert [texts(joined, "train", n) for n in range(9)] == [texts(whole, "train", n) for n in range(9)]


def test_the_tokens_of_an_existing_model_are_kept(tmp_path: Path) -> None:
    write_text(tmp_path, train=3, valid=2)
    pair = single(tmp_path).pair
    tokens = {"en": "<2en>", "de": "<2de>", "f": "<2fr>"}
    known = LanguageTokens(tokens, SourceToken.source, target=True)
    dataclasses.replace(pair, languages=known).save(tmp_path / "model")
    corpus = single(tmp_path, srcdict=f"{tmp_path}/model", tag=None)
    assert texts(corpus, "train", 0)[0].startswith("<2en> ") and texts(corpus, "train", 0)[1].startswith("<2de> ")
    other = single(tmp_path, srcdict=f"{tmp_path}/model", tag="f")
    assert texts(other, "train", 0)[0].startswith("<2en> ") and texts(other, "train", 0)[1].startswith("<2fr> ")


@pytest.mark.parametrize("varied", [{"bpe_dropout": 0.9}, {"augment": ["upper_case=1"]}])
def test_text_that_varies_keeps_the_tokens_of_both_sides(tmp_path: Path, varied: dict[str, Any]) -> None:
    write_text(tmp_path, train=30, valid=2)
    bpe = BpeConfig(vocab_size=60, hard_vocab_limit=False)
    corpus = single(tmp_path, srcdict=None, tokenizer=bpe, tag_side=Sides.both, keep_text=True)
    split, stored = corpus.split("train"), StoredPairs([corpus], "train")
    variation = Variation(split, corpus.pair, VariationConfig(**varied), 1, stored)
    token = corpus.pair.target.vocabulary.id("<2de>")
    changed = variation.read(PlannedBatch(np.arange(30), 1))
    assert all(sentence[0] == token not in sentence[1:] for side in changed for sentence in side)
    usual = variation.usual(PlannedBatch(np.arange(30), 1))
    assert [side.tolist() for side in changed[1]] != [side.tolist() for side in usual[1]]
