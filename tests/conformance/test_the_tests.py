"""A test that cannot fail is a defect: for each law a model that breaks it, caught by exactly that law.

Some faults break two laws by their nature; the table says which and why.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt.errors import UsageError
from nmt.interface import (
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    Memory,
    Scoring,
    StepOutput,
    VocabularySizes,
)
from nmt.models.output_layers import LinearOutput
from nmt.models.transformer.autoregression import Mask
from nmt.models.transformer.layers import EncoderLayer, Record
from nmt.models.transformer.transformer import (
    Transformer,
    TransformerConfig,
    TransformerMemory,
    TransformerState,
)
from nmt.testing import conformance


class ReadsPadding(Transformer):
    """Teacher forcing notices how many padding columns the source has."""

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        decoded = super().decode(memory, batch, attention)
        columns = (batch.source.size(1) - batch.source_lengths).repeat_interleave(batch.target_lengths)
        return replace(decoded, hidden=decoded.hidden * (1 + 0.1 * columns[:, None]))


class SeesTheFuture(Transformer):
    """Teacher forcing lets the embedding of the next word through, from the sixth position on."""

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        decoded = super().decode(memory, batch, attention)
        future = self.target_input.embedding(batch.target_in.roll(-1, dims=1))
        positions, last = torch.arange(future.size(1)), batch.target_lengths[:, None] - 1
        future[(positions < 5) | (positions == last)] = 0.0
        return replace(decoded, hidden=decoded.hidden + 0.1 * future[positions <= last])


class StepsAside(Transformer):
    """Steps add a little from the fifth position on."""

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        assert isinstance(state, TransformerState)
        late = (state.history.positions >= 4)[:, None]
        return replace(output, scores=output.scores * (1 + 0.1 * late))


class ForgetfulState(TransformerState):
    """Forgets which slots its hypotheses came through."""

    def rows(self, index: Tensor) -> ForgetfulState:
        moved = super().rows(index)
        same = len(index) == len(self.history.positions)
        return ForgetfulState(self.history if same else moved.history, moved.caches)


class MixesRows(Transformer):
    """Its state ignores permutations."""

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        memory, state = super().start(memory, beam_size, vocabulary)
        assert isinstance(state, TransformerState)
        return memory, ForgetfulState(state.history, state.caches)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        assert isinstance(output.state, TransformerState)
        return replace(output, state=ForgetfulState(output.state.history, output.state.caches))


class HalfAttention(Transformer):
    """Reports attention that sums to a half."""

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        return replace(output, attention=None if output.attention is None else output.attention / 2)


class SortingOutput(LinearOutput):
    def restrict(self, vocabulary: Tensor) -> Scoring:
        return super().restrict(vocabulary.sort().values if vocabulary.dim() == 1 else vocabulary)


class SharingOutput(LinearOutput):
    def restrict(self, vocabulary: Tensor) -> Scoring:
        return super().restrict(vocabulary if vocabulary.dim() == 1 else vocabulary[-1:].expand_as(vocabulary))


class SortsTheShortlist(Transformer):
    """Restricts its output to the right ids in another order."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes)
        self.output = SortingOutput(torch.randn(sizes.target, self.width) * 0.3)


class SharesTheShortlist(Transformer):
    """Gives every sentence the list of the last one."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes)
        self.output = SharingOutput(torch.randn(sizes.target, self.width) * 0.3)


class NoticesTheBatch(Transformer):
    """Search reads the memory a little louder, the more padding the batch has."""

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, TransformerMemory)
        padding = memory.bias.isinf().sum(-1).squeeze(1)[:, None]  # [B, 1, 1]
        return super().start(replace(memory, states=memory.states * (1 + 0.2 * padding)), beam_size, vocabulary)


class WarmBeam(Transformer):
    """A beam of four or more is surer of itself, from the fifth position on."""

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        assert isinstance(state, TransformerState) and isinstance(memory, TransformerMemory)
        beam_size = len(tokens) // memory.states.size(0)
        late = (state.history.positions >= 4)[:, None] & (beam_size >= 4)
        return replace(output, scores=output.scores * (1 + 0.2 * late))


class ShyOfAttention(Transformer):
    """Scores change when somebody asks for the attention."""

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        return replace(output, scores=output.scores * 0.9) if attention else output


class LostInWideBeams(Transformer):
    """A beam of more than twenty loses probability."""

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        assert isinstance(memory, TransformerMemory)
        wide = len(tokens) // memory.states.size(0) > 20
        return replace(output, scores=output.scores * 0.9) if wide else output


class KeepsASecret(Transformer):
    """In eval mode its scores depend on a number that is not in its state."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes)
        self.secret = (1 + torch.rand(()),)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        decoded = super().decode(memory, batch, attention)
        return decoded if self.training else replace(decoded, hidden=decoded.hidden * self.secret[0])

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        output = super().step(tokens, memory, state, attention)
        return replace(output, scores=output.scores * self.secret[0])


class CountsItsUpdates(Transformer):
    """In training it depends on how often it was called before."""

    calls = 0

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        decoded = super().decode(memory, batch, attention)
        if not self.training:
            return decoded
        self.calls += 1
        return replace(decoded, hidden=decoded.hidden / self.calls)


class HasASpare(Transformer):
    """It has a parameter that nothing depends on."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes)
        self.spare = torch.nn.Parameter(torch.zeros(2))


class CountsPieces(Transformer):
    """Source pieces are louder or softer by their number."""

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        memory = super().encode(source, source_lengths)
        assert isinstance(memory, TransformerMemory)
        return replace(memory, states=memory.states * (1 + 0.2 * (source % 3))[:, :, None])


class LooksIntoALayer(Transformer):
    """Its decoder wants the weights of a layer without calling it."""

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        decoded = super().decode(memory, batch, attention)
        nothing = sum(0.0 * parameter.sum() for parameter in self.encoder.layers[0].parameters())
        return replace(decoded, hidden=decoded.hidden + nothing)


class Stubborn(EncoderLayer):
    """A layer that does something else in the backward pass."""

    def forward(self, x: Tensor, mask: Mask, record: Record) -> Tensor:
        again = torch._C._current_graph_task_id() >= 0
        return super().forward(x * (2.0 if again else 1.0), mask, record)


class NeverTwiceTheSame(Transformer):
    """Its layers notice that they run again."""

    def __init__(self, config: TransformerConfig, sizes: VocabularySizes) -> None:
        super().__init__(config, sizes)
        for layer in self.encoder.layers:
            layer.__class__ = Stubborn


# broken model -> the law it is made for, and the laws that it cannot but break as well
BROKEN: dict[type[Transformer], tuple[str, set[str]]] = {
    ReadsPadding: ("padding_never_matters", set()),
    SeesTheFuture: ("the_future_is_hidden", {"steps_equal_teacher_forcing"}),  # a step has no future to see
    StepsAside: ("steps_equal_teacher_forcing", set()),
    # beam search moves rows all the time
    MixesRows: (
        "rows_commute_with_steps",
        {"forced_scoring_equals_search", "a_wide_beam_is_exhaustive"},
    ),
    HalfAttention: ("attention_is_a_distribution", set()),
    SortsTheShortlist: ("a_shortlist_selects_columns", set()),
    SharesTheShortlist: ("sentences_have_shortlists_of_their_own", set()),
    NoticesTheBatch: ("batch_mates_never_matter", set()),
    WarmBeam: ("forced_scoring_equals_search", set()),
    ShyOfAttention: ("a_beam_of_one_is_greedy", set()),
    LostInWideBeams: ("a_wide_beam_is_exhaustive", set()),
    KeepsASecret: ("a_checkpoint_holds_the_model", set()),
    HasASpare: ("every_parameter_learns", set()),
    LooksIntoALayer: ("layers_stand_alone", set()),
    NeverTwiceTheSame: ("layers_can_run_again", set()),
    CountsItsUpdates: ("training_resumes_exactly", set()),
    CountsPieces: ("parameters_follow_the_pieces", set()),
}


def broken_laws(model: type[Transformer]) -> set[str]:
    subject = conformance.Subject(model.__name__, TransformerConfig().shrink(), model)
    return {law.name for law in conformance.broken_laws(subject)}


@pytest.mark.parametrize("model", BROKEN, ids=lambda model: model.__name__)
def test_a_broken_model_is_caught_by_its_law_alone(model: type[Transformer]) -> None:
    law, others = BROKEN[model]
    assert broken_laws(model) == {law} | others


def test_every_law_has_a_model_that_breaks_it() -> None:
    assert {law for law, _ in BROKEN.values()} == {law.name for law in conformance.LAWS}


def test_the_model_that_the_broken_ones_are_made_of_is_sound() -> None:
    assert broken_laws(Transformer) == set()


def test_laws_only_read_the_model_that_they_share() -> None:
    subject = conformance.subject("transformer")
    fresh = subject.model().state_dict()
    for law in conformance.LAWS:
        law(subject)
        assert not subject.built.training, law
        for name, tensor in subject.built.state_dict().items():
            assert torch.equal(tensor, fresh[name]), f"{law} changed {name}"
        assert all(parameter.grad is None for parameter in subject.built.parameters()), f"{law} left gradients"


def test_check_names_the_model_and_the_broken_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Transformer.step

    def half_attention(self: Transformer, *arguments: Any, **named: Any) -> StepOutput:
        output = step(self, *arguments, **named)
        return replace(output, attention=None if output.attention is None else output.attention / 2)

    monkeypatch.setattr(Transformer, "step", half_attention)
    with pytest.raises(AssertionError, match=r"transformer breaks 1 of 17 laws\n.*attention_is_a_distribution"):
        conformance.check("transformer")


def test_check_goes_on_after_a_law_that_stops_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_reordering(*_: Any, **__: Any) -> None:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(Transformer, "step", no_reordering)
    broken = r"breaks \d+ of 17 laws\n.*steps_equal_teacher_forcing: .*\n    RuntimeError: shapes do not match\n"
    with pytest.raises(AssertionError, match=f"(?s){broken}.*a_beam_of_one_is_greedy"):
        conformance.check("transformer")


def test_an_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match=r"no model or preset 'transfomer'; models: .*transformer"):
        conformance.subject("transfomer")
