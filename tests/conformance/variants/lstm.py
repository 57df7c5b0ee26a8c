"""What no preset of the recurrent model uses."""

from __future__ import annotations

from typing import Any

from nmt.models.recurrent.config import (
    AttentionKind,
    BridgeKind,
    CellKind,
    ContextPath,
    LSTMConfig,
    Merge,
    ReadoutKind,
)
from nmt.testing.conformance import Subject


def _variant(name: str, embedding_size: int = 256, **options: Any) -> Subject:
    """Embeddings and states of different widths, unless the variant needs them alike."""
    return Subject(f"lstm_{name}", LSTMConfig(embedding_size=embedding_size, **options).shrink())


VARIANTS = (
    _variant("deep_reversed", num_layers=3, reverse_source=True, readout=ReadoutKind.tanh),
    _variant("both_ways_reversed", bidirectional=True, reverse_source=True),
    _variant("summed_directions", bidirectional=True, merge=Merge.sum, num_layers=2),
    _variant("averaged_directions", bidirectional=True, merge=Merge.mean, cell=CellKind.gru, num_layers=2),
    _variant("context_to_the_input_alone", context=ContextPath.input, num_layers=2),
    _variant(
        "peeky_gru_fed_back", cell=CellKind.gru, peeky=True, context=ContextPath.feeding, readout=ReadoutKind.tanh
    ),
    _variant("window_on_dot", attention_window=3, context=ContextPath.both),
    _variant("window_on_additive", attention=AttentionKind.additive, attention_window=1),
    _variant("from_nothing", bridge=BridgeKind.zero, embedding_size=512, residual_from=1, num_layers=2),
    _variant("wide_encoder", encoder_size=1024, attention=AttentionKind.general, bridge=BridgeKind.dense, num_layers=2),
    _variant("all_shared", share_all_embeddings=True, readout=ReadoutKind.tanh, readout_size=256),
)
