"""Options that name the segmenter of another toolkit, and its files."""

from __future__ import annotations

from dataclasses import dataclass

from nmt.config.choices import Segmentation
from nmt.config.option import flag
from nmt.config.roles import CommandConfig


@dataclass(kw_only=True)
class CutTextConfig(CommandConfig):
    """A segmenter whose list of pieces stands in another file."""

    bpe: Segmentation = flag(
        Segmentation.none,
        help="another toolkit's segmenter, beside its list of pieces: sentencepiece, subword_nmt, fastbpe, or none",
    )
    bpe_model: str | None = flag(None, help="its file: the sentencepiece model, or the codes (merge operations)")
    target_bpe_model: str | None = flag(None, help="the same for the targets, if it is another file")
    moses: bool = flag(False, help="words were cut and are joined by the Moses rules (with subword_nmt and fastbpe)")
