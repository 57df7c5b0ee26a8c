"""The LSTM baseline of Graves, Wayne and Danihelka 2014, arXiv:1410.5401, section 4.

One stack of layers reads the source and then writes the answer. Its only inputs for the answer are the end of the
source and bos. Symbols are bits in the input and the output, as in nmt's Neural Turing Machine. Importing this package
registers the model `stacked_lstm`.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E input channels, H hidden size, P layers, D = P H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config.checks import require_positive
from nmt.config.option import option
from nmt.data.vocabulary import BOS
from nmt.interface import (
    AttentionMaps,
    AttentionRequest,
    Batch,
    DecoderOutput,
    DecoderState,
    EncoderDecoder,
    Memory,
    OutputLayer,
    StepOutput,
    VocabularySizes,
)
from nmt.layers.padding import real_rows
from nmt.models import models
from nmt.models.binary_symbols import binary_embeddings, binary_output
from nmt.models.config import check_symbol_bits
from nmt.models.recurrent.layers import LSTMLayer, RecurrentLayer, States


@dataclass
class StackedLSTMConfig:
    """Sizes of the baseline."""

    num_layers: int = option(3, help="layers of the LSTM")
    hidden_size: int = option(256, help="hidden size of each layer")
    symbol_bits: int | None = option(None, help="bits per symbol; null: the fewest that hold the vocabulary")

    def __post_init__(self) -> None:
        require_positive("model", num_layers=self.num_layers, hidden_size=self.hidden_size)
        check_symbol_bits(self.symbol_bits)

    def shrink(self) -> StackedLSTMConfig:
        return replace(self, num_layers=min(self.num_layers, 2), hidden_size=12)


@dataclass
class StackMemory(Memory):
    """The states after reading the source."""

    states: States  # by layer: [B, 2, H]
    output: OutputLayer  # over the shortlist, if there is one


@dataclass
class StackState(DecoderState):
    """The states of each hypothesis."""

    states: States  # by layer: [N, 2, H]


class TrainedStart(LSTMLayer):
    """An LSTM layer with a learned initial state."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)
        self.first = nn.Parameter(torch.zeros(2, hidden_size))

    def zeros(self, rows: int, like: Tensor) -> Tensor:
        return self.first.expand(rows, -1, -1)


@models.register("stacked_lstm", StackedLSTMConfig)
class StackedLSTM(EncoderDecoder):
    """Each layer sees the input and the layer below; the output layer sees all layers (Graves, arXiv:1308.0850)."""

    def __init__(self, config: StackedLSTMConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        size = self.width = config.hidden_size
        self.source_embedding, self.target_embedding, channels = binary_embeddings(sizes, config.symbol_bits)
        inputs = [channels, *[channels + size] * (config.num_layers - 1)]
        self.layers = nn.ModuleList(TrainedStart(given, size) for given in inputs)
        self.output = binary_output(config.num_layers * size, sizes.target, config.symbol_bits)

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        def over_sentences(layer: RecurrentLayer, x: Tensor, _: int) -> tuple[Tensor, Tensor]:
            return layer.over_sentences(x, source_lengths)

        _, states = self._stack(self.source_embedding(source), over_sentences)
        return StackMemory(states, self.output)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, StackMemory)
        outputs, _ = self._answer(batch.target_in, memory.states)
        hidden = real_rows(outputs, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, D]
        return DecoderOutput(hidden, AttentionMaps({}) if attention else None)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, StackMemory)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        states = tuple(state.repeat_interleave(beam_size, dim=0) for state in memory.states)
        return replace(memory, output=output), StackState(states)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, StackMemory) and isinstance(state, StackState)
        outputs, states = self._answer(tokens[:, None], state.states)
        return StepOutput(memory.output.logits(outputs[:, 0]), False, StackState(states))

    def _answer(self, tokens: Tensor, states: States) -> tuple[Tensor, States]:
        """Run the layers on target tokens from these states. [N, T] -> [N, T, D]. Only bos is an input."""
        inputs = self.target_embedding(tokens) * (tokens == BOS)[..., None]
        return self._stack(inputs, lambda layer, x, number: layer(x, states[number]))

    def _stack(
        self, inputs: Tensor, run: Callable[[RecurrentLayer, Tensor, int], tuple[Tensor, Tensor]]
    ) -> tuple[Tensor, States]:
        """Run all layers. [N, T, E] -> [N, T, D], and the last state of each layer."""
        outputs: list[Tensor] = []
        states = []
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, RecurrentLayer)
            output, state = run(layer, torch.cat([inputs, *outputs[-1:]], dim=-1), number)
            outputs.append(output)
            states.append(state)
        return torch.cat(outputs, dim=-1), tuple(states)
