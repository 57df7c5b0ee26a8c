"""Translating text with trained models: the Python API, and what nmt-generate runs.

import nmt
nmt.load("checkpoints").translate(["Ein Hund läuft."], beam=4)
"""

from __future__ import annotations

from nmt.translation.lines import Line, TranslatedText, Translation
from nmt.translation.looking import attention
from nmt.translation.translator import Translator, best_texts, translation_options
from nmt.translation.word_alignment import align

__all__ = [
    "Line",
    "TranslatedText",
    "Translation",
    "Translator",
    "align",
    "attention",
    "best_texts",
    "load",
    "translation_options",
]

load = Translator.load  # by its short name
