"""Google's neural machine translation system, GNMT: Wu et al. 2016, arXiv:1609.08144, section 3.

Shapes: B sentences, K beam, N = B*K hypotheses, S source positions, T target positions, M real target positions,
E embedding, H hidden size, C width of the encoder's states, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config.option import option
from nmt.config.sections import require_positive
from nmt.errors import UsageError
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
from nmt.models import models
from nmt.models.output_layers import LinearOutput
from nmt.models.recurrent_parts import initialise
from nmt.modules.dropout import Dropout
from nmt.modules.embeddings import Embedding
from nmt.modules.padding import padding_bias, real_rows
from nmt.modules.recurrent import Concatenated, LSTMLayer, OneWay, RecurrentEncoder, States, is_residual
from nmt.modules.recurrent_attention import AdditiveAttention


@dataclass
class GNMTConfig:
    """Sizes; the defaults are those of the paper."""

    encoder_layers: int = option(8, help="LSTM layers of the encoder; the first reads in both directions")
    decoder_layers: int = option(8, help="LSTM layers of the decoder")
    embedding_size: int = option(1024, help="width of the embeddings")
    hidden_size: int = option(1024, help="width of every layer, and of each direction of the first one")
    residual_from: int = option(3, help="first layer, counted from 1, whose input is added to its output")
    init_range: float = option(0.04, help="every parameter starts uniformly within plus and minus this")
    dropout: float = option(0.2, help="dropout of every layer's input and before the output layer", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", encoder_layers=self.encoder_layers, decoder_layers=self.decoder_layers)
        require_positive("model", embedding_size=self.embedding_size, hidden_size=self.hidden_size)
        require_positive("model", residual_from=self.residual_from, init_range=self.init_range)
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(f"model.dropout={self.dropout} must be at least 0 and less than 1")
        if self.residual_from < 3:
            raise UsageError(
                f"residual_from={self.residual_from} would add inputs of another width: layer 1 reads embeddings, layer 2 "
                f"both directions; use 3 or more"
            )

    def shrink(self) -> GNMTConfig:
        """The same structure in small sizes, for tests."""
        return replace(
            self,
            encoder_layers=min(self.encoder_layers, 4),
            decoder_layers=min(self.decoder_layers, 4),
            embedding_size=10,
            hidden_size=12,
        )


@dataclass
class GNMTMemory(Memory):
    """The states of the top encoder layer, and what the attention needs of them."""

    states: Tensor  # [B, S, C]
    keys: Tensor  # [B, S, H]
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    output: OutputLayer  # over the shortlist, if there is one


@dataclass
class GNMTState(DecoderState):
    """The states of all decoder layers; the bottom one's output asks for the next context."""

    layers: States  # [N, 2, H]


class Decoder(nn.Module):
    """A bottom layer that sees the target alone and asks, and upper layers that all see the context.

    The context a_i is asked for by y_{i-1}, the bottom layer's output at the step before (equation 4), "sent directly to
    all the remaining decoder layers" and concatenated to their inputs. The bottom layer never sees a context, so
    training needs no loop over positions.
    """

    def __init__(self, config: GNMTConfig, states_size: int) -> None:
        super().__init__()
        size, upper = config.hidden_size, config.decoder_layers - 1
        self.bottom = LSTMLayer(config.embedding_size, size)
        self.upper = nn.ModuleList(LSTMLayer(size + states_size, size) for _ in range(upper))
        self.attention = AdditiveAttention(size, states_size)
        self.dropout = Dropout(config.dropout)
        self.residual_from = config.residual_from

    def start(self, memory: GNMTMemory, rows: int) -> States:
        """Nothing but zeros: the source comes in through attention."""
        layer = memory.states.new_zeros(rows, 2, self.bottom.hidden_size)
        return (layer, *(torch.zeros_like(layer) for _ in self.upper))

    def forward(self, embedded: Tensor, memory: GNMTMemory, layers: States) -> tuple[Tensor, Tensor | None, States]:
        """embedded [N, T, E] -> top states [N, T, H], weights [B, N/B * T, S], and the states after the last position."""
        asking = layers[0][:, :1]  # [N, 1, H]
        x, bottom = self.bottom(embedded, layers[0])
        queries = torch.cat([asking, x[:, :-1]], dim=1)  # y_{i-1}
        queries = queries.reshape(memory.states.size(0), -1, queries.size(-1))  # [B, N/B * T, H]
        contexts, weights = self.attention(queries, memory.keys, memory.states, memory.bias)
        contexts = contexts.view(*x.shape[:2], -1)  # [N, T, C]
        after = [bottom]
        for number, (layer, state) in enumerate(zip(self.upper, layers[1:]), 2):
            output, state = layer(torch.cat([self.dropout(x), contexts], dim=-1), state)
            x = output + x if is_residual(number, self.residual_from) else output
            after.append(state)
        return self.dropout(x), weights, tuple(after)


@models.register("gnmt", GNMTConfig)
class GNMT(EncoderDecoder):
    """Deep stacks of LSTMs with residual connections, one attention between them."""

    def __init__(self, config: GNMTConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        size = config.hidden_size
        self.width = size
        self.source_embedding = Embedding(sizes.source, config.embedding_size)
        self.target_embedding = Embedding(sizes.target, config.embedding_size)
        self.dropout = Dropout(config.dropout)
        first = Concatenated(LSTMLayer(config.embedding_size, size), LSTMLayer(config.embedding_size, size))
        inputs = [2 * size, *[size] * (config.encoder_layers - 2)][: config.encoder_layers - 1]
        rest = [OneWay(LSTMLayer(width, size)) for width in inputs]
        self.encoder = RecurrentEncoder([first, *rest], config.dropout, config.residual_from)
        self.decoder = Decoder(config, states_size=size if rest else 2 * size)
        output = nn.Linear(size, sizes.target)
        self.output = LinearOutput(output.weight.detach(), output.bias.detach())
        initialise(self, config.init_range)

    def encode(self, source: Tensor, source_lengths: Tensor) -> GNMTMemory:
        states, _ = self.encoder(self.dropout(self.source_embedding(source)), source_lengths)
        bias = padding_bias(source_lengths, source.size(1), states.dtype)[:, None]  # [B, 1, S]
        return GNMTMemory(states, self.decoder.attention.project(states), bias, self.output)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, GNMTMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        hidden, weights, _ = self.decoder(embedded, memory, self.decoder.start(memory, embedded.size(0)))
        hidden = real_rows(hidden, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, H]
        if attention is None:
            return DecoderOutput(hidden)
        return DecoderOutput(
            hidden, AttentionMaps({"cross": (weights[:, None],)} if "cross" in attention.kinds else {})
        )

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, GNMTMemory)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        layers = self.decoder.start(memory, memory.states.size(0) * beam_size)
        return replace(memory, output=output), GNMTState(layers)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, GNMTMemory) and isinstance(state, GNMTState)
        embedded = self.dropout(self.target_embedding(tokens))[:, None]  # [N, 1, E]
        hidden, weights, layers = self.decoder(embedded, memory, state.layers)
        scores = memory.output.logits(hidden[:, 0])
        return StepOutput(scores, False, GNMTState(layers), weights.flatten(0, 1) if attention else None)
