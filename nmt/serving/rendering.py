"""Render the translations of a line for an answer. Workers do this, so that the server only joins the results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nmt.config.choices import AlignmentKind
from nmt.data.vocabulary import Floats
from nmt.serving.refusals import Refused, too_large
from nmt.translation import TranslatedText, Translation

_CELLS = 2**14  # attention weights that are rendered at a time: about 10 milliseconds
_DIGITS = 6  # of attention weights
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps would make one for each line


@dataclass(frozen=True)
class Form:
    """The contents of an answer for each line."""

    own: bool = False  # our own form, as JSON; False: plain texts, for the forms of other servers
    nbest: int = 1
    scores: bool = False
    alignment: AlignmentKind = AlignmentKind.none


@dataclass(frozen=True)
class Rendered:
    """The translations of a line, rendered in its form."""

    texts: tuple[str, ...] = ()  # hypotheses, best first; empty in our own form
    score: float = 0.0  # of the best hypothesis
    json: bytes = b""  # an object in our own form

    @property
    def size(self) -> int:
        """Size in bytes, or at least in characters."""
        return len(self.json) + sum(map(len, self.texts))


def answer_too_large(limit: int) -> Refused:
    less = "send fewer lines, or request a smaller nbest, no soft alignment or no scores"
    return too_large(f"the response has more than {limit:,} bytes; {less}")


def json_bytes(tree: Any) -> bytes:
    """Return compact JSON in UTF-8. Lone surrogates, which only refusals can contain, are replaced."""
    return _ENCODER.encode(tree).encode("utf-8", "replace")


def rendered(translation: Translation, form: Form, limit: int, pause: Callable[[], None]) -> Rendered:
    """Render one line. Raises ``Refused`` if it takes more than ``limit`` bytes.

    ``pause`` is called about every 10 milliseconds; its errors end the rendering.
    """
    hypotheses = translation.hypotheses[: form.nbest]
    if not form.own:
        return Rendered(tuple(hypothesis.text for hypothesis in hypotheses), hypotheses[0].score)
    pieces, size = list[bytes](), 0
    for piece in _own_pieces(translation, hypotheses, form):
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise answer_too_large(limit)
        pause()
    return Rendered(json=b"".join(pieces))


def _own_pieces(translation: Translation, hypotheses: list[TranslatedText], form: Form) -> Iterator[bytes]:
    """Yield the JSON of a line in pieces; scores are natural logarithms."""
    aligned = form.alignment is not AlignmentKind.none
    tree: dict[str, Any] = {"text": hypotheses[0].text}
    if form.scores or aligned:
        tree["source_tokens"] = translation.source_pieces
    if not hypotheses[0].finished:
        tree["finished"] = False  # the length limit cut it off
    if translation.parts > 1:
        tree["parts"] = translation.parts
    if translation.truncated:
        tree["cut"] = True
    if form.nbest == 1 and not form.scores and not aligned:
        yield json_bytes(tree)
        return
    yield json_bytes(tree)[:-1] + b',"hypotheses":'
    for number, hypothesis in enumerate(hypotheses):
        yield (b"," if number else b"[") + json_bytes(_hypothesis(hypothesis, form))[:-1]
        if form.alignment is AlignmentKind.soft:
            yield b',"attention":['
            if hypothesis.attention is not None:
                yield from _rows(hypothesis.attention)
            yield b"]"
        yield b"}"
    yield b"]}"


def _hypothesis(hypothesis: TranslatedText, form: Form) -> dict[str, Any]:
    """Return the fields of a hypothesis, without attention weights."""
    tree: dict[str, Any] = {"text": hypothesis.text, "score": hypothesis.score}
    if form.scores:
        tree |= {"log_probability": hypothesis.log_probability, "token_scores": hypothesis.token_scores}
    if form.scores or form.alignment is not AlignmentKind.none:
        tree["tokens"] = hypothesis.pieces
    if form.alignment is AlignmentKind.hard:
        tree["alignment"] = hypothesis.alignment
    return tree


def _rows(attention: Floats) -> Iterator[bytes]:
    """Yield the rows of a matrix as JSON, without the brackets around all of them."""
    at_a_time = max(1, _CELLS // attention.shape[1])
    for begin in range(0, len(attention), at_a_time):
        rows = np.round(attention[begin : begin + at_a_time].astype(np.float64), _DIGITS).tolist()
        yield (b"," if begin else b"") + json_bytes(rows)[1:-1]
