"""Reports of a run: log, displays, sinks, pages and pictures. Independent of models and of the trainer."""
