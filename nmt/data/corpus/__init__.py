"""Corpus folders, as they are read: sentences, their lengths and text, shards, and what is learned from them."""
