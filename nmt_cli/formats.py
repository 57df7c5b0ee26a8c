"""What nmt-generate reads: plain lines, or lines that also say what is asked of their translations.

text    one sentence a line
tsv     the sentence, then phrases that its translation must contain; of one that begins with "!", must not contain;
        where references are scored: the sentence, then its reference
jsonl   {"text": "...", "prefix": "...", "include": ["..."], "exclude": ["..."], "reference": "...", "min_length": 1,
        "max_length": 9}, all but text optional
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nmt.config.choices import AlignmentKind, InputFormat, OutputFormat
from nmt.data.text import PAUSE, Pause, one_line
from nmt.errors import DataError, UsageError, did_you_mean
from nmt.translation import Line, TranslatedText, Translation, best_texts
from nmt.translation.lines import Given

_LENGTHS = ("min_length", "max_length")
_KEYS = ("text", "prefix", "include", "exclude", "reference", *_LENGTHS)


def parsed(
    lines: Iterable[str | Pause | None], form: InputFormat, origin: str, *, first: int = 1, references: bool = False
) -> Iterator[Given]:
    """``lines`` in their format; ``origin`` names where they come from, ``first`` is the number of the first there. None,
    pauses and empty lines stay what they are.

    With ``references`` each line has one to be scored.
    """
    if form is InputFormat.text:
        return iter(lines)
    of_fields = _with_reference if references else _of_fields
    parse: Callable[[str, str], Line] = {InputFormat.tsv: of_fields, InputFormat.jsonl: _of_json}[form]

    def line_of(text: str, where: str) -> Line:
        line = parse(text, where)
        if references and line != Line(line.text, reference=line.reference):
            raise DataError(
                f"{where}: references are scored, so nothing else can be asked for; leave out --score-reference"
            )
        if references and bool(line.text.strip()) != bool(line.reference.strip()):
            raise DataError(f"{where} should have both a sentence and its reference")
        return line

    def parsed_lines() -> Iterator[Given]:
        number = first
        for line in lines:
            if isinstance(line, str) and line.strip():
                yield line_of(line, f"{origin}, line {number}")
            else:
                yield line
            number += line is not PAUSE

    return parsed_lines()


def _of_fields(line: str, where: str) -> Line:
    text, *phrases = line.split("\t")
    exclude = tuple(phrase[1:] for phrase in phrases if phrase.startswith("!"))
    return _checked(Line(text, "", tuple(phrase for phrase in phrases if not phrase.startswith("!")), exclude), where)


def _with_reference(line: str, where: str) -> Line:
    text, *reference = line.split("\t")
    if len(reference) != 1:
        raise DataError(f"{where} should have two fields, a sentence and its reference, with a tab between them")
    return Line(text, reference=reference[0])


def _of_json(line: str, where: str) -> Line:
    try:
        tree = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where} is not JSON ({error})") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("text"), str):
        raise DataError(f'{where} is no object with a "text"')
    for key, value in tree.items():
        if key not in _KEYS:
            raise DataError(f"{where} has the key '{key}'{did_you_mean(key, _KEYS)}; there are: {', '.join(_KEYS)}")
        if key in ("prefix", "reference") and not isinstance(value, str):
            raise DataError(f'{where}: "{key}" must be a text')
        listed = isinstance(value, list) and all(isinstance(phrase, str) for phrase in value)
        if key in ("include", "exclude") and not listed:
            raise DataError(f'{where}: "{key}" must be a list of texts')
        if key in _LENGTHS and type(value) is not int:
            raise DataError(f'{where}: "{key}" must be a whole number of pieces')
    include, exclude = (tuple(tree.get(key, ())) for key in ("include", "exclude"))
    prefix, reference = (tree.get(key, "") for key in ("prefix", "reference"))
    shortest, longest = (tree.get(key) for key in _LENGTHS)
    try:
        return _checked(Line(tree["text"], prefix, include, exclude, reference, shortest, longest), where)
    except UsageError as error:  # which knows no lines of files
        raise DataError(f"{where}: {error}") from None


def _checked(line: Line, where: str) -> Line:
    if not all(phrase.strip() for phrase in (*line.include, *line.exclude)):
        raise DataError(f"{where} has an empty phrase; leave it out")
    return line


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
