"""Steps of decoding that are recorded on a GPU and repeated (CUDA graphs)."""
