"""A Transformer in C (nmt/native/decoding.c): its weights, its decodings, and the engine that holds them."""
