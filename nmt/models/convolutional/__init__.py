"""Convolutional models: ByteNet, ConvS2S."""
