"""The last linear map with packed weights, for translating.

Shapes: B sentences, K beam, N = B*K hypotheses, D width of the hidden states, V vocabulary, V' a part of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from torch import Tensor

from nmt.config.choices import NumberFormat
from nmt.data.vocabulary import PAD
from nmt.interface import EncoderDecoder, OutputLayer, Scoring
from nmt.models.output_layers import LinearOutput, TiedOutput
from nmt.modules.packed import pack_linear_layers
from nmt.native.packing import OwnMatrices, Packed, rounds_rows
from nmt.trees import RowTree

logger = logging.getLogger("nmt.translation")


class PackedOutput(OutputLayer):
    """A matrix [V, D], with or without bias [V]."""

    def __init__(self, weight: Tensor, bias: Tensor | None, number_format: NumberFormat) -> None:
        super().__init__()
        self.packed = Packed(weight, bias, number_format)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.packed(hidden)

    def restrict(self, vocabulary: Tensor) -> Scoring:
        filling = vocabulary == PAD
        filling[..., 0] = False  # the pad itself may stand first
        if vocabulary.dim() == 2:
            return OwnVocabularies(OwnMatrices.of(self.packed, vocabulary, filling))
        return OneVocabulary(OwnMatrices.of(self.packed, vocabulary[None], filling[None]))

    def linear(self) -> None:
        return None


@dataclass
class OwnVocabularies(RowTree):
    """A linear map for each sentence, over a vocabulary of its own. Lives in a memory: sentences leave it."""

    matrices: OwnMatrices

    def logits(self, hidden: Tensor) -> Tensor:
        return self.matrices(hidden)


class OneVocabulary:
    """A linear map over a part of the vocabulary, for all sentences."""

    def __init__(self, matrices: OwnMatrices) -> None:
        self._matrices = matrices

    def logits(self, hidden: Tensor) -> Tensor:
        return self._matrices(hidden)


def pack_model(model: EncoderDecoder, number_format: NumberFormat) -> None:
    """Pack the linear layers of a model in place; it translates from then on, and cannot be trained."""
    if rounds_rows(number_format) and not model.takes_rounded_rows:
        logger.warning(
            f"in {number_format.value} this model's scores would depend on a sentence's batch; it translates in float32"
        )
        number_format = NumberFormat.float32
    pack_linear_layers(model, number_format)
    model.scores_at_once = not rounds_rows(number_format)
    output = model.output
    if type(output) in (LinearOutput, TiedOutput) and (parts := output.linear()) is not None:
        weight, bias = parts
        model.output = PackedOutput(weight, bias, number_format)
