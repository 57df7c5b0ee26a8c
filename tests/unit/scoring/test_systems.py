"""Scorers that remember what they counted in a line."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config.choices import PairedTest
from nmt.errors import UsageError
from nmt.scoring import SacreScorer, TextOptions, bleu_metric, scorers
from nmt.scoring.systems import Certainty, caching, chosen_scorers, figures, length_labels, sentence_scores

METRICS = ("bleu", "chrf", "chrf++", "ter", "rouge_l", "exact")
SYSTEMS = {"a": ["the cat sat down", "a dog", "", "a dog"], "b": ["the cat sat", "a dog", "yes", "the dog barks"]}
REFERENCES = [["the cat sat down here", "a dog", "yes", "a dog barks"], ["cats sit", "one dog", "", "dogs bark"]]


def built(metric: str) -> Any:
    return scorers.build(scorers.config_class(metric)(), TextOptions())


@pytest.mark.parametrize("certainty", [Certainty(), Certainty(True), Certainty(True, PairedTest.bootstrap, 50)])
def test_figures_are_those_of_a_scorer_that_forgets(certainty: Certainty) -> None:
    forgetful = {metric: built(metric) for metric in METRICS}
    knowing = chosen_scorers(METRICS, TextOptions())
    for _ in range(2):
        assert figures(knowing, SYSTEMS, REFERENCES, certainty) == figures(forgetful, SYSTEMS, REFERENCES, certainty)


@pytest.mark.parametrize("metric", METRICS)
def test_the_score_of_a_line_is_that_of_the_metric_alone(metric: str) -> None:
    forgetful, knowing = built(metric), caching(built(metric))
    inner = forgetful.of_sentences or forgetful.metric
    alone = [inner.sentence_score(line, list(answers)).score for line, answers in zip(SYSTEMS["b"], zip(*REFERENCES))]
    for scorer in (forgetful, knowing, knowing):
        assert sentence_scores(scorer, SYSTEMS["b"], REFERENCES) == alone


def test_a_line_is_counted_once_with_the_same_references(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, counted = built("chrf"), list[str]()
    count = scorer.metric._compute_segment_statistics
    scorer.metric._compute_segment_statistics = lambda line, known: counted.append(line) or count(line, known)
    figures({"chrf": caching(scorer)}, SYSTEMS, REFERENCES, Certainty(True, PairedTest.bootstrap, 20))
    assert sorted(counted) == ["", "a dog", "a dog", "the cat sat", "the cat sat down", "the dog barks", "yes"]


@pytest.mark.parametrize("metric", METRICS)
def test_lines_that_are_known_are_scored_with_the_references_that_are_given_now(metric: str) -> None:
    """The number of references, too, which the signature tells."""
    knowing = caching(built(metric))
    for references in (REFERENCES, REFERENCES[:1], REFERENCES, REFERENCES[1:], REFERENCES[::-1], REFERENCES[:1]):
        for lines in SYSTEMS.values():
            assert knowing(lines, references) == built(metric)(lines, references)


def test_metrics_whose_scores_have_one_name_are_tested_apart() -> None:
    of_words, of_letters = built("bleu"), SacreScorer(bleu_metric(TextOptions("char")), higher_is_better=True)
    certainty = Certainty(True, PairedTest.bootstrap, 50)
    both = figures({"bleu": of_words, "letters": of_letters}, SYSTEMS, REFERENCES, certainty)
    for metric, scorer in (("bleu", of_words), ("letters", of_letters)):
        alone = figures({metric: scorer}, SYSTEMS, REFERENCES, certainty)
        assert {name: both[name][metric] for name in both} == {name: alone[name][metric] for name in alone}
    assert both["a"]["bleu"].mean != both["a"]["letters"].mean


@pytest.mark.parametrize("seed", ["abc", "-1", ""])
@pytest.mark.parametrize("test", [PairedTest.none, PairedTest.bootstrap])
def test_a_seed_that_is_no_number_is_refused(seed: str, test: PairedTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(UsageError, match=f"SACREBLEU_SEED={seed} is invalid"):
        figures({"exact": built("exact")}, SYSTEMS, REFERENCES, Certainty(True, test))


def test_no_metric_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(UsageError, match="name a metric: --metrics aer,bleu"):
        chosen_scorers((), TextOptions())


@pytest.mark.parametrize("metric", METRICS)
def test_a_resampled_text_may_have_nothing_to_count(metric: str) -> None:
    systems, references = {"a": ["the cat sat here now", "a dog", "", "b"]}, [["the cat sat here", "a dog", "", ""]]
    found = figures({metric: built(metric)}, systems, references, Certainty(True))["a"][metric]
    assert found.mean is not None and found.interval is not None and found.interval > 0


def test_each_letter_of_a_writing_without_spaces_is_a_word_of_its_length() -> None:
    assert length_labels(["\u732b" * 12, "a " * 12, "a" * 12]) == ["10-19 words", "10-19 words", "0-9 words"]
