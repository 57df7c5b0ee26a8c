"""Laws of storing and training: configuration and state dict determine a model."""

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
from nmt.testing.subjects import JOINT, Subject, assert_close, device_under, target_log_probabilities, toy_batch

HALF = 2  # updates before the interruption, and again after it


def a_checkpoint_holds_the_model(subject: Subject) -> None:
    """A model restored from a checkpoint gives bit-identical scores."""
    model = subject.built
    stored = _through_a_checkpoint(subject, model)
    config = component_from_plain("model", stored.config["model"], origin="checkpoint")
    assert config == subject.config, "a checkpoint changed the configuration"
    other = replace(subject, config=config).model(seed=2)
    other.load_state_dict(stored.model)
    batch = toy_batch(model, UNEVEN_SOURCE, UNEVEN_TARGET)
    for before, after in zip(target_log_probabilities(model, batch), target_log_probabilities(other, batch)):
        assert torch.equal(before, after), "the model restored from a checkpoint gives different scores"


def every_parameter_learns(subject: Subject) -> None:
    """Every batch gives each parameter a gradient, even if it is zero: in distributed training, ranks wait for it."""
    model = subject.model().train()
    _report(model).loss_sum.backward()
    without = [
        name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None
    ]
    assert not without, f"no gradient reaches {', '.join(without)}"


def layers_stand_alone(subject: Subject) -> None:
    """Each layer of a ``Stack`` is called once in a pass, and its parameters are needed only during the call.

    Sharded training gathers the parameters of a layer only for its call.
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
    actual = _loss(model)
    assert all(calls[layer] == 1 for layer in layers), f"the layers of stacks were called {list(calls.values())} times"
    assert torch.equal(actual, expected), "the model uses the parameters of a layer outside the layer's call"


def layers_can_run_again(subject: Subject) -> None:
    """Losses and gradients are bit-identical if the backward pass recomputes layers."""
    kept, again = subject.model().train(), subject.model().train()
    recompute_layers(again)
    assert again.state_dict().keys() == kept.state_dict().keys(), "the names of parameters changed"
    for model in (kept, again):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            _report(model).loss_sum.backward()
    gradients = {name: parameter.grad for name, parameter in again.named_parameters()}
    for name, parameter in kept.named_parameters():
        gradient, expected = gradients[name], parameter.grad
        same = gradient is expected if gradient is None or expected is None else torch.equal(gradient, expected)
        assert same, f"{name} has a different gradient if layers are recomputed"


def training_resumes_exactly(subject: Subject) -> None:
    """Training for 2k updates is bit-identical to training for k, restoring a checkpoint, and training for k more."""
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
        assert torch.equal(tensor, expected[name]), f"{name} differs after the interruption"


def parameters_follow_the_pieces(subject: Subject) -> None:
    """Reordering tokens, together with the entries that ``vocabulary_axes`` finds for them, only reorders their scores.

    Fine-tuning with another vocabulary relies on it. The law holds for a model without an entry for each token.
    """
    for sizes in (VocabularySizes(source=23, target=27, shared=False), JOINT):
        try:
            model = subject.model(seed=1, sizes=sizes)
        except UsageError:  # some models need a joint vocabulary
            assert not sizes.shared
            continue
        axes = vocabulary_axes(partial(subject.builder, subject.config), sizes)
        if not axes:
            continue
        orders = {
            side: _reversed_tokens(size).to(device_under(model))
            for side, size in (("source", sizes.source), ("target", sizes.target))
        }
        state = model.state_dict()
        for name, entry in axes.items():
            state[name] = state[name].index_select(entry.axis, orders[entry.side])
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
            assert_close(after[sentence], scores, f"sentence {sentence} with reordered tokens")


def _reversed_tokens(size: int) -> Tensor:
    """Return ids [V]: the special tokens, then the others in reverse. The order is its own inverse."""
    return torch.cat([torch.arange(len(SPECIALS)), torch.arange(size - 1, len(SPECIALS) - 1, -1)])


def _through_a_checkpoint(subject: Subject, model: EncoderDecoder) -> StoredCheckpoint:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint"
        config = {"model": to_plain(subject.config)}
        parameters = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
        write_checkpoint(path, model=parameters, config=config, info=CheckpointInfo(update=HALF, epoch=1))
        return read_checkpoint(path)


def _report(model: EncoderDecoder, first: int = 0) -> Any:
    """Return the ``LossReport`` of random sentences, without the ``first`` ones."""
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
    """Train; the random numbers of an update depend only on its number."""
    model.train()
    with torch.random.fork_rng(devices=[]):
        for update in updates:
            torch.manual_seed(update)
            report = _report(model, update % 2)
            optimizer.zero_grad()
            (report.loss_sum / report.denominator).backward()
            optimizer.step()
