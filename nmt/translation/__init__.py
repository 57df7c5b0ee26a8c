"""Translating text with trained models: the Python API, and what nmt-generate runs.

from nmt import Translator
Translator.load("checkpoints").translate(["Ein Hund läuft."], beam=4)
"""

from __future__ import annotations

from nmt.translation.lines import Line, TranslatedText, Translation
from nmt.translation.translator import Translator, best_texts, translation_options

__all__ = ["Line", "TranslatedText", "Translation", "Translator", "best_texts", "translation_options"]
