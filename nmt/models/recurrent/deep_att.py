"""Deep-Att, a deep recurrent model with fast-forward connections: Zhou et al. 2016, arXiv:1606.04199.

An LSTM layer is seen as two blocks: f_t = W x_t without recurrence, and the rest, which makes h_t of f_t and h_{t-1}. The
next layer reads [Half(f_t), h_t], so that half of f reaches the top without ever passing a non-linearity or a recurrence
(section 3.1).

Shapes: B sentences, N hypotheses, S source positions, T target positions, I inputs, E embedding, H hidden size, C width of
what the attention reads.
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
    Advanced,
    AttendedMemory,
    AttentiveRecurrent,
    DecoderStack,
    StackState,
    asking_and_reading,
)
from nmt.models.recurrent.config import DeepAttConfig
from nmt.models.recurrent.layers import LSTMLayer, read


class FastForward(nn.Module):
    """What a layer hands on beside its states. f_t has 4 H numbers, one for each gate."""

    def __init__(self, layer: LSTMLayer, dropout: float) -> None:
        super().__init__()
        self.layer = layer
        self.dropout = Dropout(dropout)

    def passed_on(self, x: Tensor, states: Tensor) -> Tensor:
        """[Half(f), Dr(h)] of the layer's input [N, T, I] and its states [N, T, H]: [N, T, 3H]"""
        half = self.layer.of_input(x, 2 * self.layer.hidden_size)
        return torch.cat([half, self.dropout(states)], dim=-1)


class FastForwardColumn(nn.Module):
    """A stack over the source whose direction changes with every layer."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, dropout: float, backwards: bool) -> None:
        super().__init__()
        inputs = [input_size, *[3 * hidden_size] * (num_layers - 1)]
        self.layers = Layers(FastForward(LSTMLayer(width, hidden_size), dropout) for width in inputs)
        self.backwards = backwards

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """[B, S, I] -> [h, f] of the top layer, [B, S, 5H] (padding may hold anything)."""
        for number, layer in enumerate(self.layers):
            given = x
            states, _ = read(layer.layer, given, lengths, backwards=self.backwards == (number % 2 == 0))
            x = layer.passed_on(given, states)
        return torch.cat([states, layer.layer.of_input(given)], dim=-1)


class Encoder(nn.Module):
    """Two columns whose directions alternate in opposite order, seen through W_p: section 3.2."""

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        sizes = config.embedding_size, config.hidden_size, config.encoder_layers
        self.columns = nn.ModuleList(FastForwardColumn(*sizes, config.dropout, way) for way in (False, True))
        self.projection = nn.Linear(10 * config.hidden_size, config.memory_size, bias=False)

    def forward(self, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, None]:
        """[B, S, E] -> [B, S, C]; the last states say nothing more."""
        return self.projection(torch.cat([column(embedded, lengths) for column in self.columns], dim=-1)), None


class Decoder(DecoderStack):
    """One column. The bottom layer's state asks for the context that is part of its next input; the rest sees f and h.

    So only the bottom layer has to take one position after the other.
    """

    def __init__(self, config: DeepAttConfig) -> None:
        super().__init__()
        size = config.hidden_size
        inputs = [config.embedding_size + config.memory_size, *[3 * size] * (config.decoder_layers - 1)]
        self.layers = Layers(FastForward(LSTMLayer(width, size), config.dropout) for width in inputs)
        self.attention = AdditiveAttention(size, config.memory_size)

    def recurrent(self) -> Iterable[LSTMLayer]:
        return (layer.layer for layer in self.layers)

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> Advanced:
        """The readout is [Half(f), h] of the top layer."""
        bottom, *upper = self.layers
        before, *above = state.layers
        given, hidden, weights, behind = asking_and_reading(bottom.layer, self.attention, embedded, source, before)
        x, after = bottom.passed_on(given, hidden), [behind]
        for layer, before in zip(upper, above):
            hidden, behind = layer.layer(x, before)
            x = layer.passed_on(x, hidden)
            after.append(behind)
        return x, weights, StackState(tuple(after))


@models.register("deep_att", DeepAttConfig)
class DeepAtt(AttentiveRecurrent):
    """Interleaved columns of LSTMs; half of every layer's feed-forward block goes on untouched."""

    def __init__(self, config: DeepAttConfig, sizes: VocabularySizes) -> None:
        source, target = (Embedding(count, config.embedding_size) for count in (sizes.source, sizes.target))
        super().__init__(source, target, config.dropout)
        self.output = LinearOutput.with_bias(3 * config.hidden_size, sizes.target)
        self.width = config.hidden_size
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
