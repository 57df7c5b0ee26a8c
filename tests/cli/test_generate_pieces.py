"""nmt-generate with models of text that was cut before, and --remove-bpe with others."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import nmt_cli.train  # noqa: F401 - it makes the options of training known
from nmt.config.choices import OutputFormat, PieceMarks
from nmt.config.commands import GenerateConfig
from nmt.config.option import flags_of
from nmt.config.preprocessing import PreprocessConfig
from nmt.config.sections import TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.text.piece_marks import joined
from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece import BpeConfig
from nmt.errors import UsageError
from nmt.preprocessing.preprocess import preprocess
from nmt.search.beam import BeamConfig
from nmt.search.greedy import GreedyConfig
from nmt.translation import Translator
from nmt.translation.choosing import ReverseModel, Score
from nmt_cli import generate_job
from nmt_cli.command_line.argv import rewrite
from nmt_cli.command_line.flags import grammar_of
from nmt_cli.generate import run
from tests.commands import run_copy
from tests.tiny_models import WORDS, write_tiny_model

SUBWORD = PieceMarks.subword_nmt
SOURCES = ["zwei hau@@ s", "ein mann"]
REFERENCES = ["two hau@@ s", "a man"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = WordTokenizer(WordsConfig(), (*WORDS, "hau@@", "s")).joining(SUBWORD)
    pair = LanguagePair("de", "en", tokenizer, tokenizer, shared=True)
    return write_tiny_model(tmp_path_factory.mktemp("models") / "cut", updates=30, pair=pair)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for split in ("train", "test"):
        for language, lines in (("de", SOURCES), ("en", REFERENCES)):
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    config = PreprocessConfig("de", "en", str(folder / "train"), testpref=str(folder / "test"))
    config.srcdict = config.tgtdict = str(model / "tokenizer")
    config.destdir = str(folder / "bin")
    preprocess(config)
    return folder / "bin"


def generated(capsys: pytest.CaptureFixture[str], **options: object) -> list[str]:
    run(GenerateConfig(**({"search": GreedyConfig()} | options)))  # type: ignore[arg-type]
    return capsys.readouterr().out.split("\n")[:-1]


def column(lines: list[str], kind: str) -> list[str]:
    return [line.split("\t")[-1] for line in lines if line.startswith(f"{kind}-")]


@pytest.mark.parametrize("subset", ["train", "test"])
def test_t_and_d_lines_are_joined_while_s_and_h_lines_keep_the_pieces(
    subset: str, model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"path": str(model), "data": [str(corpus)], "gen_subset": subset, "format": OutputFormat.fairseq}
    lines = generated(capsys, **options, score_reference=True)
    assert column(lines, "S") == SOURCES and column(lines, "H") == REFERENCES
    assert column(lines, "T") == column(lines, "D") == ["two haus", "a man"]
    apart = generated(capsys, **options, score_reference=True, remove_bpe=PieceMarks.none)
    assert column(apart, "T") == column(apart, "D") == REFERENCES


def test_the_score_of_a_split_is_that_of_words(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "nmt"):
        generated(capsys, path=str(model), data=[str(corpus)])
    assert "ref_len = 4" in caplog.text  # of the two references' five pieces
    with caplog.at_level(logging.INFO, "nmt"):
        generated(capsys, path=str(model), data=[str(corpus)], remove_bpe=PieceMarks.none)
    assert "ref_len = 7" in caplog.text  # 13a takes "hau@@" for three words


def test_json_lines_have_texts_joined_and_tokens_apart(
    model: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"path": str(model), "data": [str(corpus)], "format": OutputFormat.jsonl, "score_reference": True}
    first = json.loads(generated(capsys, **options)[0])
    assert (first["source"], first["reference"]) == ("zwei hau@@ s", "two haus")
    assert first["source_tokens"] == ["zwei", "hau@@", "s"]
    (one,) = first["hypotheses"]
    assert (one["text"], one["tokens"]) == ("two haus", ["two", "hau@@", "s"])


@pytest.mark.parametrize(("flags", "text"), [([], "haus"), (["--no-remove-bpe"], "hau@@ s")])
def test_the_command_joins_by_default_and_a_flag_leaves_pieces_apart(flags: list[str], text: str, model: Path) -> None:
    line = b'{"text": "zwei hunde", "prefix": "hau@@ s"}\n'
    result = run_copy("generate", "--path", model, "--input-format", "jsonl", "--search", "greedy", *flags, stdin=line)
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode().startswith(text)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["--remove-bpe"], "subword_nmt"),
        (["--remove-bpe", "sentencepiece"], "sentencepiece"),
        (["--remove-bpe=sentencepiece"], "sentencepiece"),
        (["--post-process"], "subword_nmt"),
        (["--post-process", "sentencepiece"], "sentencepiece"),
        (["--no-remove-bpe"], "none"),
    ],
)
def test_the_flag_is_written_as_fairseqs(arguments: list[str], value: str) -> None:
    line = rewrite([*arguments, "bin"], grammar_of(GenerateConfig))
    assert f"remove_bpe={value}" in line.overrides and "data=['bin']" in line.overrides


def test_nothing_is_asked_of_pieces_by_default() -> None:
    (flag,) = [flag for flag in flags_of(GenerateConfig) if flag.name == "--remove-bpe"]
    assert flag.default is None and GenerateConfig().remove_bpe is None


def test_where_there_is_nothing_to_join_one_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = tokenizers.build(BpeConfig(vocab_size=40)).train([" ".join(WORDS)] * 3, 1)
    pair = LanguagePair("de", "en", tokenizer, tokenizer, shared=True)
    model = write_tiny_model(tmp_path / "bpe", updates=1, pair=pair)
    (tmp_path / "source").write_text("rot\n", encoding="utf-8")
    options = {"path": str(model), "input": str(tmp_path / "source")}
    with caplog.at_level(logging.INFO, "nmt"):
        plain = generated(capsys, **options)
        assert "--remove-bpe" not in caplog.text
        assert generated(capsys, **options, remove_bpe=SUBWORD) == plain
    assert caplog.text.count("--remove-bpe has no effect: the model's tokenizer already joins tokens") == 1


def test_other_marks_than_the_corpus_has_get_a_warning(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "source").write_text("rot\n", encoding="utf-8")
    (line,) = generated(capsys, path=str(model), input=str(tmp_path / "source"), remove_bpe=PieceMarks.sentencepiece)
    assert "--remove-bpe sentencepiece does not match the training text of the model; use subword_nmt" in caplog.text
    assert line == joined(line, PieceMarks.sentencepiece)


@pytest.mark.parametrize(("joins", "in_pieces"), [(None, True), (PieceMarks.none, False)])
def test_a_model_that_reranks_reads_pieces_where_they_are_joined(
    joins: PieceMarks | None,
    in_pieces: bool,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[bool] = []

    class Seen(ReverseModel):
        def __init__(
            self,
            score: Score,
            weight: float,
            config: GenerateConfig,
            *,
            in_pieces: bool = False,
        ) -> None:
            asked.append(in_pieces)
            super().__init__(score, weight, config, in_pieces=in_pieces)

    monkeypatch.setattr(generate_job, "ReverseModel", Seen)
    tokenizer = Translator.load(model, device="cpu").pair.source
    pair = LanguagePair("en", "de", tokenizer, tokenizer, shared=True)
    backward = write_tiny_model(tmp_path / "back", updates=1, pair=pair)
    (tmp_path / "source").write_text("zwei hau@@ s\n", encoding="utf-8")
    options = {"path": str(model), "input": str(tmp_path / "source"), "rerank": str(backward), "remove_bpe": joins}
    assert len(generated(capsys, **options, search=BeamConfig(beam_size=2))) == 1
    assert asked == [in_pieces]


@pytest.mark.parametrize("flag", ["--remove-bpe", "--post-process"])
def test_training_is_told_that_it_needs_no_such_flag(flag: str) -> None:
    with pytest.raises(UsageError, match="validation joins tokens as the corpus records"):
        rewrite(["bin", flag], grammar_of(TrainConfig))
