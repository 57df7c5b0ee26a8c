"""The example plugin: it obeys the laws of models, and it learns what a bag of words can learn."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from nmt import plugins
from nmt.criterions import criterions
from nmt.data.batching.batch import collate
from nmt.data.vocabulary import EOS
from nmt.interface import Batch, VocabularySizes
from nmt.models import models
from nmt.plugins import load_plugins, preset_folders
from nmt.testing import conformance
from nmt.testing.subjects import load_preset

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "plugin" / "bag_of_words"


@pytest.fixture(scope="module", autouse=True)
def _plugin() -> Iterator[None]:
    """Loaded for this file only: other tests count the components that exist."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(models, "_entries", dict(models._entries))
        patch.setattr(plugins, "_loaded", dict(plugins._loaded))
        patch.setattr(sys, "path", list(sys.path))
        load_plugins(str(FOLDER))
        yield
        del sys.modules["bag_of_words"]


def test_the_plugin_obeys_every_law() -> None:
    conformance.check("bag_of_words")


def test_its_preset_is_found_beside_it() -> None:
    assert FOLDER / "conf" in preset_folders()
    assert load_preset("bag_of_words_tiny").d_model == 64


def sorted_words(seed: int, sentences: int = 64) -> Batch:
    """Source: a few words in any order; target: the same words sorted, for which their order does not matter."""
    generator = torch.Generator().manual_seed(seed)
    words = [torch.randperm(6, generator=generator)[:3] + EOS + 1 for _ in range(sentences)]
    eos = torch.tensor([EOS])
    return collate(
        [torch.cat([line, eos]).numpy() for line in words],
        [torch.cat([line.sort().values, eos]).numpy() for line in words],
    )


@pytest.mark.slow
def test_it_learns_to_sort_words() -> None:
    torch.manual_seed(1)
    model = models.build(load_preset("bag_of_words_tiny"), VocabularySizes(10, 10, shared=True))
    criterion = criterions.build(criterions.config_class("cross_entropy")())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for update in range(150):
        report = criterion(model, sorted_words(seed=update))
        optimizer.zero_grad()
        (report.loss_sum / report.denominator).backward()
        optimizer.step()
    with torch.no_grad():
        unseen = criterion(model.eval(), sorted_words(seed=1000))
    assert unseen.nll_sum / unseen.num_tokens < 0.05
