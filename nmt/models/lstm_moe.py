"""LSTMs with a mixture of experts between them: Shazeer et al. 2017, arXiv:1701.06538, section 5.3 and appendices D and E.

GNMT cut down to three encoder and two decoder layers, with a sparsely gated mixture in each. Shapes: B sentences, K beam,
N = B*K hypotheses, S source positions, T target positions, M real target positions, D width of everything, E experts,
V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from nmt.config.option import option
from nmt.config.sections import require_not_negative, require_positive
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
from nmt.modules.dropout import Dropout
from nmt.modules.embeddings import Embedding
from nmt.modules.experts import Experts, NoisyTopK, balance, tokens_by_sentence
from nmt.modules.padding import padding_bias, real_rows
from nmt.modules.recurrent import OneWay, ProjectedLSTMLayer, States, Summed
from nmt.modules.recurrent_attention import ProductAttention


@dataclass
class LSTMMoEConfig:
    """Sizes; the defaults are the paper's flat mixture."""

    width: int = option(512, help="width of embeddings, outputs of layers, experts and attention")
    cell_size: int = option(2048, help="width of the cells, projected to `width`")
    num_experts: int = option(32, help="experts in each of the two mixtures")
    experts_per_token: int = option(4, help="experts that read each token")
    expert_size: int = option(2048, help="inner width of an expert")
    importance_weight: float = option(0.01, help="weight of the loss that evens out the experts' importance")
    load_weight: float = option(0.01, help="weight of the loss that evens out the experts' load")
    dropout: float = option(0.4, help="dropout of every layer's output and of the embeddings", flag="--dropout")

    def __post_init__(self) -> None:
        require_positive("model", width=self.width, cell_size=self.cell_size, num_experts=self.num_experts)
        require_positive("model", experts_per_token=self.experts_per_token, expert_size=self.expert_size)
        require_not_negative("model", importance_weight=self.importance_weight, load_weight=self.load_weight)
        if not 0.0 <= self.dropout < 1.0:
            raise UsageError(f"model.dropout={self.dropout} must be at least 0 and less than 1")
        if self.experts_per_token > self.num_experts:
            raise UsageError(
                f"experts_per_token={self.experts_per_token} is more than num_experts={self.num_experts}; lower it"
            )
        if self.width >= self.cell_size:
            raise UsageError(
                f"cell_size={self.cell_size} must be more than width={self.width}, to which it is projected"
            )

    def shrink(self) -> LSTMMoEConfig:
        """The same structure in small sizes, for tests."""
        experts = min(self.num_experts, 5)
        return replace(
            self,
            width=10,
            cell_size=14,
            num_experts=experts,
            experts_per_token=min(self.experts_per_token, experts, 2),
            expert_size=8,
        )


@dataclass
class LSTMMoEMemory(Memory):
    """What the encoder read, and how its mixture was used."""

    states: Tensor  # [B, S, D]
    keys: Tensor  # [B, S, D]
    bias: Tensor  # [B, 1, S] 0 at real positions, -inf at padding
    usage: Tensor  # [B, 2, E] importance and load of each expert, summed over the sentence
    output: OutputLayer  # over the shortlist, if there is one


@dataclass
class LSTMMoEState(DecoderState):
    """The states of both decoder layers; the bottom one's output asks for the next context."""

    layers: States  # [N, 1, D + cell]


class Mixture(nn.Module):
    """x + Dropout(sigmoid(MoE(x))): appendix E puts a sigmoid before the residual sum."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        self.gating = NoisyTopK(config.width, config.num_experts, config.experts_per_token)
        self.experts = Experts(config.width, config.expert_size, config.num_experts)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [n, D] -> [n, D], and each token's part [n, 2, E] in the experts' importance and load."""
        routing = self.gating(x)
        mixed = self.dropout.add(x, torch.sigmoid(self.experts(x, routing)))
        return mixed, torch.stack([routing.gates, routing.load], dim=1)


class Encoder(nn.Module):
    """Two layers, the mixture, and a third layer; residual sums around all of them. The first reads in both directions."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        width, cell = config.width, config.cell_size
        both = Summed(ProjectedLSTMLayer(width, cell, width), ProjectedLSTMLayer(width, cell, width))
        self.below = nn.ModuleList([both, OneWay(ProjectedLSTMLayer(width, cell, width))])
        self.mixture = Mixture(config)
        self.above = OneWay(ProjectedLSTMLayer(width, cell, width))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """[B, S, D] -> states [B, S, D] (padding may hold anything), usage [B, 2, E]"""
        for layer in self.below:
            x = self.dropout.add(x, layer(x, lengths)[0])
        real = torch.arange(x.size(1), device=x.device) < lengths[:, None]  # [B, S]
        mixed, used = self.mixture(x[real])
        x = x.masked_scatter(real[:, :, None], mixed)
        return self.dropout.add(x, self.above(x, lengths)[0]), tokens_by_sentence(used, lengths)


class Decoder(nn.Module):
    """A layer, the mixture, and a layer that sees the context which the bottom one's last output asked for."""

    def __init__(self, config: LSTMMoEConfig) -> None:
        super().__init__()
        width, cell = config.width, config.cell_size
        self.bottom = ProjectedLSTMLayer(width, cell, width)
        self.mixture = Mixture(config)
        self.top = ProjectedLSTMLayer(2 * width, cell, width)
        self.attention = ProductAttention(width, width)
        self.dropout = Dropout(config.dropout)

    def start(self, memory: LSTMMoEMemory, rows: int) -> States:
        return (self.bottom.zeros(rows, memory.states), self.top.zeros(rows, memory.states))

    def forward(
        self, embedded: Tensor, memory: LSTMMoEMemory, layers: States, real: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor, States]:
        """embedded [N, T, D] -> top states [N, T, D], weights [B, N/B * T, S], usage [n, 2, E], the next states.

        ``real`` [N, T]: the mixture reads these n positions alone.
        """
        states, bottom = self.bottom(embedded, layers[0])
        asking = torch.cat([self.bottom.output_of(layers[0])[:, None], states[:, :-1]], dim=1)
        queries = asking.reshape(memory.states.size(0), -1, asking.size(-1))  # [B, N/B * T, D]
        contexts, weights = self.attention(queries, memory.keys, memory.states, memory.bias)
        x = self.dropout.add(embedded, states)
        mixed, used = self.mixture(x[real])
        x = x.masked_scatter(real[:, :, None], mixed)
        states, top = self.top(torch.cat([x, contexts.view_as(x)], dim=-1), layers[1])
        return self.dropout.add(x, states), weights, used, (bottom, top)


@models.register("lstm_moe", LSTMMoEConfig)
class LSTMMoE(EncoderDecoder):
    """Recurrent layers, and between them a few of many feed-forward networks for each token."""

    shapes_depend_on_tokens = True  # how many tokens an expert reads

    def __init__(self, config: LSTMMoEConfig, sizes: VocabularySizes) -> None:
        super().__init__()
        self.width = config.width
        self.importance_weight, self.load_weight = config.importance_weight, config.load_weight
        self.source_embedding = Embedding(sizes.source, config.width)
        self.target_embedding = Embedding(sizes.target, config.width)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        output = nn.Linear(config.width, sizes.target)
        self.output = LinearOutput(output.weight.detach(), output.bias.detach())

    def encode(self, source: Tensor, source_lengths: Tensor) -> LSTMMoEMemory:
        states, usage = self.encoder(self.dropout(self.source_embedding(source)), source_lengths)
        bias = padding_bias(source_lengths, source.size(1), states.dtype)[:, None]  # [B, 1, S]
        return LSTMMoEMemory(states, self.decoder.attention.project(states), bias, usage, self.output)

    def decode(self, memory: Memory, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        assert isinstance(memory, LSTMMoEMemory)
        embedded = self.dropout(self.target_embedding(batch.target_in))
        real = torch.arange(embedded.size(1), device=embedded.device) < batch.target_lengths[:, None]
        first = self.decoder.start(memory, embedded.size(0))
        hidden, weights, used, _ = self.decoder(embedded, memory, first, real)
        hidden = real_rows(hidden, batch.target_lengths, batch.target_offsets, batch.num_tokens)  # [M, D]
        usage = torch.stack([memory.usage.sum(0), used.sum(0)])  # [layers, 2, E]
        auxiliary = balance(usage, self.importance_weight, self.load_weight)
        if attention is None:
            return DecoderOutput(hidden, auxiliary=auxiliary)
        assert weights is not None
        maps = {"cross": (weights[:, None],)} if "cross" in attention.kinds else {}
        return DecoderOutput(hidden, AttentionMaps(maps), auxiliary)

    def start(self, memory: Memory, beam_size: int, vocabulary: Tensor | None = None) -> tuple[Memory, DecoderState]:
        assert isinstance(memory, LSTMMoEMemory)
        output = self.output if vocabulary is None else self.output.restrict(vocabulary)
        layers = self.decoder.start(memory, memory.states.size(0) * beam_size)
        return replace(memory, output=output), LSTMMoEState(layers)

    def step(self, tokens: Tensor, memory: Memory, state: DecoderState, attention: bool = False) -> StepOutput:
        assert isinstance(memory, LSTMMoEMemory) and isinstance(state, LSTMMoEState)
        embedded = self.dropout(self.target_embedding(tokens))[:, None]  # [N, 1, D]
        real = torch.ones_like(tokens, dtype=torch.bool)[:, None]
        hidden, weights, _, layers = self.decoder(embedded, memory, state.layers, real)
        scores = memory.output.logits(hidden[:, 0])
        asked = weights.flatten(0, 1) if attention and weights is not None else None  # [N, S]
        return StepOutput(scores, False, LSTMMoEState(layers), asked)
