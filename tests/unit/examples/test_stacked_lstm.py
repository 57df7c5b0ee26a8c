"""The baseline beside the Neural Turing Machine: the laws of models, and the size that the paper states."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt import plugins
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.models import models
from nmt.plugins import load_plugins
from nmt.testing import conformance
from nmt.testing.subjects import load_preset

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "neural_turing_machine" / "stacked_lstm"


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> Iterator[None]:
    """Loaded for this file only: other tests count the components that exist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_entries", dict(models._entries))
        patch.setattr(plugins, "_loaded", dict(plugins._loaded))
        patch.setattr(sys, "path", list(sys.path))
        load_plugins(str(FOLDER))
        yield
        del sys.modules["stacked_lstm"]


def copy_model() -> EncoderDecoder:
    torch.manual_seed(1)
    return models.build(load_preset("stacked_lstm_copy"), VocabularySizes(4 + 256, 4 + 256, shared=False))


def test_the_baseline_obeys_every_law() -> None:
    conformance.check("stacked_lstm")


def test_its_size_is_the_papers() -> None:
    """1,352,969 with 10 inputs (8 bits, bos, eos) and 9 outputs (8 bits, eos); torch's second biases count nothing."""
    sizes = {name: parameter.numel() for name, parameter in copy_model().named_parameters() if "bias_hh" not in name}
    layers = 4 * 256 * (10 + 256 + 1) + 2 * 4 * 256 * (10 + 256 + 256 + 1)
    first, output = 3 * 2 * 256, 9 * (3 * 256 + 1)
    assert sum(sizes.values()) == layers + first + output == 1_352_969


def test_the_state_before_the_source_is_learned() -> None:
    model = copy_model()
    memory = model.encode(torch.tensor([[9, 200, 3], [7, 3, 0]]), torch.tensor([3, 2]))
    sum(state[1].sum() for state in memory.states).backward()  # type: ignore[attr-defined]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if name.endswith("first")}
    assert len(gradients) == 3
    assert all(gradient is not None and gradient[1].any() for gradient in gradients.values())
