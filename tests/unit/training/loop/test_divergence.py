"""A model that does not learn is noticed although its figures are finite, and one that learns is left alone."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config.sections import CheckpointConfig, TrainingConfig
from nmt.errors import Diverged
from nmt.reporting.run_record import read_events
from nmt.storage.checkpoints import read_checkpoint
from nmt.storage.run_folder import checkpoints_in
from nmt.training.checkpoints.resume import ResumePoint
from nmt.training.checkpoints.run_state import RunState
from nmt.training.loop.divergence import LearningWatch, References
from nmt.training.loop.learner import Step
from nmt.training.loop.trainer import Trainer

Make = Callable[..., Any]

WORDS = References(8000, math.log(8000), 6.2)
CHARACTERS = References(80, math.log(80), 2.9)


def watch(references: References = WORDS, *, warmup: int = 100, patience: int | None = 5000) -> LearningWatch:
    return LearningWatch(references, warmup, patience)


def follow(watching: LearningWatch, course: Iterable[float], first: int = 1) -> tuple[dict[int, str], int | None]:
    """The warnings by update, and the update at which training stops."""
    warnings = dict[int, str]()
    for update, nll in enumerate(course, first):
        for message in watching.observe(update, nll, grad_norm=1.0):
            warnings[update] = message
        if watching.stops:
            return warnings, update
    return warnings, None


def noisy(means: Iterable[float], deviation: float, seed: int = 1) -> list[float]:
    draw = np.random.default_rng(seed)
    return [max(0.0, mean + float(draw.normal(0.0, deviation))) for mean in means]


def falling(start: float, end: float, speed: float, updates: int) -> list[float]:
    return [end + (start - end) * math.exp(-update / speed) for update in range(updates)]


def test_a_model_worse_than_a_random_guess_is_warned_of_soon_and_stopped() -> None:
    warnings, stop = follow(watch(), [9.5, *noisy([1.5e8] * 2000, 1e7)])
    (first,) = warnings
    assert (
        first <= 200 and "worse than a random guess (nll 1.5" in warnings[first] and "ln 8000 = 8.99" in warnings[first]
    )
    assert stop is not None and stop <= 700


def test_a_loss_that_only_falls_with_the_learning_rate_is_no_progress() -> None:
    decaying = [9.5, *(1e8 / math.sqrt(update) for update in range(1, 5000))]
    _, stop = follow(watch(warmup=10), decaying)
    assert stop is not None and stop < 2500


def test_a_rate_that_is_too_large_is_noticed_during_a_long_warmup() -> None:
    warnings, stop = follow(watch(warmup=4000), [9.5, *noisy([1e4] * 3000, 1e3)])
    assert min(warnings) <= 150 and stop is not None and stop <= 700


def test_a_model_no_better_than_token_frequencies_is_warned_of_and_stopped_by_the_patience() -> None:
    warnings, stop = follow(watch(patience=2000), noisy(falling(9.5, 6.25, 20, 4000), 0.1))
    assert [("hardly better than token frequencies" in message) for message in warnings.values()] == [True]
    assert 600 <= min(warnings) <= 1000 and stop is not None and 2000 <= stop <= 4000


def test_without_patience_it_is_only_warned() -> None:
    watching = watch(patience=None)
    warnings, stop = follow(watching, [9.5, *[1e6] * 8000])
    assert warnings and stop is None and not watching.failed


def spiking() -> list[float]:
    """A course that jumps above a random guess after warmup for 150 updates, and comes back."""
    course = falling(9.5, 3.0, 150, 3000)
    for update in range(150):
        course[1000 + update] += 20 * math.exp(-update / 40)
    return course


@pytest.mark.parametrize(
    ("references", "course"),
    [
        pytest.param(WORDS, noisy(falling(9.5, 2.0, 400, 6000), 0.4), id="ordinary"),
        pytest.param(WORDS, noisy(falling(9.0, 2.0, 2000, 6000), 0.8), id="slow, small batches"),
        pytest.param(CHARACTERS, noisy(falling(4.5, 1.2, 400, 6000), 0.15), id="characters"),
        pytest.param(CHARACTERS, noisy([2.95] * 450 + falling(2.95, 0.1, 200, 3000), 0.1), id="a plateau"),
        pytest.param(WORDS, spiking(), id="a spike after warmup"),
        pytest.param(WORDS, noisy([8.9, 8.5, 7.9] * 4, 0.1), id="twelve updates"),
    ],
)
def test_of_a_model_that_learns_nothing_is_said(references: References, course: list[float]) -> None:
    watching = watch(references)
    warnings, stop = follow(watching, course)
    assert stop is None and not watching.failed
    assert not [message for message in warnings.values() if message.startswith("since update")]


@pytest.mark.parametrize(
    "course",
    [
        pytest.param(noisy(falling(250.0, 2.0, 300, 6000), 0.4), id="a bad start"),
        pytest.param([9.5, *noisy([25.0] * 80, 2.0), *falling(9.0, 3.0, 200, 3000)], id="a spike in warmup"),
        pytest.param(noisy([6.3] * 3000 + falling(6.3, 2.0, 300, 3000), 0.1), id="a long plateau"),
    ],
)
def test_a_model_that_recovers_may_be_warned_of_but_is_not_stopped(course: list[float]) -> None:
    watching = watch()
    warnings, stop = follow(watching, course)
    assert stop is None and not watching.failed and warnings


def test_a_spike_is_reported_once_with_the_median_before_it() -> None:
    course = noisy([3.0] * 300, 0.1)
    course[200] = course[201] = 9.0
    warnings, _ = follow(watch(warmup=0), course)
    (update,) = warnings
    assert update == 201
    assert re.search(r"nll 9\.0.* median [23]\.[09].*gradient norm 1\.0", warnings[201])


@pytest.mark.parametrize("deviation", [0.1, 0.5, 1.0])
def test_noise_of_small_batches_is_no_spike(deviation: float) -> None:
    warnings, _ = follow(watch(), noisy(falling(9.0, 3.0, 300, 3000), deviation))
    assert not warnings


def test_what_the_watch_remembers_survives_a_checkpoint_bit_for_bit() -> None:
    course = noisy(falling(9.5, 6.25, 20, 1500), 0.3)
    whole, parts = watch(patience=1000), watch(patience=1000)
    expected = follow(whole, course)
    follow(parts, course[:777])
    resumed = watch(patience=1000)
    resumed.restore(json.loads(json.dumps(parts.state())))
    found = follow(resumed, course[777:], first=778)
    assert found == ({update: said for update, said in expected[0].items() if update > 777}, expected[1])
    assert resumed.state() == whole.state() and RunState().watched == {}


def test_the_last_good_update_lies_a_window_before_the_doubt() -> None:
    watching = watch(warmup=10)
    follow(watching, [*falling(9.5, 3.0, 50, 400), *[50.0] * 100])
    assert watching.in_doubt and watching.good_until is not None and 300 <= watching.good_until <= 400
    assert LearningWatch(WORDS).good_until is None


class Explodes(torch.optim.SGD):
    """Leaves finite parameters that predict wrongly with certainty, from a given step on."""

    steps, at = 0, 0

    def step(self, closure: Any = None) -> Any:
        self.steps += 1
        if self.steps == self.at:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.mul_(40.0)
        return super().step(closure)


def diverging(make_trainer: Make, step: Step, at: int, **parts: Any) -> Trainer:
    optimizer = Explodes(step.named_parameters(), lr=0.0)
    optimizer.at = at
    references = References(12, math.log(12), 2.9)
    watching = LearningWatch(references, warmup=1, patience=parts.pop("patience", 1000))
    trainer: Trainer = make_trainer(step=step, optimizer=optimizer, **parts)
    trainer.watch = watching
    return trainer


@pytest.mark.slow
def test_a_run_stops_with_its_last_good_checkpoint_which_is_kept(
    make_trainer: Make, make_step: Make, tmp_path: Path
) -> None:
    save = CheckpointConfig(save_interval=None, save_interval_updates=100, keep_interval_updates=1)
    trainer = diverging(make_trainer, make_step(), 231, save=save, limits=TrainingConfig(max_update=1000))
    with pytest.raises(
        Diverged, match="worse than a random guess .* the last good checkpoint is .*0000200 .*lower --lr"
    ):
        trainer.run()
    kept = [int(path.name[-4:]) for path in checkpoints_in(tmp_path / "run")]
    assert kept == [200, 300] and trainer.state.update < 400
    events = read_events(tmp_path / "run" / "log.jsonl")
    assert [event["event"] for event in events if event["event"] == "warning"]


@pytest.mark.slow
def test_a_run_that_ends_before_its_patience_is_no_success_either(
    make_trainer: Make, make_step: Make, tmp_path: Path
) -> None:
    limits = TrainingConfig(max_update=260)
    trainer = diverging(make_trainer, make_step(), 2, limits=limits, patience=100_000)
    with pytest.raises(Diverged, match="worse than a random guess .* there is no good checkpoint"):
        trainer.run()
    again = diverging(make_trainer, make_step(), 0, limits=limits, patience=100_000)
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True)
    again.restore(ResumePoint.of(stored))
    assert again.complete
    with pytest.raises(Diverged, match="worse than a random guess"):
        again.require_learned()


def test_other_options_give_a_resumed_run_its_whole_patience(
    make_trainer: Make, make_step: Make, tmp_path: Path
) -> None:
    trainer = diverging(make_trainer, make_step(), 2, limits=TrainingConfig(max_update=120), patience=None)
    trainer.run()
    stored = read_checkpoint(checkpoints_in(tmp_path / "run")[-1], training=True)
    past = ResumePoint.of(stored)
    same, changed = (diverging(make_trainer, make_step(), 0) for _ in range(2))
    same.restore(past)
    changed.restore(ResumePoint(past.stored, past.training, past.settings, {"optimizer.lr": "1.0 -> 0.1"}))
    assert same.watch.memory.recent and not changed.watch.memory.recent
