"""Bracket F1 on cases of EVALB's rules, each computed by hand."""

from __future__ import annotations

import re

import pytest

from nmt.errors import DataError, UsageError
from nmt.scoring import SacreScorer, Score, Scorer, TextOptions, scorers
from nmt.scoring.brackets import read_tree

GOLD = "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ sees) (NP (DT a) (NN cat))) (. .)))"  # S, NP, VP, NP


def scorer() -> Scorer:
    return scorers.build(scorers.config_class("brackets")(), TextOptions())


def score(found: str | list[str], gold: str | list[str] = GOLD) -> Score:
    return scorer()([found] if isinstance(found, str) else found, [[gold] if isinstance(gold, str) else gold])


def figures(one: Score, *, short: bool = False) -> dict[str, float]:
    detail = one.detail.split("; up to 40 words: ")[short]
    return {name: float(value) for name, value in re.findall(r"([\w]+) = ([\d.]+)", detail)}


def test_equal_trees_match_completely() -> None:
    found = score(GOLD)
    assert found.value == 100 and found.name == "bracket F1"
    expected = {"precision": 100, "recall": 100, "complete": 100, "tagging": 100}
    assert figures(found) == {**expected, "sentences": 1, "error": 0, "skipped": 0}
    assert found.signature.startswith("nrefs:1|case:mixed|rules:evalb|prm:collins|version:nmt-")


def test_precision_recall_and_f1_count_brackets_with_labels_and_words() -> None:
    """Found: S, NP, VP and a PP where NP should be, and one ADJP too many: 3 of 5 are right, of 4 there are."""
    found = score("(S (NP (DT the) (NN dog)) (VP (VBZ sees) (PP (DT a) (ADJP (NN cat)))) (. .))")
    assert (figures(found)["precision"], figures(found)["recall"]) == (60, 75)
    assert found.value == pytest.approx(100 * 2 * 3 / 9)
    assert figures(found)["complete"] == 0


def test_another_label_of_the_same_words_is_no_match() -> None:
    assert score("(S (NP (DT a)))", "(S (VP (DT a)))").value == pytest.approx(50)


def test_a_bracket_matches_once() -> None:
    """Gold: S, NP, NP. Found: S, NP, NP, NP over the same word."""
    found = score("(S (NP (NP (NP (NN a)))))", "(S (NP (NP (NN a))))")
    assert (figures(found)["precision"], figures(found)["recall"]) == (75, 100)


def test_delete_label_top_is_no_bracket_and_keeps_what_it_holds() -> None:
    assert score("(S (NN a))", "(TOP (S (NN a)))").value == 100
    assert sum(read_tree("(TOP (S (NN a)))").spans.values()) == 1


@pytest.mark.parametrize("tag", [",", ":", "``", "''", "."])
def test_delete_label_of_punctuation_takes_the_word_away(tag: str) -> None:
    """It stands within the NP in one tree and outside in the other; neither counts."""
    inside, outside = f"(S (NP (NN a) ({tag} {tag})) (VP (VB b)))", f"(S (NP (NN a)) ({tag} {tag}) (VP (VB b)))"
    assert score(inside, outside).value == 100
    assert score("(S (NP (NN a)) (VP (VB b)))", outside).value == 100


def test_other_punctuation_is_a_word() -> None:
    assert read_tree("(S (-LRB- -LRB-) (NN a) ($ $) (. ?))").words == ("-LRB-", "a", "$")


def test_a_word_may_have_a_no_break_space() -> None:
    assert read_tree("(S (CD 10\u00a0000)\t(NN x))").words == ("10\u00a0000", "x")


def test_delete_label_none_takes_traces_away() -> None:
    assert score("(S (VP (VB go)))", "(S (NP (-NONE- *)) (VP (VB go)))").value == 100


def test_nodes_that_deletions_empty_are_removed_recursively() -> None:
    gold = "(S (NP (PP (ADJP (-NONE- *T*)))) (VP (VB go) (X (Y (, ,)))))"
    assert set(read_tree(gold).spans) == {("S", 0, 1), ("VP", 0, 1)}


def test_eq_label_advp_and_prt_are_one() -> None:
    assert score("(VP (VB go) (PRT (RP up)))", "(VP (VB go) (ADVP (RP up)))").value == 100
    assert score("(VP (VB go) (ADVP (RP up)))", "(VP (VB go) (PRT (RP up)))").value == 100
    assert score("(VP (VB go) (NP (RP up)))", "(VP (VB go) (PRT (RP up)))").value == 50


def test_functions_and_indices_of_labels_do_not_count() -> None:
    assert score("(S (NP (NN a)))", "(S (NP-SBJ-1 (NN a)))").value == 100
    assert score("(S (NP=2 (NN a)))", "(S (NP (NN a)))").value == 100


def test_tags_are_no_brackets_and_have_an_accuracy_of_their_own() -> None:
    found = score("(S (NP (DT the) (NN dog)) (VP (VBD sees) (NP (DT a) (NNP cat))) (. .))")
    assert found.value == 100 and figures(found)["tagging"] == 60  # 3 of 5 words, without the full stop


def test_other_lengths_make_an_error_sentence_which_the_summary_leaves_out() -> None:
    found = score([GOLD, "(S (NN a))"], [GOLD, "(S (NN a) (NN b))"])
    assert found.value == 100
    assert (figures(found)["sentences"], figures(found)["error"], figures(found)["skipped"]) == (2, 1, 0)
    assert figures(found)["complete"] == 100  # of valid sentences


def test_other_words_make_an_error_sentence() -> None:
    assert figures(score("(S (NN a))", "(S (NN b))"))["error"] == 1


def test_lengths_that_are_equal_after_deletion_make_none() -> None:
    assert figures(score("(S (NN a) (. .) (. !))", "(S (NN a))"))["error"] == 0


@pytest.mark.parametrize("broken", ["(S (NN a)", "(S (NN a)))", "(S a b)", "a", "(S (NN a b))", "(S (NP x (NN a)))"])
def test_a_hypothesis_that_is_no_tree_is_an_error_sentence(broken: str) -> None:
    found = score([broken, "(S (NN a))"], ["(S (NN a))"] * 2)
    assert (found.value, figures(found)["error"]) == (100, 1)


@pytest.mark.parametrize("empty", ["", "(())", "(S (. .))"])
def test_a_hypothesis_without_words_is_skipped(empty: str) -> None:
    found = score([empty, "(S (NN a))"], ["(S (NN a))"] * 2)
    assert (found.value, figures(found)["error"], figures(found)["skipped"]) == (100, 0, 1)


def test_cutoff_len_counts_punctuation_and_no_traces() -> None:
    """40 words are short, and 41 are not: a full stop makes one more, a trace does not."""

    def tree(words: int, more: str) -> str:
        return f"(S {'(NN a) ' * words}{more})"

    golds = [tree(39, "(. .)"), tree(40, "(-NONE- *)"), tree(40, "(. .)"), tree(41, "")]
    assert [read_tree(gold).length for gold in golds] == [40, 40, 41, 41]
    found = score(["(X (NN a))", *golds[1:]], ["(S (NN a))", *golds[1:]])
    assert figures(found)["sentences"] == 4 and figures(found, short=True)["sentences"] == 2
    assert found.value == 75 and figures(found, short=True)["F1"] == 50


def test_a_text_without_a_valid_sentence_scores_nothing() -> None:
    assert score("", "(S (NN a))").value == 0


def test_a_reference_that_is_no_tree_is_bad_data() -> None:
    with pytest.raises(DataError, match="the bracket at character 4 is not closed"):
        score(GOLD, "(S (NP (NN a)")
    with pytest.raises(DataError, match="the bracket at character 11 has no opening bracket"):
        score(GOLD, "(S (NN a)))")


def test_a_second_reference_is_refused() -> None:
    with pytest.raises(UsageError, match="takes one reference, not 2"):
        scorer()([GOLD], [[GOLD], [GOLD]])


def test_a_single_sentence_has_a_score() -> None:
    built = scorer()
    assert isinstance(built, SacreScorer)
    assert built.sentences(["(S (NP (DT a)))"], [["(S (VP (DT a)))"]]) == [50]
