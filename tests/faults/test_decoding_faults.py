"""The fault catalogue for translating and scoring, through nmt-generate; the numbers are those of the catalogue."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers import Tokenizer
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.data.tokenizers.sentencepiece import BpeConfig, SentencePieceBuilder, UnigramConfig
from nmt.models.transformer.config import PositionKind
from tests.commands import run_copy
from tests.faults.tiny_runs import refused
from tests.tiny_models import write_tiny_model


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has learned vectors for eight positions."""
    folder = tmp_path_factory.mktemp("models") / "model"
    return write_tiny_model(folder, model="transformer", updates=0, positions=PositionKind.learned, max_positions=8)


def answers(model: Path, stdin: str, *options: str) -> tuple[list[dict[str, object]], str]:
    done = run_copy("generate", "--path", model, "--cpu", "--format", "jsonl", *options, stdin=stdin.encode())
    said = done.stderr.decode()
    assert done.returncode == 0 and "Traceback" not in said, said
    return [json.loads(line) for line in done.stdout.decode().splitlines()], said


def test_fault_77_translations_that_reach_the_limit_are_shown_and_flagged(learned: Path) -> None:
    found, said = answers(learned, "rot\nein mann\n", "--max-len-a", "0", "--max-len-b", "1", "search.min_len=1")
    flags = [hypothesis["finished"] for line in found for hypothesis in line["hypotheses"]]
    assert len(flags) == 2 and not all(flags)
    assert "the length limit cut off " in said


def test_fault_79_a_line_beyond_the_learned_positions_is_translated_in_parts(learned: Path) -> None:
    found, said = answers(learned, f"rot\n{'rot ' * 20}\n", "--max-len-b", "3")
    assert len(found) == 2
    assert "line 2 has 20 tokens; it is translated in 3 parts (the model's maximum)" in said


LETTERS = "abcde" * 200_000
MERGES = b"#version: 0.2\na b\nc d\nab cd\nabcd e\nabcde abcde\nabcdeabcde abcdeabcde\n"
WORDS_OF_LETTERS = ["abcdeabcdeabcde", "abcde", "bcdea", "cdeab", "deabc", "eabcd", "rot"]


def tokenizers_of_letters() -> dict[str, Tokenizer]:
    learned = {
        name: SentencePieceBuilder(config(vocab_size=40, hard_vocab_limit=False)).train(WORDS_OF_LETTERS * 10, seed=1)
        for name, config in (("bpe", BpeConfig), ("unigram", UnigramConfig))
    }
    codes = BpeCodes(
        BpeCodesConfig(), MERGES, ["abcdeabcdeabcdeabcde@@", "rot", *(f"{letter}@@" for letter in "abcde")]
    )
    return {"words": WordTokenizer(WordsConfig(), ["rot"]), "bpe_codes": codes, **learned}


@pytest.mark.parametrize("name", ["words", "bpe_codes", "bpe", "unigram"])
def test_a_line_of_a_million_letters_without_spaces_is_translated_in_parts(name: str, tmp_path: Path) -> None:
    """The whole line is tokenized before it is divided."""
    tokenizer = tokenizers_of_letters()[name]
    pair = LanguagePair("de", "en", tokenizer, tokenizer, shared=True)
    model = write_tiny_model(tmp_path / "model", model="transformer", updates=0, pair=pair)
    limits = ("--beam", "1", "--max-len-a", "0", "--max-len-b", "1")
    done = run_copy("generate", "--path", model, "--cpu", *limits, stdin=f"rot\n{LETTERS}\nrot\n".encode(), timeout=300)
    said = done.stderr.decode()
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3 and "Traceback" not in said, said
    parts = re.findall(r"line 2 has (\d+) tokens; it is translated in (\d+) parts", said)
    if name == "words":
        assert not parts  # one unknown word
    else:
        ((pieces, count),) = parts
        assert int(pieces) >= 50_000 and int(count) >= int(pieces) // 1024


def test_fault_79_training_on_a_sentence_beyond_the_learned_positions_is_refused(
    copy_corpus: Path, tmp_path: Path
) -> None:
    model = "model=transformer_tiny model.positions=learned model.max_positions=4 --max-update 2 --cpu".split()
    said = refused("train", copy_corpus, *model, "--save-dir", tmp_path / "run", status=65)
    assert (
        "the longest source of split 'train' has 8 tokens, but the model reads at most 4; raise its limit, or " in said
    )
    assert not list((tmp_path / "run").glob("checkpoint-*"))


SCORED = ("--input-format", "tsv", "--score-reference", "--format", "jsonl", "--cpu")


@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        (b"rot\tred\nrot\n", "standard input, line 2 should have two fields"),
        (
            b"rot\tred\nrot\t" + b"red " * 20 + b"\n",
            "the reference of line 2 has 20 tokens, but the model writes at most 7; remove the line",
        ),
    ],
)
def test_fault_80_a_reference_that_cannot_be_scored_is_refused_by_its_line(
    stdin: bytes, says: str, learned: Path, tmp_path: Path
) -> None:
    line = ("--path", learned, *SCORED, "--output", tmp_path / "out")
    assert says in refused("generate", *line, status=65, stdin=stdin)
    assert list(tmp_path.iterdir()) == []


def test_fault_80_different_line_counts_are_bad_data_with_the_line_where_they_part(tmp_path: Path) -> None:
    lines = [f"this is line {number} of a text" for number in range(9)]
    (tmp_path / "ref").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "hyp").write_text("".join(f"{line}\n" for line in lines if "4" not in line))
    said = refused("score", "--sys", "hyp", "--ref", "ref", status=65, cwd=tmp_path)
    assert "hyp has 8 lines, ref has 9" in said and "line" in said.partition(";")[2]


WITHOUT_NETWORK = """
import socket

def nobody(*_, **__):
    raise socket.gaierror(-3, "Temporary failure in name resolution")

socket.getaddrinfo = nobody
"""


def test_fault_76_a_tokenizer_that_cannot_be_fetched_says_where_its_file_belongs(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("a b\n")
    line = ("--sys", "text", "--ref", "text", "--tokenize", "flores200")
    cache = str(tmp_path / "cache")
    said = refused("score", *line, status=69, cwd=tmp_path, before=WITHOUT_NETWORK, SACREBLEU=cache)
    assert f"tokenizer 'flores200' needs a file that it could not download to {cache} (" in said
    assert "connect to the network once, or put the file there" in said
    assert run_copy("score", *line[:4], cwd=tmp_path, before=WITHOUT_NETWORK, SACREBLEU=cache).returncode == 0


def test_fault_83_an_output_that_exists_is_kept_until_it_may_be_replaced(learned: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious\n")
    line = ("--path", learned, "--cpu", "--output", out)
    assert "out exists already; choose another name, or replace it with --overwrite" in refused(
        "generate", *line, status=73, stdin=b"rot\n"
    )
    assert out.read_text() == "precious\n"
    assert run_copy("generate", *line, "--overwrite", stdin=b"rot\nrot\n").returncode == 0
    assert out.read_text().count("\n") == 2 and list(tmp_path.iterdir()) == [out]
