"""Presets: YAML only. This file lets Hydra find the folder as ``pkg://nmt.conf``."""
