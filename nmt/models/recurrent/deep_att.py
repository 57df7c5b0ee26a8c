"""Deep-Att, a deep recurrent model with fast-forward connections: Zhou et al. 2016, arXiv:1606.04199.

An LSTM layer consists of f_t = W x_t, without recurrence, and the recurrence from f_t and h_{t-1} to h_t. The next layer
reads [Half(f_t), h_t], so that half of f reaches the top without a non-linearity or a recurrence (section 3.1).

Shapes: B sentences, N hypotheses, S source positions, T target positions, I inputs, E embedding, H hidden size, C width of
the encoder output.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from nmt.data.vocabulary import VocabularySizes
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.recurrent_attention import AdditiveAttention
from nmt.layers.stack import Layers
from nmt.models import models
from nmt.models.output_layers import LinearOutput
from nmt.models.recurrent.attentive_recurrent import (
    AttendedMemory,
    AttentiveRecurrent,
    DecoderResult,
    DecoderStack,
    StackState,
    run_with_own_context,
)
from nmt.models.recurrent.config import DeepAttConfig
from nmt.models.recurrent.layers import LSTMLayer, read


class FastForward(nn.Module):
    """An LSTM layer with its fast-forward connection. f_t has 4 H components, H for each gate."""

    def __init__(self, layer: LSTMLayer, dropout: float) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = Dropout(dropout)

    def output(self, x: Tensor, states: Tensor) -> Tensor:
        """The layer's input [N, T, I] and states [N, T, H] -> [Half(f), dropout(h)] [N, T, 3H]"""
        half = self.layer.of_input(x, 2 * self.layer.hidden_size)
        return torch.cat([half, self.dropout(states)], dim=-1)


class FastForwardColumn(nn.Module):
    """A stack over the source whose layers alternate in direction."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, dropout: float, backwards: bool) -> None:
        super().__init__()
        inputs = [input_size, *[3 * hidden_size] * (num_layers - 1)]
        self.layers = Layers(FastForward(LSTMLayer(width, hidden_size), dropout) for width in inputs)
        self.backwards = backwards

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[B, S, I] -> [h, f] of the top layer, [B, S, 5H] arbitrary at padding."""
        for number, layer in enumerate(self.layers):
            inputs = x
            states, _ = read(layer.layer, inputs, lengths, backwards=self.backwards == (number % 2 == 0))
            x = layer.output(inputs, states)
        return torch.cat([states, layer.layer.of_input(inputs)], dim=-1)


class Encoder(nn.Module):
    """Two columns with opposite directions in each layer, projected by W_p: section 3.2."""

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        sizes = config.embedding_size, config.hidden_size, config.encoder_layers
        self.columns = nn.ModuleList(
            FastForwardColumn(*sizes, config.dropout, backwards) for backwards in (False, True)
        )
        self.projection = nn.Linear(10 * config.hidden_size, config.memory_size, bias=False)

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        """[B, S, E] -> [B, S, C]; there is no second result."""
        return self.projection(torch.cat([column(embedded, lengths) for column in self.columns], dim=-1)), None


class Decoder(DecoderStack):
    """One column. The bottom layer's state is the query for the context in its next input.

    So only the bottom layer runs position by position.
    """

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        size = config.hidden_size
        inputs = [config.embedding_size + config.memory_size, *[3 * size] * (config.decoder_layers - 1)]
        self.layers = Layers(FastForward(LSTMLayer(width, size), config.dropout) for width in inputs)
        self.attention = AdditiveAttention(size, config.memory_size)

    def recurrent(self) -> Iterable[LSTMLayer]:
        return (layer.layer for layer in self.layers)

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        """The output is [Half(f), h] of the top layer."""
        bottom, *upper = self.layers
        before, *above = state.layers
        inputs, hidden, weights, last = run_with_own_context(bottom.layer, self.attention, embedded, source, before)
        x, after = bottom.output(inputs, hidden), [last]
        for layer, before in zip(upper, above):
            hidden, last = layer.layer(x, before)
            x = layer.output(x, hidden)
            after.append(last)
        return x, weights, StackState(tuple(after))


@models.register("deep_att", DeepAttConfig)
class DeepAtt(AttentiveRecurrent):
    """Interleaved columns of LSTMs; half of every layer's projected input passes to the next layer."""

    def __init__(self, config: DeepAttConfig, sizes: VocabularySizes) -> None:
        source, target = (Embedding(count, config.embedding_size) for count in (sizes.source, sizes.target))
        super().__init__(source, target, config.dropout)
        self.output = LinearOutput.with_bias(3 * config.hidden_size, sizes.target)
        self.width = config.hidden_size
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
