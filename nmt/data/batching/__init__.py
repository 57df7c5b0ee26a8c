"""Batches: which sentences an epoch has, in which order and together, and the processes that prepare them."""
