"""What a fake GPU cannot have: NCCL, and the kernels that torch.compile makes. Ranks talk by gloo; compiled layers run as
traced."""

from nmt.devices.kinds import Cuda
from nmt.training.loop import compilation

Cuda.backend = "cpu:gloo,cuda:gloo"  # type: ignore[assignment, method-assign]
compilation.BACKEND = "aot_eager"
