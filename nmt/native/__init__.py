"""Decoding in C. setup.py builds it and library.py loads it.

For a few rows, a call of torch costs more than its arithmetic. Without the library, or with ``NMT_NATIVE=off``, torch
computes the same more slowly. The C code uses one thread, and float32 unless the weights are quantized.
"""
