"""Table 3 in miniature: a plugin that brings recipes, and nothing else."""
