"""The paper's BLEU against n-grams that are counted here, and what cuts its words."""

from __future__ import annotations

import gzip
import math
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from nmt.errors import UsageError
from nmt.scoring import Score, TextOptions, scorers
from nmt.scoring.paper_bleu import moses, split_compounds

sacremoses = pytest.importorskip("sacremoses", reason="sacremoses is not installed: nmt-toolkit[moses]")

DATA = Path(os.environ.get("NMT_DATA", Path(__file__).parents[4] / "shared" / "data"))
GERMAN = DATA / "multi30k" / "test_2016_flickr.de.gz"


def score(hypotheses: list[str], *references: list[str], text: TextOptions | None = None) -> Score:
    return scorers.build(scorers.config_class("paper_bleu")(), text or TextOptions())(hypotheses, references)


def ngrams(words: list[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def counted_bleu(hypotheses: list[list[str]], references: list[list[str]]) -> float:
    """Papineni et al. 2002, equations 1 to 3, with one reference; 0 where an order has no match."""
    logarithms = []
    for order in (1, 2, 3, 4):
        pairs = [(ngrams(one, order), ngrams(other, order)) for one, other in zip(hypotheses, references)]
        found = sum(sum((one & other).values()) for one, other in pairs)
        if not found:
            return 0.0
        logarithms.append(math.log(found / sum(sum(one.values()) for one, _ in pairs)))
    length, wanted = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * min(1.0, math.exp(1 - wanted / length)) * math.exp(sum(logarithms) / 4)


def words_of(line: str) -> list[str]:
    """Moses' words by the package alone, and the compounds split character by character, from left to right."""
    line = sacremoses.MosesPunctNormalizer(lang="de").replace_unicode_punct(line)
    cut = " ".join(sacremoses.MosesTokenizer(lang="de").tokenize(line))
    words, start = "", 0
    while start < len(cut):
        found = cut[start : start + 3]
        if len(found) == 3 and found[1] == "-" and not found[0].isspace() and not found[2].isspace():
            words += f"{found[0]} ##AT##-##AT## {found[2]}"
            start += 3
        else:
            words += cut[start]
            start += 1
    return words.split()


def damaged(line: str, chance: random.Random) -> str:
    words = [word for word in line.split() if chance.random() > 0.08]
    if len(words) > 3 and chance.random() < 0.5:
        place = chance.randrange(len(words) - 1)
        words[place : place + 2] = reversed(words[place : place + 2])
    return " ".join(words)


@pytest.mark.slow
@pytest.mark.skipif(not GERMAN.is_file(), reason=f"no Multi30k in {DATA} (set NMT_DATA)")
def test_equals_ngrams_counted_by_hand_on_a_thousand_lines() -> None:
    references = gzip.decompress(GERMAN.read_bytes()).decode().splitlines()[:1000]
    chance = random.Random(1)
    hypotheses = [damaged(line, chance) for line in references]
    hyphens = sum(re.search(r"\w-\w", line) is not None for line in references)
    assert len(references) == 1000 and hyphens > 50
    found = score(hypotheses, references)
    expected = counted_bleu([words_of(line) for line in hypotheses], [words_of(line) for line in references])
    assert 40 < found.value < 90 and found.value == pytest.approx(expected, abs=1e-9)
    bleu = scorers.build(scorers.config_class("bleu")(), TextOptions())(hypotheses, [references])
    assert found.value != bleu.value


def test_its_name_and_signature_are_its_own() -> None:
    found = score(["ein T-Shirt"], ["ein T-Shirt"])
    assert found.name == "paper BLEU"
    signature = "nrefs:1|case:mixed|eff:no|tok:moses-de|smooth:none|punct:replaced|compounds:split|version:nmt-"
    assert found.signature.startswith(signature)
    english = score(["a"], ["a"], text=TextOptions(language="en", lowercase=True)).signature
    assert "tok:moses-en" in english and "case:lc" in english


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("T-Shirt", "T ##AT##-##AT## Shirt"),
        ("Rock-and-Roll", "Rock ##AT##-##AT## and ##AT##-##AT## Roll"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("- a - b -", "- a - b -"),
        ("x- -y", "x- -y"),
    ],
)
def test_compounds_are_split_at_hyphens_within_words(line: str, split: str) -> None:
    assert split_compounds(line) == split


def test_words_are_those_of_moses_after_unicode_punctuation_is_replaced() -> None:
    assert moses("de")("Ein Mann, z.B. “er” …") == "Ein Mann , z.B. &quot; er &quot; ..."


def test_case_counts_and_nothing_is_smoothed() -> None:
    assert score(["ein Hund läuft dort hin"], ["Ein Hund läuft dort hin"]).value < 100
    assert score(["ein Hund läuft"], ["ein Hund läuft"]).value == 0  # it has no 4-gram
    lower = TextOptions(lowercase=True)
    assert score(["ein Hund läuft dort hin"], ["Ein HUND läuft dort hin"], text=lower).value == pytest.approx(100)


def test_of_several_references_the_closest_length_counts_and_the_shorter_one_of_two() -> None:
    hypothesis = ["a b c d e f"]
    longer, shorter, far = ["a b c d e f g h"], ["a b c d"], ["a b c d e f g h i j k l"]
    assert "ref_len = 4" in score(hypothesis, longer, shorter, far).detail
    assert "ref_len = 8" in score(hypothesis, far, longer).detail


def test_a_language_without_rules_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no rules for the language 'xx'.*--language.*cs, de, el"):
        score(["a"], ["a"], text=TextOptions(language="xx"))


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(UsageError, match=r"'paper_bleu' .* not installed: pip install 'nmt-toolkit\[moses\]'"):
        score(["a"], ["a"])
