"""Answers in the form of each kind of client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt.serving.rendering import Rendered, json_bytes
from nmt.serving.request_forms import TranslationRequest


def own(asked: TranslationRequest, lines: Sequence[Rendered]) -> bytes:
    """Return an answer in our own form, as JSON. Workers have rendered its lines."""
    model = asked.model
    head = json_bytes({"model": model.name, "source": model.source, "target": model.target})
    return b"".join([head[:-1], b',"translations":[', b",".join([line.json for line in lines]), b"]}"])


def _texts(asked: TranslationRequest, lines: Sequence[Rendered], rank: int = 0) -> list[str]:
    """Join the lines of each text. A line with fewer hypotheses than ``rank`` contributes its last one."""
    texts = [line.texts[min(rank, len(line.texts) - 1)] for line in lines]
    found, begin = [], 0
    for count in asked.counts:
        found.append("\n".join(texts[begin : begin + count]))
        begin += count
    return found


def libretranslate(asked: TranslationRequest, lines: Sequence[Rendered], *, detected: str | None) -> dict[str, Any]:
    """``detected``: the source language, if the client did not give it."""
    texts = _texts(asked, lines)
    tree: dict[str, Any] = {"translatedText": texts[0] if asked.single else texts}
    others = asked.form.nbest - 1
    if others:
        found = [_texts(asked, lines, rank) for rank in range(1, others + 1)]
        by_text = [[text for text in dict.fromkeys(column) if text != best] for best, column in zip(texts, zip(*found))]
        tree["alternatives"] = by_text[0] if asked.single else by_text
    if detected is not None:
        one = {"language": detected, "confidence": 100.0}
        tree["detectedLanguage"] = one if asked.single else [one] * len(texts)
    return tree


def opus(asked: TranslationRequest, lines: Sequence[Rendered]) -> dict[str, Any]:
    return {"translation": _texts(asked, lines)[0]}


def opennmt(asked: TranslationRequest, lines: Sequence[Rendered]) -> list[Any]:
    """Return a list of one list of objects. The score of a text is the sum over its lines."""
    found, begin = [], 0
    for count, text in zip(asked.counts, _texts(asked, lines)):
        end = begin + count
        source = "\n".join(line.text for line in asked.lines[begin:end])
        score = sum(line.score for line in lines[begin:end])
        found.append({"src": source, "tgt": text, "pred_score": score, "n_best": 1})
        begin = end
    return [found]
