"""How lines to translate are written, and how nmt-generate shows translations. Lines that it reads:

text    one sentence a line
tsv     the sentence, then phrases that its translation must contain; of one that begins with "!", must not contain;
        where references are scored: the sentence, then its reference
jsonl   {"text": "...", "prefix": "...", "include": ["..."], "exclude": ["..."], "reference": "...", "min_length": 1,
        "max_length": 9, "source_lang": "en", "target_lang": "de"}, all but text optional

Of translations it shows the text alone, fairseq's lines, or JSON lines. Deviations from fairseq's output: it comes in input
order; D lines are detokenized text while H lines keep the pieces; S and T lines show the text as it was given, but where D
lines have text that was cut before joined to words, so have T lines; scores follow our length penalty (``--length-penalty
power`` is fairseq's); the closing "Generate ... with beam=..." line goes to the log, because standard output carries
results only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nmt.config.choices import AlignmentKind, InputFormat, OutputFormat
from nmt.data.text.lines import PAUSE, Pause, one_line
from nmt.errors import DataError
from nmt.translation import Line, TranslatedText, Translation, best_texts
from nmt.translation.lines import LineOrPause, line_of


def parse_lines(
    lines: Iterable[str | Pause | None], form: InputFormat, origin: str, *, first: int = 1, references: bool = False
) -> Iterator[LineOrPause]:
    """Read lines in their format. None, pauses and empty lines stay unchanged.

    ``origin``: where the lines come from, and ``first``: the number of the first line there, for messages.
    ``references``: each line has a reference to be scored.
    """
    number = first
    for line in lines:
        if form is not InputFormat.text and isinstance(line, str) and line.strip():
            yield _parsed(line, form, f"{origin}, line {number}", references)
        else:
            yield line
        number += line is not PAUSE


def _parsed(text: str, form: InputFormat, where: str, references: bool) -> Line:
    sentence, *fields = text.split("\t")
    if form is InputFormat.jsonl:
        line = _of_json(text, where)
    elif not references:
        include = tuple(phrase for phrase in fields if not phrase.startswith("!"))
        line = Line(sentence, "", include, tuple(phrase[1:] for phrase in fields if phrase.startswith("!")))
    elif len(fields) == 1:
        line = Line(sentence, reference=fields[0])
    else:
        raise DataError(f"{where} should have two fields, a sentence and its reference, with a tab between them")
    if not all(phrase.strip() for phrase in (*line.include, *line.exclude)):
        raise DataError(f"{where} has an empty phrase; delete it")
    if references and line != Line(line.text, reference=line.reference):
        raise DataError(
            f"{where}: --score-reference reads only a sentence and its reference; delete the other fields, or "
            "omit the flag"
        )
    if references and bool(line.text.strip()) != bool(line.reference.strip()):
        raise DataError(f"{where} should have both a sentence and its reference")
    return line


def _of_json(line: str, where: str) -> Line:
    try:
        tree = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error})") from None
    return line_of(tree, where)


# From a translation and its reference, or None, to the lines that show it.
Formatter = Callable[[Translation, str | None], Iterator[str]]

# Valid in JSON, but some programs read them as line breaks.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


def formatter(kind: OutputFormat, nbest: int, alignment: AlignmentKind, *, logarithms: bool = True) -> Formatter:
    """Return the function that writes translations. ``logarithms``: scores are log-probabilities."""

    def lines(translation: Translation, reference: str | None) -> Iterator[str]:
        if kind is OutputFormat.text:
            yield from best_texts(translation, nbest)
        elif kind is OutputFormat.fairseq:
            yield from _fairseq_lines(translation, reference, alignment, logarithms)
        else:
            yield json.dumps(_tree(translation, reference, alignment), ensure_ascii=False).translate(_ESCAPES)

    return lines


def _fairseq_lines(
    translation: Translation, reference: str | None, alignment: AlignmentKind, logarithms: bool
) -> Iterator[str]:
    number = translation.number
    yield f"S-{number}\t{one_line(translation.source)}"
    if reference is not None:
        yield f"T-{number}\t{one_line(reference)}"
    for hypothesis in translation.hypotheses:
        score = hypothesis.score / math.log(2) if logarithms else hypothesis.score
        yield f"H-{number}\t{score}\t{' '.join(hypothesis.pieces)}"
        yield f"D-{number}\t{score}\t{hypothesis.text}"
        yield f"P-{number}\t{' '.join(f'{token_score / math.log(2):.4f}' for token_score in hypothesis.token_scores)}"
        if alignment is not AlignmentKind.none:
            yield f"A-{number}\t{_alignment_text(hypothesis, alignment)}"


def _alignment_text(hypothesis: TranslatedText, kind: AlignmentKind) -> str:
    if kind is AlignmentKind.hard:
        return " ".join(f"{source}-{target}" for source, target in hypothesis.alignment)
    if hypothesis.attention is None:
        return ""
    return " ".join(",".join(f"{share:.6f}" for share in row) for row in hypothesis.attention.tolist())


def _tree(translation: Translation, reference: str | None, alignment: AlignmentKind) -> dict[str, Any]:
    return {
        "id": translation.number,
        "source": translation.source,
        "source_tokens": translation.source_pieces,
        **({} if reference is None else {"reference": reference}),
        "hypotheses": [_hypothesis_tree(hypothesis, alignment) for hypothesis in translation.hypotheses],
    }


def _hypothesis_tree(hypothesis: TranslatedText, alignment: AlignmentKind) -> dict[str, Any]:
    """Scores are natural logarithms here; ``token_scores`` has one more entry than ``tokens``, that of eos."""
    tree: dict[str, Any] = {
        "text": hypothesis.text,
        "score": hypothesis.score,
        "tokens": hypothesis.pieces,
        "token_scores": hypothesis.token_scores,
        "finished": hypothesis.finished,
    }
    if alignment is AlignmentKind.hard:
        tree["alignment"] = hypothesis.alignment
    elif alignment is AlignmentKind.soft:
        tree["alignment"] = [] if hypothesis.attention is None else hypothesis.attention.tolist()
    return tree
