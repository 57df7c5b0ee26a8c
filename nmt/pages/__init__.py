"""Templates, charts and formatted numbers of pages and pictures."""
