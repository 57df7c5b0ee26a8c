"""The engine in C for CPUs: a Transformer's whole step in one call, on weights in few bytes."""
