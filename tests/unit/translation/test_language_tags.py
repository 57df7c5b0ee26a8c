"""Which language tag stands before what is translated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from nmt.config.commands import GenerateConfig
from nmt.config.preprocessing import PreprocessConfig
from nmt.data.corpus.folder import Corpus
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import WordsConfig
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import DataError, UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.translation import Translator
from nmt.translation.lines import Line
from tests.commands import run_copy
from tests.tiny_models import WORDS, in_english, some_lines, tiny_pair, write_tiny_model

TAGS = ("<2en>", "<2fr>", ">>deu<<")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pair = tiny_pair((*TAGS, *WORDS)).with_tag("en")
    return write_tiny_model(tmp_path_factory.mktemp("tagged") / "model", updates=5, pair=pair)


def sources(model: Path, lines: list[str | Line], **options: Any) -> list[str]:
    return [" ".join(one.source_pieces) for one in Translator.load(model).translations(lines, **options)]


def test_the_tag_of_the_corpus_stands_before_each_line_unless_another_is_asked_for(model: Path) -> None:
    assert sources(model, ["ein mann", "", " "]) == ["<2en> ein mann", "", ""]
    assert sources(model, ["ein mann"], tag="fr") == ["<2fr> ein mann"]
    assert sources(model, ["ein mann"], tag="deu") == [">>deu<< ein mann"]
    assert sources(model, [Line("rot", tag="fr"), "rot"]) == ["<2fr> rot", "<2en> rot"]
    assert sources(model, [Line("rot", tag="fr"), "rot"], tag="deu") == ["<2fr> rot", ">>deu<< rot"]


def test_a_tag_that_was_typed_is_the_line_s_own(model: Path) -> None:
    assert sources(model, ["<2fr> rot", ">>deu<< rot"]) == ["<2fr> rot", ">>deu<< rot"]
    assert sources(model, [Line("<2fr> rot", tag="en")]) == ["<2en> rot"]


@pytest.mark.parametrize("tag", ["en", None])
def test_a_tag_that_was_typed_is_found_by_sentencepiece_too(tmp_path: Path, tag: str | None) -> None:
    """A model that was made without tags has seen typed ones behind a space, as they stand in its text."""
    lines = [f"<2fr> {line}" for line in some_lines(50)]
    bpe = BpeConfig(vocab_size=60, hard_vocab_limit=False, user_defined_symbols=["<2en>", "<2fr>"])
    tokenizer = tokenizers.build(bpe).train(lines, 1)
    pair = LanguagePair("de", "en", tokenizer, tokenizer, shared=True)
    pair = pair if tag is None else pair.with_tag(tag)
    model = write_tiny_model(tmp_path / "model", updates=1, pair=pair)
    typed = "<2fr>" if tag else "\u2581 <2fr>"
    (line, other, long) = sources(model, ["<2fr> rot", "rot", "<2fr> rot schnee hunde laufen"], max_source_length=4)
    assert line.startswith(f"{typed} \u2581") and line.count("<2") == 1
    assert other.startswith("<2en> \u2581" if tag else "\u2581")
    assert long.count(typed) == long.count("<2") > 1
    assert sources(model, [Line("<2fr> rot", tag="en")])[0] == line.replace(typed, "<2en>")


def test_a_model_without_tags_reads_what_is_nothing_but_one(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model", updates=1, pair=tiny_pair((*TAGS, *WORDS)))
    assert sources(model, [">>deu<<", "<2fr> <2fr>"]) == [">>deu<<", "<2fr> <2fr>"]


def test_each_part_of_a_long_line_has_the_tag(model: Path) -> None:
    line = "ein mann zwei hunde laufen"
    assert sources(model, [line], max_source_length=3) == ["<2en> ein mann <2en> zwei hunde <2en> laufen"]
    assert sources(model, [f"<2fr> {line}"], max_source_length=3) == ["<2fr> ein mann <2fr> zwei hunde <2fr> laufen"]
    assert sources(model, [line], max_source_length=3, long_lines="truncate") == ["<2en> ein mann"]


def test_a_tag_that_the_model_has_not_is_refused(model: Path) -> None:
    with pytest.raises(UsageError, match="^the model has no language 'es'; it has en, fr, deu"):
        sources(model, ["rot"], tag="es")
    with pytest.raises(DataError, match="line 2: the model has no language 'es'"):
        sources(model, ["rot", Line("rot", tag="es")])
    with pytest.raises(UsageError, match="--tag en and --target-lang fr are two target languages; give one"):
        sources(model, ["rot"], tag="en", target_lang="fr")
    with pytest.raises(UsageError, match="tag='en' and target_lang='fr' are two languages; give one"):
        Line("rot", tag="en", target_lang="fr")


def test_a_model_without_tags_reads_lines_as_they_are(tmp_path: Path) -> None:
    plain = write_tiny_model(tmp_path / "plain", updates=5)
    assert sources(plain, ["ein mann"]) == ["ein mann"]
    assert sources(plain, ["ein mann"], source_lang="de", tag="en") == ["ein mann"]
    with pytest.raises(UsageError, match="^the model translates from de to en, not to fr"):
        sources(plain, ["ein mann"], tag="fr")


@pytest.mark.slow
def test_unknown_words_are_looked_for_behind_the_tag(tmp_path: Path) -> None:
    words = tuple(word for word in (*TAGS, *WORDS) if word != "snow")
    pair = tiny_pair(words).with_tag("en")
    model = write_tiny_model(tmp_path / "model", updates=300, pair=pair, words=words)
    translator = Translator.load(model)
    lines = ["ein schnee", "<2fr> zwei schnee laufen", "<2es> rot schnee", "schnee schnee schnee"]
    for line, translation in zip(lines, translator.translations(lines, replace_unk=True)):
        text = translation.hypotheses[0].text
        assert "<2" not in text and ">>" not in text, line
    assert "schnee" in " ".join(translator.translate(lines, replace_unk=True))


def corpus_of(model: Path, folder: Path, tag: str | None) -> Corpus:
    lines = ["ein mann", "zwei hunde laufen rot"]
    for language, side in (("de", lines), ("en", list(map(in_english, lines)))):
        (folder / f"test.{language}").write_text("".join(f"{line}\n" for line in side))
    config = PreprocessConfig(
        "de", "en", testpref=f"{folder}/test", destdir=f"{folder}/corpus", tag=tag, overwrite=True
    )
    given = str(model.with_name("model-tokenizer"))
    report = preprocess(dataclasses.replace(config, tokenizer=WordsConfig(), srcdict=given, tgtdict=given))
    return Corpus.open(Path(report.folder))


def test_sentences_of_a_corpus_keep_their_tag_unless_another_is_asked_for(model: Path, tmp_path: Path) -> None:
    translator = Translator.load(model)

    def read(written: str | None, **options: Any) -> list[str]:
        split = corpus_of(model, tmp_path, written).split("test")
        stored = None if options.get("tag") else tiny_pair().direction()
        found = translator.hypotheses_of_split(split, GenerateConfig(**options), stored=stored)
        return [" ".join(one.source_pieces) for one in found]

    assert read("fr") == ["<2fr> ein mann", "<2fr> zwei hunde laufen rot"]
    assert read("fr", tag="deu", max_source_length=3)[1] == ">>deu<< zwei hunde >>deu<< laufen rot"
    assert read("fr", max_source_length=3)[1] == "<2fr> zwei hunde <2fr> laufen rot"
    assert read(None) == ["ein mann", "zwei hunde laufen rot"]


@pytest.mark.slow
def test_the_command_chooses_a_tag_and_names_the_one_that_nobody_chose(model: Path) -> None:
    def run(*options: str, stdin: bytes = b"ein mann\n") -> tuple[int, str, str]:
        done = run_copy("generate", "--path", model, "--device", "cpu", "--format", "jsonl", *options, stdin=stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    status, output, log = run()
    assert status == 0 and '"<2en>"' in output
    assert (
        "translating from de to en; choose another direction with --source-lang and --target-lang: en, fr, deu" in log
    )
    status, output, log = run("--tag", "fr")
    assert status == 0 and '"<2fr>"' in output and "another direction" not in log
    status, output, log = run("--input-format", "jsonl", stdin=b'{"text": "rot", "tag": "deu"}\n{"text": "rot"}\n')
    assert status == 0 and '">>deu<<"' in output.splitlines()[0] and '"<2en>"' in output.splitlines()[1]
    status, output, log = run("--tag", "es")
    assert (status, output) == (2, "") and "the model has no language 'es'" in log
    status, output, log = run("--input-format", "jsonl", stdin=b'{"text": "rot", "tag": "es"}\n')
    assert status == 65 and "line 1: the model has no language 'es'" in log


@pytest.mark.slow
def test_reranking_asks_a_model_of_several_directions_for_the_language_of_the_source(tmp_path: Path) -> None:
    forward = write_tiny_model(tmp_path / "forward", updates=60)
    found = []
    for tag in ("de", "fr"):  # the first direction of the reverse model
        pair = tiny_pair(("<2de>", "<2fr>", *WORDS), reverse=True)
        pair = dataclasses.replace(pair, target_lang=tag).with_tag(tag)
        back = write_tiny_model(tmp_path / f"back-{tag}", updates=60, pair=pair)
        options = ("--path", forward, "--rerank", back, "--beam", "4", "--format", "jsonl", "--device", "cpu")
        done = run_copy("generate", *options, stdin=b"ein mann\nzwei hunde laufen\n")
        assert done.returncode == 0, done.stderr.decode()
        found.append(done.stdout)
    assert found[0] == found[1]
