"""Parts of decoding in C, where that could be built (setup.py): a few rows are less work than the calls of torch that they
take. Without it everything works as well, more slowly; ``NMT_NATIVE=off`` is the same. All of it computes in one thread, and
in float32 where weights are not packed into less. library.py finds it.
"""
