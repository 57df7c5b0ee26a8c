"""Translate text with trained models: the Python API behind nmt-generate.

import nmt
nmt.load("checkpoints").translate(["Ein Hund läuft."], beam=4)
"""

from __future__ import annotations

from nmt.translation.attention_view import attention
from nmt.translation.lines import Line, TranslatedText, Translation
from nmt.translation.options import translation_options
from nmt.translation.translator import Translator, best_texts
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

load = Translator.load
