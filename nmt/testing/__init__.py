"""Tests that every model must pass, for ours and for plugins': see ``nmt.testing.conformance``."""
