"""Position by position as all at once, for whatever stands in a decoder layer's first sublayer."""

from __future__ import annotations

import torch

from nmt.models.transformer.autoregression import Autoregression, BeamHistory


def assert_steps_equal_the_whole(module: Autoregression, width: int, *, steps: int = 20, beam: int = 3) -> None:
    """Hypotheses change their slots at random, and in the middle a sentence leaves."""
    module.double()
    like, sentences = torch.zeros(1, dtype=torch.float64), 3
    history, cache = BeamHistory.start(sentences, beam, like), module.start(sentences, beam, like)
    inputs = torch.zeros(sentences * beam, 0, width, dtype=torch.float64)  # [N, t, D] of each hypothesis
    with torch.no_grad():
        for step in range(steps):
            x = torch.randn(sentences, beam, width, dtype=torch.float64)
            inputs = torch.cat([inputs, x.view(-1, 1, width)], 1)
            history = history.entered()
            found, cache = module.step(x, cache, module.step_mask(cache, history))
            history = history.passed()
            expected = module(inputs, module.causal_mask(inputs), None)[:, -1]
            torch.testing.assert_close(found.flatten(0, 1), expected)
            rows = torch.randint(beam, (sentences, beam)) + torch.arange(0, sentences * beam, beam)[:, None]
            if step == steps // 2:
                rows, sentences = rows[[0, 2]], 2
            history, cache, inputs = history.rows(rows.flatten()), cache.rows(rows.flatten()), inputs[rows.flatten()]
    assert history.length == steps and history.positions.tolist() == [steps] * sentences * beam
