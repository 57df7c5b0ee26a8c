"""The attention of some sentences as one HTML page: every layer and head, to be looked at word by word.

The page holds its own script and asks nobody for anything. A weight is one byte: a sentence of 60 pieces in a model of six
layers with eight heads takes 0.7 MB.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.data.attention import KINDS, SentenceAttention
from nmt.data.vocabulary import Floats
from nmt.pages.charts import render
from nmt.pages.frames import framed


def attention_page(
    sentences: Sequence[SentenceAttention], name: str, about: str = "", member: str | None = None
) -> str:
    """The whole document. ``name``: of the model; ``member``: the one of an ensemble that is shown; None: their mean."""
    data = [_plain(one, one.weights if member is None else one.members[member]) for one in sentences if one.source]
    return render("attention.html", data=data, name=name, about=about)


@dataclass(frozen=True)
class ShownAttention(SentenceAttention):
    """Attention that a notebook shows where a cell ends with it: the page, in a frame. Of an ensemble whose attention has
    no mean, it is the page of its first model."""

    model: str = ""

    def _repr_html_(self) -> str:
        member = None if self.weights else next(iter(self.members), None)
        about = f"{member} alone" if member else ""
        return framed(attention_page([self], self.model, about, member), "Attention")


def _plain(one: SentenceAttention, weights: Mapping[str, Floats]) -> dict[str, Any]:
    """What the script reads of a sentence."""
    return {
        "line": one.number + 1,
        "source": " ".join(one.source[:-1]),
        "target": " ".join(one.target[:-1]),
        "kinds": {
            kind: {
                "layers": maps.shape[0],
                "heads": maps.shape[1],
                "rows": list(one.rows(kind)),
                "columns": list(one.columns(kind)),
                "weights": base64.b64encode(in_bytes(maps).tobytes()).decode("ascii"),
            }
            for kind, maps in weights.items()
            if kind in KINDS
        },
    }


def in_bytes(weights: Floats) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """0 .. 1 as 0 .. 255, to the nearest."""
    return np.rint(255 * np.clip(weights, 0.0, 1.0)).astype(np.uint8)
