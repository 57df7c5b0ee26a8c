"""Table 3 in miniature: a plugin that only has recipes."""
