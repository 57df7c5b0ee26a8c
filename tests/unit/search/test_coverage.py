"""The coverage penalty against its equation, hypothesis by hypothesis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from nmt.errors import UsageError
from nmt.interface import StepOutput
from nmt.search.beam import BeamSearch
from nmt.search.config import BeamConfig, StopRule
from nmt.search.history import Coverage
from nmt.testing.subjects import search_with
from tests.unit.search.toy import ToyModel

SOURCES = ((5, 6, 7, 3), (4, 3), (6, 6, 5, 4, 7, 3))


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    width = max(map(len, SOURCES))
    rows = [[*source, *[0] * (width - len(source))] for source in SOURCES]
    return torch.tensor(rows), torch.tensor([len(source) for source in SOURCES])


@pytest.mark.parametrize("stop", StopRule)
@pytest.mark.parametrize("weight", [0.2, 3.0])
def test_scores_hold_the_penalty_of_the_equation_and_rank_by_it(weight: float, stop: StopRule) -> None:
    model = ToyModel(3, eos_bias=0.5)
    config = BeamConfig(beam_size=6, lenpen=0.2, coverage_penalty=weight, max_len_b=4, stop=stop)
    found = search_with(BeamSearch(config, nbest=4), model, *padded())
    for source, hypotheses in zip(SOURCES, found):
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            tokens = tuple(hypothesis.tokens.tolist())
            attended = sum(model.attention(source, tokens[:end]) for end in range(len(tokens)))
            coverage = weight * np.log(np.minimum(attended, 1.0)).sum()
            length_penalty = ((5 + len(tokens)) / 6) ** 0.2
            assert hypothesis.score == pytest.approx(hypothesis.log_probability / length_penalty + coverage, abs=1e-4)


def test_a_heavy_penalty_prefers_translations_that_cover_the_source() -> None:
    model = ToyModel(3, eos_bias=2.0)

    def uncovered(weight: float) -> float:
        config = BeamConfig(beam_size=20, lenpen=0.0, coverage_penalty=weight, stop=StopRule.bound)
        total = 0.0
        for source, (best,) in zip(SOURCES, search_with(BeamSearch(config), model, *padded())):
            tokens = tuple(best.tokens.tolist())
            attended = sum(model.attention(source, tokens[:end]) for end in range(len(tokens)))
            total -= float(np.log(np.minimum(attended, 1.0)).sum())
        return total

    assert uncovered(5.0) < uncovered(0.0)


def test_attention_is_not_returned_for_it() -> None:
    config = BeamConfig(beam_size=3, coverage_penalty=0.2)
    assert search_with(BeamSearch(config), ToyModel(1), *padded())[0][0].attention is None


def test_a_model_without_attention_is_refused() -> None:
    class Blind(ToyModel):
        def step(self, *arguments: object, **options: object) -> StepOutput:  # type: ignore[override]
            return replace(super().step(*arguments, **options), attention=None)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="--coverage-penalty needs attention, which the model does not have"):
        search_with(BeamSearch(BeamConfig(coverage_penalty=0.2)), Blind(1), *padded())


def test_small_weights_of_half_precision_are_not_lost_in_their_sum() -> None:
    coverage = Coverage(1.0, np.array([2]), beam=1)
    for _ in range(600):
        coverage.add(np.array([[0.001, 0.999]], dtype=np.float16))
    assert coverage.penalties(np.array([0])).item() == pytest.approx(np.log(0.6), rel=1e-3)
