"""How nmt-generate shows a translation: plain text, fairseq's lines, or JSON lines.

Deviations from fairseq's output: it comes in input order; D lines are detokenised text while H lines keep the pieces;
S and T lines show the text as it was given, but where D lines have text that was cut before joined to words, so have T
lines; scores follow our length penalty (``--length-penalty power`` is fairseq's);
the closing "Generate ... with beam=..." line goes to the log, because standard output carries results only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from nmt.config.choices import AlignmentKind, OutputFormat
from nmt.data.text import one_line
from nmt.translation import TranslatedText, Translation, best_texts

# From a translation and its reference (None: there is none) to the lines that show it.
Formatter = Callable[[Translation, str | None], Iterator[str]]

# What JSON may hold as it is, and some programs take for a line break.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def formatter(kind: OutputFormat, nbest: int, alignment: AlignmentKind, *, logarithms: bool = True) -> Formatter:
    """``logarithms``: the scores of hypotheses are some."""

    def text(translation: Translation, reference: str | None) -> Iterator[str]:
        yield from best_texts(translation, nbest)

    def fairseq(translation: Translation, reference: str | None) -> Iterator[str]:
        yield from _fairseq_lines(translation, reference, alignment, logarithms)

    def jsonl(translation: Translation, reference: str | None) -> Iterator[str]:
        yield json.dumps(_tree(translation, reference, alignment), ensure_ascii=False).translate(_ESCAPES)

    return {OutputFormat.text: text, OutputFormat.fairseq: fairseq, OutputFormat.jsonl: jsonl}[kind]


def _fairseq_lines(
    translation: Translation, reference: str | None, alignment: AlignmentKind, logarithms: bool
) -> Iterator[str]:
    number = translation.number
    yield f"S-{number}\t{one_line(translation.source)}"
    if reference is not None:
        yield f"T-{number}\t{one_line(reference)}"
    for hypothesis in translation.hypotheses:
        score = _base_2(hypothesis.score) if logarithms else hypothesis.score
        yield f"H-{number}\t{score}\t{' '.join(hypothesis.pieces)}"
        yield f"D-{number}\t{score}\t{hypothesis.text}"
        yield f"P-{number}\t{' '.join(f'{_base_2(one):.4f}' for one in hypothesis.token_scores)}"
        if alignment is not AlignmentKind.none:
            yield f"A-{number}\t{_alignment_text(hypothesis, alignment)}"


def _alignment_text(hypothesis: TranslatedText, kind: AlignmentKind) -> str:
    if kind is AlignmentKind.hard:
        return " ".join(f"{source}-{target}" for source, target in hypothesis.alignment)
    if hypothesis.attention is None:
        return ""
    return " ".join(",".join(f"{share:.6f}" for share in row) for row in hypothesis.attention.tolist())


def _tree(translation: Translation, reference: str | None, alignment: AlignmentKind) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "id": translation.number,
        "source": translation.source,
        "source_tokens": translation.source_pieces,
    }
    if reference is not None:
        tree["reference"] = reference
    return tree | {"hypotheses": [_hypothesis_tree(one, alignment) for one in translation.hypotheses]}


def _hypothesis_tree(hypothesis: TranslatedText, alignment: AlignmentKind) -> dict[str, Any]:
    """Scores are natural logarithms here; ``token_scores`` has one more entry than ``tokens``, that of eos."""
    tree: dict[str, Any] = {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "tokens": hypothesis.pieces,
        "token_scores": hypothesis.token_scores,
        "finished": hypothesis.finished,
    }
    if alignment is AlignmentKind.none:
        return tree
    if alignment is AlignmentKind.hard:
        return tree | {"alignment": hypothesis.alignment}
    return tree | {"alignment": [] if hypothesis.attention is None else hypothesis.attention.tolist()}


def _base_2(natural: float) -> float:
    return natural / math.log(2)
