"""Objectives over whole sentences, against their formulas written out sentence by sentence."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.criterions import criterions
from nmt.criterions.config import CrossEntropyConfig, ExpectedRewardConfig, MinimumRiskConfig
from nmt.criterions.sentence_rewards import sentence_gleu
from nmt.criterions.sequences import ExpectedReward, MinimumRisk, Translations, decode, draw, references, rewards
from nmt.data.vocabulary import EOS, PAD
from nmt.errors import UsageError
from nmt.interface import Batch
from nmt.models.recurrent.lstm import LSTM, LSTMConfig
from nmt.training.setup.parts import sampler
from tests.unit.criterions.tiny import TinyModel, assert_same_gradients, batch_of, gradients

PAIRS: list[tuple[list[int], list[int]]] = [([4, 5, 6], [5, 4]), ([7], [6, 6, 7])]
BATCH = batch_of(*PAIRS)
# Of each sentence four translations; the third repeats the first, and the last one of all was cut off.
DRAWN = [[[5, 4, EOS], [5, EOS], [5, 4, EOS], [7, 1, 4, EOS]], [[6, 6, EOS], [EOS], [6, 6, EOS], [4, 4, 4, EOS]]]
CUT_OFF = [4, 4, 4, EOS]


def translations(drawn: list[list[list[int]]]) -> Translations:
    longest = max(len(tokens) for of_sentence in drawn for tokens in of_sentence)
    tokens = [[[*one, *([PAD] * (longest - len(one)))] for one in of_sentence] for of_sentence in drawn]
    lengths = torch.tensor([[len(one) for one in of_sentence] for of_sentence in drawn])
    finished = torch.tensor([[one != CUT_OFF for one in of_sentence] for of_sentence in drawn])
    return Translations(torch.tensor(tokens), lengths, finished)


class GivenSampler:
    """Draws what a test says, sentence by sentence, and remembers the seeds."""

    def __init__(self, drawn: list[list[list[int]]] = DRAWN) -> None:
        self.drawn = drawn
        self.seeds: list[int] = []

    def __call__(self, model: Any, batch: Batch, seed: int) -> Translations:
        model.encode(batch.source, batch.source_lengths)
        assert not torch.is_grad_enabled()
        self.seeds.append(seed)
        whole = translations(self.drawn)
        rows = torch.tensor([[int(ids[0]) == pair[0][0] for pair in PAIRS].index(True) for ids in batch.source])
        return Translations(whole.tokens[rows], whole.lengths[rows], whole.finished[rows])


def reward_of(tokens: list[int], reference: list[int]) -> float:
    """Sentence GLEU, counted."""
    found, wanted = (
        Counter(tuple(ids[i : i + n]) for n in (1, 2, 3, 4) for i in range(len(ids) - n + 1))
        for ids in (tokens[:-1], reference)
    )
    return (found & wanted).total() / max(found.total(), wanted.total(), 1)


def drawing(drawn: list[list[list[int]]]) -> Any:
    return SimpleNamespace(sampler=GivenSampler(drawn), reward=sentence_gleu)


def expected_reward(drawn: list[list[list[int]]] = DRAWN, weight: float = 0.017, **auxiliary: float) -> ExpectedReward:
    config = ExpectedRewardConfig(likelihood_weight=weight, auxiliary_weights=auxiliary)
    return ExpectedReward(config, drawing(drawn))


def minimum_risk(drawn: list[list[list[int]]] = DRAWN, sharpness: float = 0.3) -> MinimumRisk:
    return MinimumRisk(MinimumRiskConfig(sharpness=sharpness), drawing(drawn))


def drawn_scores(model: TinyModel, source: list[int], tokens: list[int]) -> Tensor:
    """Log-probabilities of the tokens that the model drew: without the eos of what was cut off."""
    scores = model.log_probabilities([*source, EOS], tokens)
    return scores[:-1] if tokens == CUT_OFF else scores


# --- drawing and scoring


def test_translations_are_drawn_in_eval_mode_and_the_mode_comes_back() -> None:
    for training in (True, False):
        model = TinyModel().train(training)
        draw(GivenSampler(), model, BATCH)
        assert model.modes == [False] and model.training is training


def test_the_mode_comes_back_even_if_drawing_fails() -> None:
    model = TinyModel().train()
    with pytest.raises(ZeroDivisionError):
        draw(lambda *_: 1 / 0, model, BATCH)  # type: ignore[arg-type, return-value]
    assert model.training


def test_seeds_follow_torchs_generator() -> None:
    given = GivenSampler()
    for _ in range(2):
        torch.manual_seed(3)
        draw(given, TinyModel(), BATCH)
        draw(given, TinyModel(), BATCH)
    assert given.seeds[:2] == given.seeds[2:] and given.seeds[0] != given.seeds[1]


def test_references_are_the_targets() -> None:
    found = references(BATCH)
    assert found.tokens.tolist() == [[[5, 4, EOS, PAD]], [[6, 6, 7, EOS]]]
    assert found.lengths.tolist() == [[3], [4]] and found.finished.all()


def test_rewards_compare_pieces_without_eos() -> None:
    found = rewards(sentence_gleu, translations(DRAWN), references(BATCH))
    for of_sentence, values, (_, reference) in zip(DRAWN, found.tolist(), PAIRS):
        assert values == pytest.approx([reward_of(one, reference) for one in of_sentence])
    assert found[0, 0] == 1.0 and found[1, 1] == 0.0


def test_scores_of_translations_are_their_log_probabilities_and_reach_the_encoder() -> None:
    model, weights = TinyModel(), torch.randn(2, 4, 4, dtype=torch.float64)
    scores, _ = decode(model, model.encode(BATCH.source, BATCH.source_lengths), BATCH, translations(DRAWN))
    slow = torch.zeros(2, 4, 4, dtype=torch.float64)
    for b, k in itertools.product(range(2), range(4)):
        found = drawn_scores(model, PAIRS[b][0], DRAWN[b][k])
        slow[b, k, : len(found)] = found
    torch.testing.assert_close(scores, slow)
    assert_same_gradients(gradients(model, (scores * weights).sum()), gradients(model, (slow * weights).sum()))


# --- expected reward


def slow_expected_reward(model: TinyModel, weight: float) -> tuple[float, Tensor]:
    """The value of the loss, and something with its gradient."""
    value, surrogate = 0.0, torch.zeros((), dtype=torch.float64)
    for b, (source, target) in enumerate(PAIRS):
        earned = [reward_of(one, target) for one in DRAWN[b]]
        mean = sum(earned) / len(earned)
        likelihood = model.log_probabilities([*source, EOS], [*target, EOS]).sum()
        value += -mean - weight * likelihood.item()
        surrogate = surrogate - weight * likelihood
        for k, one in enumerate(DRAWN[b]):
            surrogate = surrogate - (earned[k] - mean) / len(earned) * drawn_scores(model, source, one).sum()
    return value, surrogate


@pytest.mark.parametrize("weight", [0.0, 0.017, 2.0])
def test_expected_reward_has_the_value_and_the_gradient_of_its_formula(weight: float) -> None:
    model = TinyModel()
    value, surrogate = slow_expected_reward(model, weight)
    report = expected_reward(weight=weight)(model, BATCH)
    assert report.loss_sum.item() == pytest.approx(value)
    assert_same_gradients(gradients(model, report.loss_sum), gradients(model, surrogate))


def test_the_gradient_estimates_that_of_the_expectation_over_all_translations() -> None:
    """Translations of at most two pieces can be enumerated; the third token is an eos whatever the model wants."""
    model, (source, target), count = TinyModel(seed=5), PAIRS[0], 5000
    expected = torch.zeros((), dtype=torch.float64)
    for length in range(3):
        for words in itertools.product([1, 4, 5, 6, 7], repeat=length):
            tokens = [*words, EOS]
            scores = model.log_probabilities([*source, EOS], tokens)
            probability = (scores if length < 2 else scores[:-1]).sum().exp()
            expected = expected + probability * reward_of(tokens, target)
    exact = gradients(model, -expected)

    config = ExpectedRewardConfig(samples=count, max_len_a=0.0, max_len_b=2, likelihood_weight=0.0)
    torch.manual_seed(1)
    report = criterions.build(config, SimpleNamespace(sampler=sampler(config), reward=sentence_gleu))(
        model, batch_of(PAIRS[0])
    )
    assert -report.loss_sum.item() == pytest.approx(expected.item(), abs=0.02)
    found = gradients(model, report.loss_sum)
    scale = max(gradient.abs().max().item() for gradient in exact.values())
    assert_same_gradients(found, exact, rtol=0.0, atol=0.08 * scale)


def test_translations_of_equal_reward_teach_nothing() -> None:
    same = [[[5, 4, EOS], [5, 4, EOS]], [[4, EOS], [5, EOS]]]
    report = expected_reward(same, weight=0.0)(model := TinyModel(), BATCH)
    assert all(not gradient.any() for gradient in gradients(model, report.loss_sum).values())


def test_sequence_losses_are_divided_by_sentences_and_the_likelihood_by_tokens() -> None:
    likelihood = criterions.build(CrossEntropyConfig())(TinyModel(), BATCH)
    for criterion in (expected_reward(), minimum_risk()):
        report = criterion(TinyModel(), BATCH)
        assert (report.denominator.item(), report.num_tokens.item(), report.num_sentences) == (2, 7, 2)
        torch.testing.assert_close(report.nll_sum, likelihood.nll_sum)
        assert report.loss_sum.requires_grad and not report.nll_sum.requires_grad


@pytest.mark.parametrize("criterion", [expected_reward(), minimum_risk()], ids=["reward", "risk"])
def test_a_batch_is_the_sum_of_its_sentences(criterion: nn.Module) -> None:
    model = TinyModel()
    whole = criterion(model, BATCH)
    parts = [criterion(model, batch_of(pair)) for pair in PAIRS]
    torch.testing.assert_close(whole.loss_sum, parts[0].loss_sum + parts[1].loss_sum)
    assert whole.denominator == parts[0].denominator + parts[1].denominator
    assert_same_gradients(
        gradients(model, whole.loss_sum), gradients(model, parts[0].loss_sum + parts[1].loss_sum), rtol=1e-6, atol=1e-8
    )


def test_the_reward_is_reported_and_an_auxiliary_mean_enters_per_sentence() -> None:
    report = expected_reward(balance=0.1)(TinyModel(balance=0.5), BATCH)
    mean = sum(reward_of(one, PAIRS[b][1]) for b in range(2) for one in DRAWN[b]) / 4
    assert report.auxiliary["reward"].item() == pytest.approx(mean)
    assert report.auxiliary["balance"].item() == pytest.approx(0.1 * 0.5 * 2)
    plain = expected_reward()(TinyModel(), BATCH)
    assert (report.loss_sum - plain.loss_sum).item() == pytest.approx(0.1)


def test_validation_spares_the_pass_that_only_the_gradient_needs() -> None:
    model = TinyModel()
    with_gradient = expected_reward()(model, BATCH)
    assert model.decoded == [2, 8]
    with torch.no_grad():
        without = expected_reward()(model, BATCH)
    assert model.decoded == [2, 8, 2]
    torch.testing.assert_close(without.loss_sum, with_gradient.loss_sum.detach())


@pytest.mark.parametrize("config", [ExpectedRewardConfig(samples=2), MinimumRiskConfig(samples=2)])
def test_drawing_under_autocast_leaves_the_gradients_whole(config: Any) -> None:
    """Some releases of torch would reuse the copies of parameters that drawing made, to which no gradient leads."""
    from nmt.interface import VocabularySizes

    torch.manual_seed(1)
    model = LSTM(LSTMConfig(embedding_size=6, hidden_size=8), VocabularySizes(8, 8, shared=False))
    criterion = criterions.build(
        config, SimpleNamespace(sampler=sampler(config), reward=lambda tokens, *_: tokens[:, 0].float())
    )
    with torch.autocast("cpu", torch.bfloat16):
        report = criterion(model, BATCH)
    report.loss_sum.backward()
    missing = [
        name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]
    assert not missing


# --- minimum risk


def slow_risk(model: TinyModel, sharpness: float) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    for b, (source, target) in enumerate(PAIRS):
        candidates = {(*target, EOS), *(tuple(one) for one in DRAWN[b])}
        weights = {one: (sharpness * drawn_scores(model, source, list(one)).sum()).exp() for one in candidates}
        share = torch.stack(list(weights.values())).sum()
        for one, weight in weights.items():
            total = total + weight / share * (1 - reward_of(list(one), target))
    return total


@pytest.mark.parametrize("sharpness", [0.005, 0.3, 1.0])
def test_minimum_risk_has_the_value_and_the_gradient_of_its_formula(sharpness: float) -> None:
    model = TinyModel()
    report, slow = minimum_risk(sharpness=sharpness)(model, BATCH), slow_risk(model, sharpness)
    torch.testing.assert_close(report.loss_sum, slow)
    assert_same_gradients(gradients(model, report.loss_sum), gradients(model, slow))


def test_drawing_a_candidate_again_changes_no_risk() -> None:
    often = [[*of_sentence, *of_sentence, [*target, EOS]] for of_sentence, (_, target) in zip(DRAWN, PAIRS)]
    model = TinyModel()
    torch.testing.assert_close(minimum_risk(often)(model, BATCH).loss_sum, minimum_risk()(model, BATCH).loss_sum)


def test_nothing_but_the_reference_drawn_is_no_risk() -> None:
    certain = [[[*target, EOS]] * 2 for _, target in PAIRS]
    assert minimum_risk(certain)(TinyModel(), BATCH).loss_sum.item() == pytest.approx(0.0, abs=1e-12)


# --- options


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (ExpectedRewardConfig, {"samples": 0}),
        (ExpectedRewardConfig, {"samples": 1}),
        (ExpectedRewardConfig, {"max_len_a": -1.0}),
        (ExpectedRewardConfig, {"max_len_b": 0.5}),
        (ExpectedRewardConfig, {"likelihood_weight": -0.1}),
        (MinimumRiskConfig, {"samples": -1}),
        (MinimumRiskConfig, {"sharpness": 0.0}),
    ],
)
def test_impossible_options_are_refused_by_name(config: type, options: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=f"criterion.{next(iter(options))}="):
        config(**options)


def test_the_defaults_are_the_constants_of_the_papers() -> None:
    reward, risk = ExpectedRewardConfig(), MinimumRiskConfig()
    assert (reward.samples, reward.reward.name, reward.likelihood_weight) == (15, "gleu", 0.017)
    assert (risk.samples, risk.reward.name, risk.sharpness) == (100, "bleu", 0.005)


def test_a_batch_with_other_targets_keeps_its_sources() -> None:
    from nmt.criterions.sequences import with_targets

    drawn = translations(DRAWN)
    many: Batch = with_targets(BATCH, drawn.tokens.flatten(0, 1), drawn.lengths.flatten())
    sides = [(source, one[:-1]) for (source, _), of_sentence in zip(PAIRS, DRAWN) for one in of_sentence]
    expected = batch_of(*sides)
    for name in (
        "source",
        "source_lengths",
        "target_in",
        "target_lengths",
        "targets",
        "source_offsets",
        "target_offsets",
    ):
        assert torch.equal(getattr(many, name), getattr(expected, name)), name
    assert many.sentence_ids.tolist() == [0] * 4 + [1] * 4
