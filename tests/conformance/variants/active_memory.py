"""What no preset of the memory network and of the Neural GPU uses."""

from __future__ import annotations

from nmt.models.memory.config import MemoryNetworkConfig, NeuralGPUConfig, SlotPositions
from nmt.testing.conformance import Subject

VARIANTS = (
    Subject(
        "memory_network_one_hop", MemoryNetworkConfig(num_hops=1, places=SlotPositions.start, num_layers=2).shrink()
    ),
    Subject("neural_gpu_narrow_and_flat", NeuralGPUConfig(height=1, num_convs=1, width_a=1.0, width_b=4).shrink()),
)
