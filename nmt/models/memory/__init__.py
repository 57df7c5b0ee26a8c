"""Models with a memory: memory networks, the Neural Turing Machine, the Neural GPU."""
