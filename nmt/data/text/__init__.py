"""Text: lines of files, pairs of them, words and languages."""
