"""From text to a corpus folder: what nmt-preprocess does."""
