"""Every registered model and every preset, and what no preset uses, in small sizes, under every law."""

from __future__ import annotations

import pytest

from nmt.models.lstm import AttentionKind, LSTMConfig, ReadoutKind
from nmt.models.transformer import NormOrder, PositionKind, TransformerConfig
from nmt.testing import conformance
from nmt.testing.conformance import Subject

VARIANTS = (
    Subject("transformer_pre_norm", TransformerConfig(norm=NormOrder.pre).shrink()),
    Subject("transformer_learned_positions", TransformerConfig(positions=PositionKind.learned).shrink()),
    Subject("transformer_free_heads", TransformerConfig(d_k=8, d_v=64, attention_bias=True).shrink()),
    Subject(
        "transformer_nothing_shared",
        TransformerConfig(share_all_embeddings=False, share_decoder_embeddings=False).shrink(),
    ),
    Subject("transformer_shared_output", TransformerConfig(share_all_embeddings=False).shrink()),
    Subject(
        "transformer_every_dropout",
        TransformerConfig(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1).shrink(),
    ),
    Subject("lstm_without_attention", LSTMConfig(attention=AttentionKind.none).shrink()),
    Subject("lstm_deep_reversed", LSTMConfig(num_layers=3, reverse_source=True, readout=ReadoutKind.tanh).shrink()),
    Subject("lstm_both_ways_reversed", LSTMConfig(bidirectional=True, reverse_source=True).shrink()),
)


@pytest.mark.parametrize("law", conformance.LAWS, ids=str)
@pytest.mark.parametrize("subject", [*conformance.subjects(), *VARIANTS], ids=str)
def test_the_model_obeys_the_law(subject: Subject, law: conformance.Law) -> None:
    law(subject)
