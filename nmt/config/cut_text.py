"""Options that name the segmenter of another toolkit, and its files."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.choices import Segmentation
from nmt.config.option import flag
from nmt.config.roles import CommandConfig


@dataclass(kw_only=True)
class CutTextConfig(CommandConfig):
    """The options of a segmenter whose vocabulary is in a separate file."""

    bpe: Segmentation = flag(
        Segmentation.none,
        help="Segmenter of another toolkit, used with its vocabulary file: sentencepiece, subword_nmt, fastbpe or none",
    )
    bpe_model: str | None = flag(
        None, help="Segmenter file: sentencepiece model, or codes (merge operations); null: none"
    )
    target_bpe_model: str | None = flag(None, help="Segmenter file of the target side; null: --bpe-model")
    moses: bool = flag(
        False, help="Split text into words and join them by the Moses rules; only with subword_nmt and fastbpe"
    )
