"""Words cut by merge operations: by hand, beside a slow reading of the paper, and beside the packages where they are."""

from __future__ import annotations

import importlib
import io
import json
import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.tokenizers import tokenizers
from nmt.data.tokenizers.bpe_codes import BpeCodes, BpeCodesConfig, WordEnds, merged, read_codes
from nmt.data.vocabulary import UNK
from nmt.errors import DataError, MissingInputError, UsageError

NEW = b"#version: 0.2\nl o\nlo w</w>\ne r</w>\nn e\nlo w\n"
OLD = b"l o\nlo w\nlow </w>\ne r\ner </w>\nn e\n"
FAST = b"l o 90\nlo w</w> 50\ne r</w> 40\nn e 30\nlo w 20\n"
HUGGING_FACE = b"l o\nlo w</w>\ne r</w>\nn e\nlo w\n"


def cut(codes: bytes, line: str) -> str:
    return " ".join(BpeCodes(BpeCodesConfig(), codes, []).surfaces(line))


@pytest.mark.parametrize("codes", [NEW, OLD, FAST, HUGGING_FACE], ids=["0.2", "0.1", "fastBPE", "merges.txt"])
@pytest.mark.parametrize(
    ("line", "pieces"),
    [
        ("low", "low"),
        ("lower", "low@@ er"),
        ("newer", "ne@@ w@@ er"),
        ("l", "l"),
        ("x", "x"),
        ("low  x ", "low x"),
        ("", ""),
        ("lo\u00a0w", "lo@@ \u00a0@@ w"),
    ],
)
def test_words_are_cut_as_the_operations_say(codes: bytes, line: str, pieces: str) -> None:
    assert cut(codes, line) == pieces


def test_in_the_old_version_the_end_of_a_word_is_a_part_of_its_own() -> None:
    codes = b"e r\ner </w>\nr </w>\nw e\n"
    assert cut(codes, "wer") == cut(b"#version: 0.1\n" + codes, "wer") == "w@@ er"
    assert cut(b"#version: 0.2\n" + codes, "wer") == "we@@ r"  # its last character is "r</w>", which no operation has


def test_codes_without_a_first_line_and_without_ends_are_old() -> None:
    assert read_codes(b"a b\n")[1] and not read_codes(b"a b 3\n")[1] and not read_codes(b"a b</w>\n")[1]


def test_the_first_of_equal_operations_counts() -> None:
    assert read_codes(b"#version: 0.2\na b\nb c\na b\n")[0] == {("a", "b"): 2, ("b", "c"): 3}


@pytest.mark.parametrize(
    ("codes", "complaint"),
    [
        (b"#version: 0.2\na b\na\n", "line 3 of the merge operations is not two symbols"),
        (b"a b c\n", "line 1"),
        (b"a  b\n", "line 1"),
        (b"", "line 1"),
        (b"#version: 0.3\na b\n", "version 0.3"),
        (b"a \xff\n", "byte 2 of the merge operations is not UTF-8"),
    ],
)
def test_other_files_are_refused(codes: bytes, complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        read_codes(codes)


def slowly_merged(parts: list[str], ranks: dict[tuple[str, str], int]) -> list[str]:
    """The paper's rule, word for word."""
    while pairs := [pair for pair in zip(parts, parts[1:]) if pair in ranks]:
        best, joined = min(pairs, key=ranks.__getitem__), list[str]()
        while parts:
            if tuple(parts[:2]) == best:
                joined, parts = [*joined, parts[0] + parts[1]], parts[2:]
            else:
                joined, parts = [*joined, parts[0]], parts[1:]
        parts = joined
    return parts


PARTS = st.text("ab", min_size=1, max_size=4)


@given(st.lists(st.tuples(PARTS, PARTS), max_size=20), st.text("ab", min_size=1, max_size=25))
def test_merging_is_the_rule_of_the_paper_in_any_order_of_operations(pairs: list[tuple[str, str]], word: str) -> None:
    ranks = {pair: rank for rank, pair in enumerate(dict.fromkeys(pairs))}
    assert merged([*word], ranks) == slowly_merged([*word], ranks)


def test_a_very_long_word_takes_no_square_of_its_length() -> None:
    ranks = {("a", "b"): 0, ("ab", "ab"): 1, ("abab", "abab"): 2}
    begin = time.process_time()
    assert len(merged([*("ab" * 50_000)], ranks)) == 12_500
    assert time.process_time() - begin < 5


def random_codes() -> tuple[str, list[str]]:
    """Operations in the order in which training could find them, and lines to cut."""
    chance = random.Random(3)
    lines = [" ".join("".join(chance.choices("abcdä", k=chance.randint(1, 12))) for _ in range(6)) for _ in range(200)]
    parts, pairs = [*"abcdä", *(f"{letter}</w>" for letter in "abcdä")], list[str]()
    for _ in range(150):
        left, right = chance.choice([part for part in parts if not part.endswith("</w>")]), chance.choice(parts)
        pairs.append(f"{left} {right}")
        parts.append(left + right)
    return "\n".join(dict.fromkeys(pairs)) + "\n", [*lines, "aaaaaaa aaa aa a", "  a  b ", "a\tb </w> a@@"]


def package(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError:
        pytest.skip(f"the package of {name} is not installed; it is only compared with")


@pytest.mark.parametrize("version", ["#version: 0.1\n", "#version: 0.2\n"])
def test_lines_are_cut_as_subword_nmt_cuts_them(version: str) -> None:
    codes, lines = random_codes()
    theirs = package("subword_nmt.apply_bpe").BPE(io.StringIO(version + codes))  # type: ignore[attr-defined]
    for line in lines:
        assert cut((version + codes).encode(), line) == " ".join(filter(None, theirs.process_line(line).split(" ")))


def test_lines_are_cut_as_fastbpe_cuts_them(tmp_path: Path) -> None:
    codes, lines = random_codes()
    counted = codes.replace("\n", " 5\n")
    (tmp_path / "codes").write_text(counted, encoding="utf-8")
    theirs = package("fastBPE").fastBPE(str(tmp_path / "codes"), "").apply(lines)  # type: ignore[attr-defined]
    assert [cut(counted.encode(), line) for line in lines] == [
        " ".join(filter(None, line.split(" "))) for line in theirs
    ]


def test_a_piece_has_the_id_of_its_place_in_the_list() -> None:
    tokenizer = BpeCodes(BpeCodesConfig(), NEW, ["er", "low@@", "madeupword0000", "low"])
    assert tokenizer.encode(["low lower x"])[0].tolist() == [7, 5, 4, UNK]
    tokenizer = BpeCodes(BpeCodesConfig(WordEnds.end_of_word), NEW, ["er</w>", "low", "low</w>"])
    assert tokenizer.encode(["low lower x"])[0].tolist() == [6, 5, 4, UNK]


def test_more_words_than_are_kept_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.tokenizers.bpe_codes._KNOWN_WORDS", 2)
    tokenizer = BpeCodes(BpeCodesConfig(), NEW, ["er", "low@@", "low", "ne@@", "w@@"])
    assert tokenizer.encode(["low lower newer low lower"] * 2)[1].tolist() == [6, 5, 4, 7, 8, 4, 6, 5, 4]


def test_moses_cuts_words_before_and_joins_them_after() -> None:
    pytest.importorskip("sacremoses")
    pieces = ["Er", "sagt", "&quot;", "@-@", "Ja", "und", "Nein", ",", "."]
    codes = b"#version: 0.2\nE r</w>\ns a\ng t</w>\nsa gt</w>\nJ a</w>\nu n\nun d</w>\nN e\ni n</w>\nNe in</w>\n"
    codes += b"& q\nu o\n&q uo\nt ;</w>\n&quo t;</w>\n@ -\n@- @</w>\n"
    tokenizer = BpeCodes(BpeCodesConfig(moses=True, language="de"), codes, pieces)
    line = 'Er sagt "Ja-und-Nein", und.'
    ids = tokenizer.encode([line])[0].tolist()
    assert " ".join(tokenizer.pieces(ids)) == "Er sagt &quot; Ja @-@ und @-@ Nein &quot; , und ."
    assert tokenizer.decode(ids) == line
    assert tokenizer.decode([]) == "" and tokenizer.encode([""])[0].tolist() == []


def test_punctuation_is_normalized_where_the_model_had_it_so() -> None:
    pytest.importorskip("sacremoses")
    plain = BpeCodes(BpeCodesConfig(moses=True, language="en"), NEW, [])
    normalizing = BpeCodes(BpeCodesConfig(moses=True, language="en", normalize_punctuation=True), NEW, [])
    assert "&quot;" not in "".join(plain.surfaces("\u201ea\u201c")).replace("@@", "")
    assert "".join(normalizing.surfaces("\u201ea\u201c")).replace("@@", "") == "&quot;a&quot;"


def test_the_rules_of_moses_are_given_long_lines_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a row of dots they take time that grows with the square of its length: an hour for a million."""
    sacremoses = pytest.importorskip("sacremoses")
    given: list[str] = []
    normalize = sacremoses.MosesPunctNormalizer.normalize
    monkeypatch.setattr(
        sacremoses.MosesPunctNormalizer, "normalize", lambda rules, text: given.append(text) or normalize(rules, text)
    )
    tokenizer = BpeCodes(BpeCodesConfig(moses=True, language="en", normalize_punctuation=True), NEW, ["low", "."])
    dots, words = tokenizer.encode(["." * 20_000, "low " * 5_000])
    assert len(dots) == 20_000 and "".join(given) == "." * 20_000 + "low " * 5_000
    assert max(map(len, given)) <= 4096 and max(map(len, given[:30])) == 512, "a long word is cut more often"
    assert words.tolist() == [4] * 5_000, "no word is cut"


def test_without_the_package_of_moses_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UsageError, match=r"pip install 'nmt-toolkit\[moses\]'"):
        BpeCodes(BpeCodesConfig(moses=True, language="de"), NEW, [])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [({"moses": True}, "needs tokenizer.language"), ({"normalize_punctuation": True}, "set both")],
)
def test_options_that_lack_another_are_refused(options: dict[str, bool], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        BpeCodesConfig(**options)


def test_the_files_are_the_operations_as_they_were_and_the_list(tmp_path: Path) -> None:
    BpeCodes(BpeCodesConfig(), FAST, ["b", "a"]).save(tmp_path, "source")
    assert (tmp_path / "source.codes").read_bytes() == FAST
    assert json.loads((tmp_path / "source.json").read_text(encoding="utf-8")) == ["b", "a"]


@pytest.mark.parametrize("name", ["source.codes", "source.json"])
def test_a_missing_or_damaged_file_is_named(name: str, tmp_path: Path) -> None:
    BpeCodes(BpeCodesConfig(), NEW, ["b", "a"]).save(tmp_path, "source")
    (tmp_path / name).write_bytes(b"[")
    with pytest.raises(DataError, match=f"{name} is damaged"):
        tokenizers.build(BpeCodesConfig()).load(tmp_path, "source")
    (tmp_path / name).unlink()
    with pytest.raises(MissingInputError, match=name):
        tokenizers.build(BpeCodesConfig()).load(tmp_path, "source")
