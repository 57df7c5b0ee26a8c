"""What tells of a run: its log, displays, pages and curves. Knows no model and no trainer."""
