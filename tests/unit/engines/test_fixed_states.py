"""States with room for a number of steps: the same scores, and no step changes the form of a state."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nmt.engines.graphs import shapes_of, with_room
from nmt.testing.subjects import Subject, assert_close, toy_batch
from tests.kinds import RECORDED, some_by_day

SENTENCES, BEAM = 3, 2


def test_most_models_have_steps_that_can_be_recorded() -> None:
    names = {one.name for one in RECORDED}
    assert {"transformer", "transformer_relative", "transformer_ssru", "lstm", "gnmt"} <= names
    assert not {"transformer_moe", "transformer_local", "lstm_moe", "conv_s2s"} & names


@pytest.mark.parametrize("subject", some_by_day(RECORDED))
def test_fixed_steps_equal_others(subject: Subject) -> None:
    model = subject.model().eval()
    batch = toy_batch(model, (6,) * SENTENCES, (9,) * SENTENCES)
    with torch.inference_mode():
        memory, state = model.start(model.encode(batch.source, batch.source_lengths), BEAM)
        fixed_memory, beginning = model.start(model.encode(batch.source, batch.source_lengths), BEAM)
        roomy = with_room(beginning, 2)
        flipped = torch.arange(SENTENCES * BEAM).view(-1, BEAM).flip(1).flatten()
        staying = torch.arange(1, SENTENCES)
        left = SENTENCES
        for turn, tokens in enumerate(words(steps=4)):
            if turn == 2:  # there is no more room, and the first sentence leaves
                fixed_memory, memory, left = fixed_memory.rows(staying), memory.rows(staying), SENTENCES - 1
                roomy, state = with_room(roomy, 4).rows(flipped[BEAM:]), state.rows(flipped[BEAM:])
            else:
                roomy, state = roomy.rows(flipped[: left * BEAM]), state.rows(flipped[: left * BEAM])
            tokens = tokens[: left * BEAM]
            form = shapes_of(roomy)
            expected, found = model.step(tokens, memory, state), model.step(tokens, fixed_memory, roomy)
            assert_close(found.scores, expected.scores, "scores of a fixed step and of another")
            found = model.step(tokens, fixed_memory, roomy)
            assert_close(found.scores, expected.scores, "scores of a fixed step that is made again")
            assert shapes_of(found.state) == form
            roomy, state = found.state, expected.state


def words(steps: int) -> Tensor:
    """[steps, N]"""
    return torch.randint(4, 9, (steps, SENTENCES * BEAM), generator=torch.Generator().manual_seed(1))
