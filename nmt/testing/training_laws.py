"""Laws of storing and training: a model is its configuration and its state, and nothing beside them."""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config.plain import component_from_plain, to_plain
from nmt.criterions import criterions
from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
from nmt.data.vocabulary import SPECIALS
from nmt.distributed.sharding import units
from nmt.errors import UsageError
from nmt.interface import EncoderDecoder, VocabularySizes
from nmt.layers.stack import recompute_layers
from nmt.models.vocabulary_axes import vocabulary_axes
from nmt.storage.checkpoints import CheckpointInfo, StoredCheckpoint, read_checkpoint, write_checkpoint
from nmt.testing.model_laws import UNEVEN_SOURCE, UNEVEN_TARGET
from nmt.testing.subjects import JOINT, Subject, assert_close, target_log_probabilities, toy_batch

HALF = 2  # updates before the interruption, and after it


def a_checkpoint_holds_the_model(subject: Subject) -> None:
    """Written and read again, configuration and parameters give the same model, bit for bit."""
    model = subject.model(seed=1)
    stored = _through_a_checkpoint(subject, model)
    config = component_from_plain("model", stored.config["model"], origin="checkpoint")
    assert config == subject.config, "the configuration changed on its way through a checkpoint"
    other = Subject(subject.name, config, subject.builder).model(seed=2)
    other.load_state_dict(stored.model)
    batch = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET)
    for before, after in zip(target_log_probabilities(model, batch), target_log_probabilities(other, batch)):
        assert torch.equal(before, after), "the model read from a checkpoint gives other scores"


def every_parameter_learns(subject: Subject) -> None:
    """Each parameter gets a gradient from every batch, if only of zeros: processes that train together wait for it."""
    model = subject.model().train()
    _report(model).loss_sum.backward()
    without = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None
    ]
    assert not without, f"no gradient reaches {', '.join(without)}"


def layers_stand_alone(subject: Subject) -> None:
    """Each layer of a ``Stack`` is called once in a pass, and its parameters are needed while it is called alone.

    Processes that divide a model have the parameters of a layer at no other time.
    """
    model, calls = subject.model().train(), Counter[nn.Module]()
    layers = {layer: [parameter.detach().clone() for parameter in layer.parameters()] for layer in units(model)}
    expected = _loss(subject.model().train())

    @torch.no_grad()
    def put(layer: nn.Module, *_: Any) -> None:
        calls[layer] += 1
        for parameter, value in zip(layer.parameters(), layers[layer]):
            parameter.copy_(value)

    @torch.no_grad()
    def take(layer: nn.Module, *_: Any) -> None:
        for parameter in layer.parameters():
            parameter.fill_(torch.nan)

    for layer in layers:
        take(layer)
        layer.register_forward_pre_hook(put)
        layer.register_forward_hook(take)
    found = _loss(model)
    assert all(calls[layer] == 1 for layer in layers), f"the layers of stacks were called {list(calls.values())} times"
    assert torch.equal(found, expected), "something needs the parameters of a layer outside of it"


def layers_can_run_again(subject: Subject) -> None:
    """Losses and gradients are the same, bit for bit, if layers run again in the backward pass instead of being kept."""
    kept, again = subject.model().train(), subject.model().train()
    recompute_layers(again)
    assert again.state_dict().keys() == kept.state_dict().keys(), "parameters have other names"
    for model in (kept, again):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            _report(model).loss_sum.backward()
    found = {name: parameter.grad for name, parameter in again.named_parameters()}
    for name, parameter in kept.named_parameters():
        gradient, expected = found[name], parameter.grad
        same = gradient is expected if gradient is None or expected is None else torch.equal(gradient, expected)
        assert same, f"{name} gets another gradient if layers run again"


def training_resumes_exactly(subject: Subject) -> None:
    """Training 2k updates equals training k, restoring from a checkpoint, and training k more: bit for bit."""
    straight = subject.model(seed=1)
    _train(straight, _optimizer(straight), range(2 * HALF))

    interrupted = subject.model(seed=1)
    optimizer = _optimizer(interrupted)
    _train(interrupted, optimizer, range(HALF))
    resumed = subject.model(seed=2)
    resumed.load_state_dict(_through_a_checkpoint(subject, interrupted).model)
    restored = _optimizer(resumed)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    _train(resumed, restored, range(HALF, 2 * HALF))

    expected = straight.state_dict()
    for name, tensor in resumed.state_dict().items():
        assert torch.equal(tensor, expected[name]), f"after the interruption {name} became another"


def parameters_follow_the_pieces(subject: Subject) -> None:
    """Exchanging pieces of a vocabulary, and with them what ``vocabulary_axes`` finds, exchanges their scores alone.

    Fine-tuning under another vocabulary relies on it. A model without a parameter for each piece has nothing to map.
    """
    for sizes in (VocabularySizes(source=23, target=27, shared=False), JOINT):
        try:
            model = subject.model(seed=1, sizes=sizes)
        except UsageError:  # some are made for one joint vocabulary
            assert not sizes.shared
            continue
        axes = vocabulary_axes(partial(subject.builder, subject.config), sizes)
        if not axes:
            continue
        orders = {"source": _reversed_pieces(sizes.source), "target": _reversed_pieces(sizes.target)}
        state = model.state_dict()
        for name, place in axes.items():
            state[name] = state[name].index_select(place.axis, orders[place.side])
        exchanged = copy.deepcopy(model)
        exchanged.load_state_dict(state)
        batch = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET)
        words = replace(
            batch,
            source=orders["source"][batch.source],
            target_in=orders["target"][batch.target_in],
            targets=orders["target"][batch.targets],
        )
        after = target_log_probabilities(exchanged, words)
        for sentence, scores in enumerate(target_log_probabilities(model, batch)):
            assert_close(after[sentence], scores, f"sentence {sentence} of exchanged pieces")


def _reversed_pieces(size: int) -> Tensor:
    """[V] ids: the specials, then the pieces in reverse. It is its own inverse."""
    return torch.cat([torch.arange(len(SPECIALS)), torch.arange(size - 1, len(SPECIALS) - 1, -1)])


def _through_a_checkpoint(subject: Subject, model: EncoderDecoder) -> StoredCheckpoint:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        config = {"model": to_plain(subject.config)}
        write_checkpoint(path, model=model.state_dict(), config=config, info=CheckpointInfo(update=HALF, epoch=1))
        return read_checkpoint(path)


def _report(model: EncoderDecoder, first: int = 0) -> Any:
    """The ``LossReport`` of random sentences, the first few left out."""
    batch = toy_batch(model, UNEVEN_SOURCE[first:], UNEVEN_TARGET[first:])
    return criterions.build(LabelSmoothedCrossEntropyConfig())(model, batch)


@torch.no_grad()
def _loss(model: EncoderDecoder) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        loss: Tensor = _report(model).loss_sum
        return loss


def _optimizer(model: EncoderDecoder) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def _train(model: EncoderDecoder, optimizer: torch.optim.Optimizer, updates: range) -> None:
    """The randomness of an update depends on its number alone."""
    model.train()
    with torch.random.fork_rng(devices=[]):
        for update in updates:
            torch.manual_seed(update)
            report = _report(model, update % 2)
            optimizer.zero_grad()
            (report.loss_sum / report.denominator).backward()
            optimizer.step()
