"""Google's neural machine translation system, GNMT: Wu et al. 2016, arXiv:1609.08144, section 3.

Shapes: B sentences, N hypotheses, S source positions, T target positions, E embedding, H hidden size, C width of the
encoder's states.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from nmt.data.vocabulary import VocabularySizes
from nmt.layers.dropout import Dropout
from nmt.layers.embeddings import Embedding
from nmt.layers.recurrent_attention import AdditiveAttention
from nmt.layers.stack import Stack
from nmt.models import models
from nmt.models.output_layers import LinearOutput
from nmt.models.recurrent.attentive_recurrent import (
    AttendedMemory,
    AttentiveRecurrent,
    DecoderResult,
    DecoderStack,
    StackState,
    initialize,
)
from nmt.models.recurrent.config import GNMTConfig
from nmt.models.recurrent.layers import BidirectionalLayer, DirectedLayer, LSTMLayer, RecurrentEncoder, concatenated


class Decoder(DecoderStack):
    """A bottom layer over the target, whose outputs are the queries, and upper layers that read the context.

    The query of the context a_i is y_{i-1}, the bottom layer's output at the previous step (equation 4). The context is
    "sent directly to all the remaining decoder layers" and concatenated to their inputs. The bottom layer reads no context,
    so training needs no loop over positions.
    """

    def __init__(self, config: GNMTConfig, states_size: int) -> None:
        super().__init__()
        size, upper = config.hidden_size, config.decoder_layers - 1
        self.bottom = LSTMLayer(config.embedding_size, size)
        self.upper = Stack(LSTMLayer(size + states_size, size) for _ in range(upper))
        self.attention = AdditiveAttention(size, states_size)
        self.dropout = Dropout(config.dropout)
        self.residual_from = config.residual_from

    def recurrent(self) -> Iterable[LSTMLayer]:
        return self.bottom, *self.upper

    def forward(self, embedded: Tensor, source: AttendedMemory, state: StackState) -> DecoderResult:
        first_query = state.layers[0][:, :1]  # [N, 1, H]
        x, bottom = self.bottom(embedded, state.layers[0])
        queries = torch.cat([first_query, x[:, :-1]], dim=1)  # y_{i-1}
        queries = queries.reshape(source.states.size(0), -1, queries.size(-1))  # [B, N/B * T, H]
        contexts, weights = self.attention(queries, source.keys, source.states, source.bias)
        contexts = contexts.view(*x.shape[:2], -1)  # [N, T, C]
        after = [bottom]
        for number, (layer, before) in enumerate(zip(self.upper, state.layers[1:]), 2):
            output, last = layer(torch.cat([self.dropout(x), contexts], dim=-1), before)
            x = output + x if number >= self.residual_from else output
            after.append(last)
        return self.dropout(x), weights, StackState(tuple(after))


@models.register("gnmt", GNMTConfig)
class GNMT(AttentiveRecurrent):
    """Deep stacks of LSTMs with residual connections, one attention between them."""

    def __init__(self, config: GNMTConfig, sizes: VocabularySizes) -> None:
        size = config.hidden_size
        source, target = (Embedding(count, config.embedding_size) for count in (sizes.source, sizes.target))
        super().__init__(source, target, config.dropout)
        self.width = size
        self.output = LinearOutput.with_bias(size, sizes.target)
        onward, backward = (LSTMLayer(config.embedding_size, size) for _ in range(2))
        inputs = [2 * size, *[size] * (config.encoder_layers - 2)][: config.encoder_layers - 1]
        rest = [DirectedLayer(LSTMLayer(width, size)) for width in inputs]
        self.encoder = RecurrentEncoder(
            [BidirectionalLayer(onward, backward, concatenated), *rest], config.dropout, config.residual_from
        )
        self.decoder = Decoder(config, states_size=size if rest else 2 * size)
        initialize(self, config.init_range)
