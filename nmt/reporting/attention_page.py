"""Write the attention of sentences as one HTML page, with every layer and head, word by word.

The page contains its script and needs no network. A weight is one byte: a sentence of 60 tokens in a model of six layers
with eight heads takes 0.7 MB.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.data.vocabulary import Floats
from nmt.pages.charts import render
from nmt.pages.frames import framed
from nmt.reporting.sentence_attention import KINDS, SentenceAttention


def attention_page(
    sentences: Sequence[SentenceAttention], name: str, about: str = "", member: str | None = None
) -> str:
    """Return the page. ``name``: of the model; ``member``: the model of an ensemble that is shown; None: their mean."""
    data = [
        _plain(sentence, sentence.weights if member is None else sentence.members[member])
        for sentence in sentences
        if sentence.source
    ]
    return render("attention.html", data=data, name=name, about=about)


@dataclass(frozen=True, repr=False)
class ShownAttention(SentenceAttention):
    """Attention that a notebook shows at the end of a cell, as the page in a frame.

    For an ensemble whose attention has no mean, it is the page of its first model.
    """

    model: str = ""

    def _repr_html_(self) -> str:
        member = None if self.weights else next(iter(self.members), None)
        about = f"{member} alone" if member else ""
        return framed(attention_page([self], self.model, about, member), "Attention")


def _plain(sentence: SentenceAttention, weights: Mapping[str, Floats]) -> dict[str, Any]:
    """Return the data of a sentence for the script."""
    return {
        "line": sentence.number + 1,
        "source": sentence.source_text or " ".join(sentence.source[:-1]),
        "target": sentence.target_text or " ".join(sentence.target[:-1]),
        "kinds": {
            kind: {
                "layers": maps.shape[0],
                "heads": maps.shape[1],
                "rows": list(sentence.rows(kind)),
                "columns": list(sentence.columns(kind)),
                "weights": base64.b64encode(np.rint(255 * maps.clip(0, 1)).astype(np.uint8).tobytes()).decode("ascii"),
            }
            for kind, maps in weights.items()
            if kind in KINDS
        },
    }
