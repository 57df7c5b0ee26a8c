"""Tokenizers and vocabularies of other toolkits."""
