"""Pictures of runs, attention and models, under the import path that the documents use."""

from __future__ import annotations

from nmt.reporting.attention_pictures import AttentionPanel, LinesPanel, plot_attention, plot_attention_lines
from nmt.reporting.curves import plot_comparison, plot_learning_curve
from nmt.reporting.model_pictures import plot_embeddings, plot_positions
from nmt.reporting.picture import Picture

__all__ = [
    "AttentionPanel",
    "LinesPanel",
    "Picture",
    "plot_attention",
    "plot_attention_lines",
    "plot_comparison",
    "plot_embeddings",
    "plot_learning_curve",
    "plot_positions",
]
