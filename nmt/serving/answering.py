"""Translations in the form that each client knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt.config.choices import AlignmentKind
from nmt.serving.asking import Asked
from nmt.translation import TranslatedText, Translation


def own(asked: Asked, translations: Sequence[Translation]) -> dict[str, Any]:
    """Our own form; scores are natural logarithms."""
    model = asked.model
    answers = [_own_tree(asked, one) for one in translations]
    return {"model": model.name, "source": model.source, "target": model.target, "translations": answers}


def _own_tree(asked: Asked, translation: Translation) -> dict[str, Any]:
    nbest = asked.options.get("nbest", 1)
    hypotheses = translation.hypotheses[:nbest]
    tree: dict[str, Any] = {"text": hypotheses[0].text}
    aligned = asked.alignment is not AlignmentKind.none
    if asked.scores or aligned:
        tree["source_tokens"] = translation.source_pieces
    if nbest > 1 or asked.scores or aligned:
        tree["hypotheses"] = [_hypothesis(asked, one) for one in hypotheses]
    if not hypotheses[0].finished:
        tree["finished"] = False  # the length limit cut it off
    if translation.parts > 1:
        tree["parts"] = translation.parts
    if translation.cut:
        tree["cut"] = True
    return tree


def _hypothesis(asked: Asked, one: TranslatedText) -> dict[str, Any]:
    tree: dict[str, Any] = {"text": one.text, "score": one.score}
    if asked.scores:
        tree |= {"log_probability": one.log_probability, "token_scores": one.token_scores}
    if asked.scores or asked.alignment is not AlignmentKind.none:
        tree["tokens"] = one.pieces
    if asked.alignment is AlignmentKind.hard:
        tree["alignment"] = one.alignment
    elif asked.alignment is AlignmentKind.soft:
        tree["attention"] = (
            [] if one.attention is None else [[round(x, 6) for x in row] for row in one.attention.tolist()]
        )
    return tree


def _texts(asked: Asked, translations: Sequence[Translation], rank: int = 0) -> list[str]:
    """Each text from its lines; of a line with fewer translations than ``rank`` its last one."""
    lines = [one.hypotheses[min(rank, len(one.hypotheses) - 1)].text for one in translations]
    found, begin = [], 0
    for count in asked.counts:
        found.append("\n".join(lines[begin : begin + count]))
        begin += count
    return found


def libretranslate(asked: Asked, translations: Sequence[Translation], *, detected: str | None) -> dict[str, Any]:
    """``detected``: the source language, where the client did not name it."""
    texts = _texts(asked, translations)
    tree: dict[str, Any] = {"translatedText": texts[0] if asked.single else texts}
    others = asked.options.get("nbest", 1) - 1
    if others:
        found = [_texts(asked, translations, rank) for rank in range(1, others + 1)]
        by_text = [[text for text in dict.fromkeys(column) if text != best] for best, column in zip(texts, zip(*found))]
        tree["alternatives"] = by_text[0] if asked.single else by_text
    if detected is not None:
        one = {"language": detected, "confidence": 100.0}
        tree["detectedLanguage"] = one if asked.single else [one] * len(texts)
    return tree


def opus(asked: Asked, translations: Sequence[Translation]) -> dict[str, Any]:
    return {"translation": _texts(asked, translations)[0]}


def opennmt(asked: Asked, translations: Sequence[Translation]) -> list[Any]:
    """A list of one list, whose objects have the text and what it is scored, the sum over its lines."""
    found, begin = [], 0
    for count, text in zip(asked.counts, _texts(asked, translations)):
        lines = translations[begin : begin + count]
        score = sum(line.hypotheses[0].score for line in lines)
        found.append({"src": "\n".join(line.source for line in lines), "tgt": text, "pred_score": score, "n_best": 1})
        begin += count
    return [found]
