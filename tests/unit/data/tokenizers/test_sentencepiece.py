"""Pieces learned with sentencepiece, and models that were learned elsewhere."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece

from nmt.data.tokenizers import Tokenizer, known_words, tokenizers
from nmt.data.tokenizers.sentencepiece import BpeConfig, Normalization, UnigramConfig, _parts, sampled
from nmt.data.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from nmt.errors import DataError, Interrupted, UsageError
from tests.unit.data.tokenizers.german import TEXT

KINDS = {"bpe": BpeConfig(vocab_size=120), "unigram": UnigramConfig(vocab_size=45)}


def train(config: Any, lines: list[str] = TEXT, seed: int = 1) -> Tokenizer:
    return tokenizers.build(config).train(iter(lines), seed)


@pytest.mark.parametrize("name", ["bpe", "unigram"])
@pytest.mark.parametrize("written", ["</s>", "<s>", "<unk>", "<pad>"])
def test_pieces_are_learned_from_the_spelling_of_a_special_too(name: str, written: str) -> None:
    tokenizer = train(replace(KINDS[name], hard_vocab_limit=False), [*TEXT, f"ein {written} Haus"])
    ids = tokenizer.encode([f"ein {written} Haus"])[0].tolist()
    assert UNK not in ids
    assert tokenizer.decode(ids) == f"ein {written} Haus"


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_vocab_size_counts_the_specials(name: str) -> None:
    assert len(train(KINDS[name]).vocabulary) == KINDS[name].vocab_size


@pytest.mark.parametrize("config", [BpeConfig(vocab_size=5000), UnigramConfig(vocab_size=5000)])
def test_a_vocabulary_larger_than_the_text_supports_names_the_limit_and_the_way_out(config: Any) -> None:
    with pytest.raises(
        UsageError, match=r"vocab_size=5000 is more .* --vocab-size \d+ or less, or .*hard_vocab_limit=false"
    ):
        train(config)
    config.hard_vocab_limit = False
    assert len(train(config).vocabulary) < 5000


def test_a_vocabulary_smaller_than_the_alphabet_names_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"vocab_size=10 is less than the \d+ tokens .* raise --vocab-size"):
        train(BpeConfig(vocab_size=10))


def test_no_text_to_learn_from_is_said_so() -> None:
    with pytest.raises(DataError, match="no text to learn tokens from"):
        train(BpeConfig(vocab_size=50), [])


def test_a_fault_of_the_text_is_not_taken_for_one_of_the_trainer() -> None:
    def lines() -> Iterator[str]:
        yield "fine"
        raise DataError("file:2:0: byte 0xff")

    with pytest.raises(DataError, match="file:2:0"):
        tokenizers.build(BpeConfig(vocab_size=50)).train(lines(), 1)


@pytest.mark.parametrize("size", [120, 5000])
def test_training_and_its_failures_are_silent(size: int, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        train(BpeConfig(vocab_size=size))
    except UsageError:
        assert size == 5000
    assert capfd.readouterr() == ("", "")


def test_pieces_can_be_learned_from_a_sample_always_the_same() -> None:
    lines = [" ".join("abcdefgh"[digit] for digit in map(int, f"{number:04o}")) for number in range(2000)]
    lines = [line.replace(" ", "", 2) for line in lines]
    few = BpeConfig(vocab_size=60, max_training_lines=101)
    assert (
        train(few, lines).vocabulary == train(few, lines).vocabulary == train(few, [*sampled(lines, 101, 1)]).vocabulary
    )
    assert train(few, lines).vocabulary != train(few, lines, seed=2).vocabulary
    assert train(few, lines).vocabulary != train(BpeConfig(vocab_size=60), lines).vocabulary


def test_a_sample_is_even_in_order_and_the_same_for_the_same_seed() -> None:
    numbers = list(map(str, range(50)))
    assert list(sampled(numbers, 50, 1)) == list(sampled(iter(numbers), 50, 1)) == numbers
    samples = [list(map(int, sampled(iter(numbers), 10, seed))) for seed in range(2000)]
    assert all(sample == sorted(set(sample)) and len(sample) == 10 for sample in samples)
    drawn = np.bincount(np.concatenate(samples), minlength=50)  # each 400 times: a standard deviation of 18
    assert drawn.min() > 310 and drawn.max() < 490
    assert list(sampled(iter(numbers), 10, 7)) == list(map(str, samples[7]))


def test_a_sample_too_small_to_learn_from_is_refused() -> None:
    with pytest.raises(UsageError, match="max_training_lines=100 must be more than 100"):
        BpeConfig(max_training_lines=100)


def test_normalization_can_be_switched_off() -> None:
    lines = [f"{line} ﬁ" for line in TEXT]
    normalized = train(BpeConfig(vocab_size=120), lines)
    identity = train(BpeConfig(vocab_size=120, normalization=Normalization.identity), lines)
    assert normalized.decode(normalized.encode(["ﬁ"])[0].tolist()) == "fi"
    assert identity.decode(identity.encode(["ﬁ"])[0].tolist()) == "ﬁ"


def test_with_byte_fallback_nothing_is_unknown() -> None:
    tokenizer = train(BpeConfig(vocab_size=400, byte_fallback=True))
    ids = tokenizer.encode(["語 und \U0001f600"])[0].tolist()
    assert UNK not in ids
    assert tokenizer.decode(ids) == "語 und \U0001f600"


def test_character_coverage_leaves_rare_characters_unknown() -> None:
    lines = [*TEXT, "q"]
    assert UNK not in train(BpeConfig(vocab_size=120), lines).encode(["q"])[0]
    assert UNK in train(BpeConfig(vocab_size=120, character_coverage=0.99), lines).encode(["q"])[0]


@pytest.mark.parametrize("coverage", [0.5, 1.5])
def test_an_impossible_coverage_is_refused(coverage: float) -> None:
    with pytest.raises(UsageError, match=f"character_coverage={coverage}"):
        BpeConfig(character_coverage=coverage)


def foreign_model(**options: Any) -> bytes:
    model = io.BytesIO()
    settings = {"vocab_size": 120, "model_type": "bpe", "minloglevel": 2, "num_threads": 1} | options
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXT), model_writer=model, **settings)
    return model.getvalue()


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 120 - 3 + 4),  # unk 0, bos 1, eos 2, no pad
        ({"pad_id": 3}, 120),
        ({"unk_id": 5, "bos_id": -1, "eos_id": 7, "pad_id": 119}, 120 - 3 + 4),
        ({"control_symbols": ["<2de>"], "user_defined_symbols": ["<sep>"]}, 120 - 4 + 4),
    ],
)
def test_a_model_with_other_ids_is_given_ours(options: dict[str, Any], size: int, tmp_path: Path) -> None:
    path = tmp_path / "their.model"
    path.write_bytes(foreign_model(**options))
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ours = tokenizers.build(BpeConfig()).from_file(path)
    assert len(ours.vocabulary) == size
    assert ours.vocabulary.pieces[:4] == SPECIALS
    for line in [TEXT[0], TEXT[-1], "a<sep>b", "</s> <2de>"]:
        ids = ours.encode([line])[0].tolist()
        pieces = theirs.encode(line, out_type=str)
        assert [piece for piece, number in zip(pieces, ids) if number == UNK] == [
            piece for piece in pieces if theirs.is_unknown(theirs.piece_to_id(piece))
        ]
        assert [ours.vocabulary.pieces[number] for number in ids if number != UNK] == [
            piece for piece, number in zip(pieces, ids) if number != UNK
        ]
        assert not set(ids) & {PAD, BOS, EOS}
        assert ours.decode(ids) == theirs.decode(theirs.encode(line))


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"not a model", b"\n" * 100, random.Random(1).randbytes(1000)],
    ids=["empty", "zero", "text", "line feeds", "noise"],
)
@pytest.mark.parametrize("how", ["given", "load"])
def test_a_damaged_model_is_refused(content: bytes, how: str, tmp_path: Path) -> None:
    (tmp_path / "bad.model").write_bytes(content)
    builder = tokenizers.build(BpeConfig())
    readers: dict[str, Callable[[], Tokenizer]] = {
        "given": lambda: builder.from_file(tmp_path / "bad.model"),
        "load": lambda: builder.load(tmp_path, "bad"),
    }
    with pytest.raises(DataError, match=r"bad\.model is damaged"):
        readers[how]()


@pytest.mark.parametrize("how", ["given", "load"])
def test_a_model_with_a_piece_that_is_no_text_is_refused(how: str, tmp_path: Path) -> None:
    """The library reads it, and fails when it is asked for the piece."""
    path = tmp_path / "bad.model"
    model = foreign_model(normalization_rule_name="identity")
    piece = sentencepiece.SentencePieceProcessor(model_proto=model).id_to_piece(9).encode()
    assert piece.startswith("\u2581".encode())
    path.write_bytes(model.replace(piece, b"\xe2\x16\x81" + piece[3:], 1))
    builder = tokenizers.build(BpeConfig())
    with pytest.raises(DataError, match=r"bad\.model is damaged"):
        builder.from_file(path) if how == "given" else builder.load(tmp_path, "bad")


def test_every_truncation_of_a_model_is_refused(tmp_path: Path) -> None:
    model = foreign_model()
    for length in np.linspace(1, len(model) - 1, 60, dtype=int):
        (tmp_path / "short.model").write_bytes(model[:length])
        with pytest.raises(DataError, match=r"short\.model is damaged"):
            tokenizers.build(BpeConfig()).load(tmp_path, "short")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, Interrupted("stopped")])
def test_an_interruption_of_the_lines_is_passed_on(stop: Any) -> None:
    def lines() -> Iterator[str]:
        yield from TEXT
        raise stop

    with pytest.raises(type(stop) if isinstance(stop, Exception) else stop):
        tokenizers.build(BpeConfig(vocab_size=120)).train(lines(), 1)


@pytest.mark.parametrize("kind", [BpeConfig, UnigramConfig])
@pytest.mark.parametrize(
    "long", ["wxyz " * 1000, "wxyz" * 1250, "\u6f22" * 1500 + "w"], ids=["words", "a word", "characters"]
)
def test_pieces_are_learned_from_long_lines_too(kind: Any, long: str) -> None:
    lines = [line for _ in range(50) for line in ("a short line", long)]
    tokenizer = train(kind(vocab_size=40, hard_vocab_limit=False), lines)
    assert UNK not in tokenizer.encode(["w"])[0]


def test_a_long_line_is_cut_between_words_and_nothing_is_lost() -> None:
    line = "ab cde  " * 1000 + "f" * 3000
    parts = list(_parts(line))
    assert "".join(parts) == line and all(len(part.encode()) <= 4192 for part in parts)
    assert {word.strip("f") for part in parts for word in part.split()} == {"ab", "cde", ""}
    assert list(_parts("\u6f22" * 1397)) == ["\u6f22" * 1397]  # as the trainer takes it: nothing is cut


def test_a_line_of_which_a_part_is_blank_is_learned_from() -> None:
    tokenizer = train(BpeConfig(vocab_size=120), [*TEXT, "ein" + " " * 9000 + "Haus q"])
    assert UNK not in tokenizer.encode(["q"])[0]


def test_symbols_of_users_are_one_piece_wherever_they_stand() -> None:
    lines = [f"ein kleiner Mann geht {number} Schritte weit" for number in range(150)]
    tokenizer = tokenizers.build(BpeConfig(vocab_size=70, user_defined_symbols=["<num>", "kleiner"])).train(lines, 1)
    (ids,) = tokenizer.encode(["5<num>kleiner"])
    pieces = [tokenizer.vocabulary.pieces[number] for number in ids]
    assert pieces[-2:] == ["<num>", "kleiner"] and tokenizer.decode(ids) == "5<num>kleiner"


def test_a_symbol_with_a_space_is_refused() -> None:
    with pytest.raises(UsageError, match="user_defined_symbols: 'a b' is empty or contains a space"):
        BpeConfig(user_defined_symbols=["a b"])


# --- words that are cut once

STRANGE = [
    "",
    " ",
    "  ein  Mann ",
    "\u3000Frau\u3000\tKind\x01 \u200b \u200bHund",
    "\u00a8a b\u00a8 \ufb01n \u0301 a\u0301 \u00b4",
    "\u2581Mann \u2581 Kind\u2581 \u2581\u2581 a\u2581b",
    "\u4e2d\u6587 \u4e2d \u4e2dein ein\u4e2d \U0001f600\U0001f600 \U0001f600",
    "ein Mann\u0085sieht\u2028das\u2029Haus\x0b\x0c\r",
    "</s> <unk> <num> x<num>y<num>",
    "\n",
    "ein\nMann",
]


def flat(tokenizer: Tokenizer, lines: list[str]) -> tuple[list[int], list[int]]:
    tokens, lengths = tokenizer.encode_flat(lines)
    return tokens.tolist(), lengths.tolist()


def line_by_line(tokenizer: Tokenizer, lines: list[str]) -> tuple[list[int], list[int]]:
    ids = [[*sentence.tolist(), EOS] for sentence in tokenizer.encode(lines)]
    return [number for sentence in ids for number in sentence], [*map(len, ids)]


@pytest.mark.parametrize("normalization", Normalization)
@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_lines_are_cut_as_their_words_are(kind: str, byte_fallback: bool, normalization: Normalization) -> None:
    made = replace(KINDS[kind], hard_vocab_limit=False, byte_fallback=byte_fallback, vocab_size=500)
    tokenizer = train(replace(made, normalization=normalization, user_defined_symbols=["<num>"]))
    draw = random.Random(1)
    words = [word for line in [*TEXT, *STRANGE] for word in line.split(" ")]
    mixed = [
        draw.choice([" ", "  ", "\t", "\u00a0"]).join(draw.choices(words, k=draw.randrange(9))) for _ in range(300)
    ]
    for lines in ([*TEXT, *mixed], *([line] for line in STRANGE), STRANGE, TEXT, []):
        assert flat(tokenizer, lines) == line_by_line(tokenizer, lines)


def test_words_are_cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, cut = train(KINDS["bpe"]), list[str]()
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda words: cut.extend(words) or encode(words))
    tokenizer.encode_flat(TEXT)
    tokenizer.encode_flat(["ein Mann sieht das Fahrrad"])
    assert sorted(cut) == sorted({word for line in [*TEXT, "Fahrrad"] for word in line.split(" ")})


def test_words_are_forgotten_when_they_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_words, "_MOST", 5)
    tokenizer = train(KINDS["bpe"])
    for line in TEXT:
        assert flat(tokenizer, [line]) == line_by_line(tokenizer, [line])


@pytest.mark.parametrize(
    "options",
    [
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": False},
        {"split_by_whitespace": False},
        {"treat_whitespace_as_suffix": True},
        {"user_defined_symbols": ["\u2581ein\u2581Mann", "n\u2581"]},
        {"normalization_rule_tsv": "65 69 6E 20 4D\t78 79\n41\t20 42\n"},  # "ein M" -> "xy", "A" -> " B"
    ],
)
def test_models_that_treat_spaces_otherwise_cut_as_before(options: dict[str, Any], tmp_path: Path) -> None:
    if rules := options.get("normalization_rule_tsv"):
        (tmp_path / "rules.tsv").write_text(rules, encoding="utf-8")
        options = {"normalization_rule_tsv": str(tmp_path / "rules.tsv")}
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        model_type="bpe",
        vocab_size=120,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    (tmp_path / "given.model").write_bytes(model.getvalue())
    tokenizer = tokenizers.build(BpeConfig()).from_file(tmp_path / "given.model")
    lines = [*TEXT, *STRANGE, "AA A aA", "ein Mein M", "ein  Mann", "x ein Mann"]
    assert flat(tokenizer, lines) == line_by_line(tokenizer, lines)
    for line in lines:
        assert flat(tokenizer, [line]) == line_by_line(tokenizer, [line])
