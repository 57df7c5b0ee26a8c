"""Scorers against sacreBLEU called directly, and exact match against counting by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from nmt.errors import DataError, UsageError
from nmt.scoring import Score, TextOptions, scorers

HYPOTHESES = ["The cat sat on the mat.", "two dogs run through the snow", "", "A man, in blue, plays."]
REFERENCES = ["the cat sat on a mat.", "Two dogs are running through snow.", "nothing", "A man in blue plays."]
OTHERS = ["A cat sat on the mat.", "two dogs run through the snow", "", "A man plays."]


def score(metric: str, references: list[list[str]], tokenize: str = "13a", lowercase: bool = False) -> Score:
    scorer = scorers.build(scorers.config_class(metric)(), TextOptions(tokenize=tokenize, lowercase=lowercase))
    return scorer(HYPOTHESES, references)


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, OTHERS]], ids=["one reference", "two references"])
@pytest.mark.parametrize("lowercase", [False, True], ids=["mixed", "lowercase"])
@pytest.mark.parametrize("tokenize", ["13a", "none", "char", "zh"])
@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter"])
def test_equals_sacrebleu(metric: str, tokenize: str, lowercase: bool, references: list[list[str]]) -> None:
    asian = tokenize == "zh"
    oracle = {
        "bleu": lambda: BLEU(tokenize=tokenize, lowercase=lowercase),
        "chrf": lambda: CHRF(lowercase=lowercase),
        "ter": lambda: TER(case_sensitive=not lowercase, normalized=asian, asian_support=asian),
    }[metric]()
    expected = oracle.corpus_score(HYPOTHESES, references)
    actual = score(metric, references, tokenize, lowercase)
    assert actual.value == expected.score
    assert actual.signature == str(oracle.get_signature())
    assert actual.name == expected.name


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter", "exact"])
def test_lowercase_changes_score_and_signature(metric: str) -> None:
    scorer = [
        scorers.build(scorers.config_class(metric)(), TextOptions(lowercase=lowercase))(["A B c d e"], [["a b C d e"]])
        for lowercase in (False, True)
    ]
    assert scorer[0].value != scorer[1].value
    assert "case:mixed" in scorer[0].signature
    assert "case:lc" in scorer[1].signature


def test_only_rates_of_errors_are_better_when_lower() -> None:
    names = [name for name in scorers.names() if name not in ("comet", "metricx")]  # which need programs
    built = {name: scorers.build(scorers.config_class(name)(), TextOptions()) for name in names}
    better_lower = {name for name, scorer in built.items() if not scorer.higher_is_better}
    assert better_lower == {"ter", "aer"}


def test_bleu_detail_names_precisions_and_brevity_penalty() -> None:
    detail = score("bleu", [REFERENCES]).detail
    assert detail.count("/") == 3
    assert "BP = " in detail


def test_exact_match_is_the_share_of_equal_lines() -> None:
    scorer = scorers.build(scorers.config_class("exact")(), TextOptions())
    result = scorer(["a", "b", "c ", "D"], [["a", "x", "c", "d"]])  # a trailing space and case both count
    assert result.value == 25.0
    assert result.detail == "(1 of 4 lines)"
    assert result.signature.startswith("nrefs:1|case:mixed|unit:line|version:nmt-")


def test_exact_match_accepts_any_reference_of_the_same_line() -> None:
    scorer = scorers.build(scorers.config_class("exact")(), TextOptions())
    result = scorer(["a", "b", "c", "d"], [["a", "x", "x", "c"], ["x", "b", "x", "x"]])
    assert result.value == 50.0  # "c" stands in a reference, but of another line
    assert result.signature.startswith("nrefs:2|")


@pytest.mark.parametrize("metric", ["bleu", "ter"])
def test_unknown_tokenizer_lists_those_there_are(metric: str) -> None:
    with pytest.raises(UsageError, match=r"unknown tokenizer '13b' \(did you mean '13a'\?\).*none.*intl"):
        scorers.build(scorers.config_class(metric)(), TextOptions(tokenize="13b"))


@pytest.mark.parametrize("metric", ["bleu", "chrf", "ter", "exact"])
def test_no_lines_is_bad_data(metric: str) -> None:
    scorer = scorers.build(scorers.config_class(metric)(), TextOptions())
    with pytest.raises(DataError, match="no lines to score"):
        scorer([], [[]])


def test_missing_package_of_a_tokenizer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import sacrebleu.tokenizers.tokenizer_ja_mecab as module

    monkeypatch.setattr(module, "MeCab", None)
    with pytest.raises(UsageError, match=r"'ja-mecab' cannot be used here: .*pip install") as caught:
        scorers.build(scorers.config_class("bleu")(), TextOptions(tokenize="ja-mecab"))
    assert "\n" not in str(caught.value)


def test_tokenizer_that_cannot_be_downloaded_is_a_device_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import sacrebleu.tokenizers.tokenizer_spm as module

    from nmt.errors import DeviceError

    def unreachable(*args: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(module, "download_file", unreachable)
    monkeypatch.setattr(module, "SACREBLEU_DIR", "/nonexistent")
    with pytest.raises(DeviceError, match="could not download"):
        scorers.build(scorers.config_class("bleu")(), TextOptions(tokenize="flores200"))


def test_naming_the_metrics_imports_neither_torch_nor_sacrebleu() -> None:
    program = "import sys, nmt.scoring; print([m for m in ('torch', 'sacrebleu') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
