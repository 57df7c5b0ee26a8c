"""Pictures of runs and of attention (``nmt.reporting.plotting``), under the name that documents use."""

from __future__ import annotations

from nmt.reporting.attention_lines import LinesPanel, plot_attention_lines
from nmt.reporting.model_pictures import plot_embeddings, plot_positions
from nmt.reporting.picture import Picture
from nmt.reporting.plotting import AttentionPanel, plot_attention, plot_comparison, plot_learning_curve

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
