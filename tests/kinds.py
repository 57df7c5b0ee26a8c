"""One subject of each kind of model, and which of them can be recorded: found once for all tests of a process."""

from __future__ import annotations

import torch

from nmt.engines.graphs import fixed_steps
from nmt.testing.subjects import kinds

KINDS = kinds()
RECORDED = [one for one in KINDS if fixed_steps(one.built, torch.device("cpu"))]
