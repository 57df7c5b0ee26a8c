"""Answers in the form of each kind of client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt.serving.rendering import Rendered, json_bytes
from nmt.serving.request_forms import TranslationRequest


def own(request: TranslationRequest, lines: Sequence[Rendered]) -> bytes:
    """Return an answer in our own form, as JSON. Workers have rendered its lines."""
    model = request.model
    head = json_bytes({"model": model.name, "source": model.source, "target": model.target})
    return b"".join([head[:-1], b',"translations":[', b",".join([line.json for line in lines]), b"]}"])


def _texts(request: TranslationRequest, lines: Sequence[Rendered], rank: int = 0) -> list[str]:
    """Join the lines of each text. A line with fewer hypotheses than ``rank`` contributes its last one."""
    texts = [line.texts[min(rank, len(line.texts) - 1)] for line in lines]
    joined, begin = [], 0
    for count in request.counts:
        joined.append("\n".join(texts[begin : begin + count]))
        begin += count
    return joined


def libretranslate(request: TranslationRequest, lines: Sequence[Rendered], *, detected: str | None) -> dict[str, Any]:
    """``detected``: the source language, if the client did not give it."""
    texts = _texts(request, lines)
    tree: dict[str, Any] = {"translatedText": texts[0] if request.single else texts}
    others = request.form.nbest - 1
    if others:
        ranked = [_texts(request, lines, rank) for rank in range(1, others + 1)]
        by_text = [
            [text for text in dict.fromkeys(column) if text != best] for best, column in zip(texts, zip(*ranked))
        ]
        tree["alternatives"] = by_text[0] if request.single else by_text
    if detected is not None:
        detection = {"language": detected, "confidence": 100.0}
        tree["detectedLanguage"] = detection if request.single else [detection] * len(texts)
    return tree


def opus(request: TranslationRequest, lines: Sequence[Rendered]) -> dict[str, Any]:
    return {"translation": _texts(request, lines)[0]}


def opennmt(request: TranslationRequest, lines: Sequence[Rendered]) -> list[Any]:
    """Return a list of one list of objects. The score of a text is the sum over its lines."""
    answers, begin = [], 0
    for count, text in zip(request.counts, _texts(request, lines)):
        end = begin + count
        source = "\n".join(line.text for line in request.lines[begin:end])
        score = sum(line.score for line in lines[begin:end])
        answers.append({"src": source, "tgt": text, "pred_score": score, "n_best": 1})
        begin = end
    return [answers]
