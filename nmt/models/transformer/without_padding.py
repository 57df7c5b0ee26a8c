"""Training on real positions alone, where the device has an attention kernel for batches without padding.

Shapes: B sentences, S source positions, T target positions, M real positions of a side, D model width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from nmt.interface import AttentionRequest, Batch, DecoderOutput, EncoderDecoder
from nmt.layers.embeddings import InputLayer
from nmt.models.transformer.attention_kernels import knows_flat_batches
from nmt.models.transformer.layers import Record
from nmt.models.transformer.mask import FlatMask, Room, Segments

if TYPE_CHECKING:
    from nmt.models.transformer.transformer import Decoder, Encoder


class WithoutPadding(EncoderDecoder):
    """An encoder and a decoder whose layers may be able to do without padding."""

    source_input: InputLayer
    target_input: InputLayer
    encoder: Encoder
    decoder: Decoder
    few_shapes = False  # set it: rather compute a little for nothing than meet another shape

    def forward(self, batch: Batch, attention: AttentionRequest | None = None) -> DecoderOutput:
        if attention is None and self.without_padding(batch.source.device):
            return self._forward_flat(batch)
        return super().forward(batch, attention)

    def without_padding(self, device: torch.device) -> bool:
        """Whether it trains without padding there, under the autocast of now."""
        return knows_flat_batches(device) and all(layer.flat for layer in (*self.encoder.layers, *self.decoder.layers))

    def _forward_flat(self, batch: Batch) -> DecoderOutput:
        self.source_input.positions.check_length(batch.source.size(1), "source")
        self.target_input.positions.check_length(batch.target_in.size(1), "target")
        longest, counts = (batch.source.size(1), batch.target_in.size(1)), (batch.num_source_tokens, batch.num_tokens)
        room = Room.for_sides(counts, longest, batch.num_sentences) if self.few_shapes else None
        source = Segments.of(batch.source_lengths, batch.source_offsets, longest[0], counts[0], room)
        target = Segments.of(batch.target_lengths, batch.target_offsets, longest[1], counts[1], room)
        x = _flat(self.source_input, batch.source, source)
        states = self.encoder(x, next(iter(self.encoder.layers)).self_attention.flat_mask(source), Record())
        y = _flat(self.target_input, batch.target_in, target)
        mask = next(iter(self.decoder.layers)).self_attention.flat_mask(target)
        y = self.decoder(y, mask, states, FlatMask(None, queries=target, keys=source), Record())
        return DecoderOutput(y[0, : target.count])


def _flat(layer: InputLayer, ids: Tensor, segments: Segments) -> Tensor:
    """[B, T] -> [1, M, D]"""
    return layer.at(segments.flatten(ids), segments.places.queries, segments.longest)[None]
