"""Attention guided by given word alignments: Chen et al. 2016, arXiv:1607.01628, with cross-entropy as the cost.

Shapes: B sentences, H heads, T target positions, S source positions, P aligned pairs of positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.criterions import Criterion, criterions
from nmt.criterions.cross_entropy import token_report, token_sums, weighted_auxiliary
from nmt.criterions.guided_alignment_config import GuidedAlignmentConfig
from nmt.data.batch import ALIGNMENTS
from nmt.errors import UsageError
from nmt.interface import AttentionMaps, AttentionRequest, Batch, EncoderDecoder, LossReport

_CROSS = "cross"


@criterions.register("guided_alignment", GuidedAlignmentConfig)
class GuidedAlignment(Criterion):
    """Cross-entropy of the targets, plus weight times that of the alignments under the attention; per target token.

    A target piece that is aligned to n source pieces gives each of them the share 1/n; one that is aligned to none does
    not take part. The attention that predicts a piece is compared with the alignment of that piece. A batch without
    alignments, of a validation split, has the loss of its targets alone.
    """

    asks_for_attention = True

    def __init__(self, config: GuidedAlignmentConfig) -> None:
        super().__init__()
        self._config = config

    def forward(self, model: EncoderDecoder, batch: Batch) -> LossReport:
        config, pairs = self._config, batch.extras.get(ALIGNMENTS)
        decoded = model(batch, None if pairs is None else AttentionRequest((_CROSS,)))
        loss, nll = token_sums(model, decoded.hidden, batch.targets, config.label_smoothing)
        auxiliary = weighted_auxiliary(config.auxiliary_weights, decoded, batch.num_tokens)
        if pairs is not None:
            aligned = _alignment_loss(self._attention(decoded.attention), pairs)
            auxiliary["alignment"] = config.alignment_weight * aligned
        return token_report(batch, loss, nll, auxiliary)

    def _attention(self, attention: AttentionMaps | None) -> Tensor:
        """[B, T, S] the mean over the heads that are guided."""
        layers = () if attention is None else attention.maps.get(_CROSS, ())
        if not layers:
            raise UsageError("criterion guided_alignment guides the attention to the source, and this model has none")
        layer = len(layers) if self._config.alignment_layer is None else self._config.alignment_layer
        if layer > len(layers):
            raise UsageError(
                f"criterion.alignment_layer={layer}, but the model reports attention of {len(layers)} decoder layers "
                f"(--alignment-layer)"
            )
        heads, maps = self._config.alignment_heads, layers[layer - 1]  # [B, H, T, S]
        if heads is not None and heads > maps.size(1):
            raise UsageError(
                f"criterion.alignment_heads={heads}, but the attention of layer {layer} has {maps.size(1)} "
                f"(--alignment-heads)"
            )
        return maps[:, :heads].mean(1)


def _alignment_loss(attention: Tensor, pairs: Tensor) -> Tensor:
    """The sum over target positions of - sum_s share * log attention; attention [B, T, S], pairs [P, 3]."""
    sentence, source, target = pairs.unbind(1)
    position = sentence * attention.size(1) + target  # [P]
    links = torch.zeros(attention.size(0) * attention.size(1), device=attention.device)
    shares = links.index_add_(0, position, torch.ones_like(position, dtype=links.dtype))[position].reciprocal()  # [P]
    chosen = attention[sentence, target, source].float()  # in half precision the logarithm of little is of nothing
    return -(shares * chosen.clamp(min=torch.finfo(torch.float32).tiny).log()).sum()
