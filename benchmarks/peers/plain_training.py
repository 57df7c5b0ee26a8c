"""Run nmt-train in plain float32, with torch's dropout, attention and cross-entropy instead of ours.

python benchmarks/peers/plain_training.py CORPUS ... (as nmt-train)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.criterions import cross_entropy
from nmt.layers import dropout
from nmt.layers.linear_cross_entropy import smoothed_cross_entropy
from nmt.models.transformer import attention_kernels
from nmt_cli.train import main


def all_scores_at_once(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float,
    product_type: object,
    weights: Tensor | None,
) -> tuple[Tensor, Tensor]:
    assert product_type is None
    return smoothed_cross_entropy(F.linear(hidden, weight, bias), targets, label_smoothing, weights)


if __name__ == "__main__":
    replaced = ((dropout, "_has_cheap_bytes"), (attention_kernels, "LONG"), (cross_entropy, "linear_cross_entropy"))
    assert all(hasattr(module, name) for module, name in replaced), "they are called otherwise now"
    dropout._has_cheap_bytes = lambda x: False
    attention_kernels.LONG = {torch.float32: 0}
    cross_entropy.linear_cross_entropy = all_scores_at_once
    main()
