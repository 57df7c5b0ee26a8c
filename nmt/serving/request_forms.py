"""The forms of requests (our own, and those of LibreTranslate, OPUS-MT and OpenNMT), read as lines for a model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from urllib.parse import parse_qs

from nmt.config.choices import AlignmentKind
from nmt.config.composing.refusals import as_typed, wrong_value
from nmt.config.option import hints_of, keyword_of
from nmt.config.plain import WrongValue, convert
from nmt.config.translation import TranslationOptions
from nmt.errors import DataError, did_you_mean, shown
from nmt.search import searches
from nmt.serving.config import ServeConfig
from nmt.serving.models import AUTO, Models, ServedModel
from nmt.serving.refusals import malformed, too_large, wrong
from nmt.serving.rendering import Form
from nmt.translation.lines import Line, line_of

MAX_REQUESTED_LENGTH = 1000  # pieces that a request may ask a translation to have
MOST_PHRASES = 64  # to include or exclude in one text: each of them costs time in every search step
_OF_A_TEXT = ("prefix", "include", "exclude", "min_length", "max_length", "source_lang", "target_lang", "tag")
DIGITS = 15  # most digits of a number as text
_SEARCHES = ("beam", "greedy")  # samples could not be repeated


def option_fields(*sections: type) -> dict[str, Any]:
    """Return the fields of a request for the options of ``sections`` that declare ``http``, with their annotations."""
    options = [(section, option) for section in sections for option in fields(section) if option.metadata.get("http")]
    return {
        keyword_of(option): str if "group" in option.metadata else hints_of(section)[option.name]
        for section, option in options
    }


_OPTIONS = option_fields(TranslationOptions, *map(searches.config_class, _SEARCHES))
_KEYS = ("text", "source", "target", "model", "scores", "alignment", *_OPTIONS, *_OF_A_TEXT)


@dataclass(frozen=True)
class TranslationRequest:
    """Lines to translate with the same options."""

    model: ServedModel
    lines: tuple[Line, ...]
    options: Mapping[str, Any] = field(default_factory=dict)  # of the search, under the names of ``Translator``
    alignment: AlignmentKind = AlignmentKind.none
    scores: bool = False
    single: bool = False  # the request has one text, not a list
    counts: tuple[int, ...] = ()  # number of lines of each text, in forms whose texts have several lines
    own: bool = False  # the answer is in our own form

    @property
    def form(self) -> Form:
        """The contents of the answer for each line."""
        return Form(self.own, self.options.get("nbest", 1), self.scores, self.alignment)

    @property
    def batch_key(self) -> tuple[object, ...]:
        """Lines with the same key are translated together."""
        return (self.model.name, self.alignment, tuple(sorted(self.options.items())))


@dataclass(frozen=True)
class RequestParser:
    """Parse requests to these models, within the limits of the server."""

    models: Models
    config: ServeConfig

    def own(self, body: bytes) -> TranslationRequest:
        """Parse our own form, which docs/reference/http.md describes."""
        tree = tree_of(body)
        for key in tree:
            if key not in _KEYS:
                raise wrong(f"unknown key '{key}'{did_you_mean(key, _KEYS)}; known keys: {', '.join(_KEYS)}")
        names = _text_or_none(tree, "source"), _text_or_none(tree, "target")
        model = self.models.find(*names, _text_or_none(tree, "model"))
        kind = _text_or_none(tree, "alignment") or AlignmentKind.none.value
        if kind not in AlignmentKind.__members__:
            raise wrong(f"alignment must be one of {', '.join(AlignmentKind.__members__)}, not '{kind}'")
        scores = tree.get("scores", False)
        if not isinstance(scores, bool):
            raise wrong('"scores" must be true or false')
        value = tree.get("text")
        single = not isinstance(value, list)
        of_text = {key: tree[key] for key in _OF_A_TEXT if key in tree}
        if of_text and not single:
            raise wrong(
                f'"{next(iter(of_text))}" is for a single text; for several, send objects: {{"text": ..., ...}}'
            )
        texts = value if isinstance(value, list) else [value]
        self._check_count(len(texts))
        direction = _direction(model, *names)
        lines = [self._line(text, direction, of_text, f"text {number}") for number, text in enumerate(texts, 1)]
        self._check_lines(model, lines)
        return TranslationRequest(
            model, tuple(lines), self._options(tree), AlignmentKind[kind], scores, single, own=True
        )

    def _line(self, value: object, usual: Mapping[str, str], more: Mapping[str, object], where: str) -> Line:
        tree: Any = {"text": value} if isinstance(value, str) else value
        if isinstance(tree, dict):
            tree = {**usual, **tree, **more}
            if "tag" in tree and tree.get("target_lang") == usual.get("target_lang"):
                tree.pop("target_lang", None)
        try:
            line = line_of(tree, where)
        except DataError as error:
            raise wrong(str(error)) from None
        if line.reference:
            raise wrong(f"{where}: the server does not score references; omit reference")
        if "\n" in line.text:
            raise wrong(f"{where} has a line break; send its lines as a list of texts")
        if max(line.min_length or 0, line.max_length or 0) > MAX_REQUESTED_LENGTH:
            raise wrong(f"{where}: min_length and max_length must be at most {MAX_REQUESTED_LENGTH}")
        text = _clean(line.text)
        return line if text == line.text else replace(line, text=text)  # replace takes longer than all checks

    def _options(self, tree: Mapping[str, object]) -> dict[str, Any]:
        options = {key: _converted(key, hint, tree[key]) for key, hint in _OPTIONS.items() if key in tree}
        if options.get("search", "beam") not in _SEARCHES:
            raise wrong(f"search must be one of {', '.join(_SEARCHES)} in a request, not '{options['search']}'")
        for key in ("nbest", "beam"):
            if not 1 <= options.get(key, 1) <= self.config.max_beam:
                raise wrong(f'"{key}" must be a whole number from 1 to {self.config.max_beam}')
        return {key: value for key, value in options.items() if (key, value) != ("nbest", 1)}

    def libretranslate(self, tree: Mapping[str, Any]) -> tuple[TranslationRequest, bool]:
        """Parse ``q`` (a text or a list), ``source``, ``target`` and ``alternatives``. True: the source is "auto"."""
        for key in ("q", "source", "target"):
            if not tree.get(key):
                raise malformed(f"the request has no '{key}'; q, source and target are required")
        if tree.get("format", "text") != "text":
            raise malformed(f"format '{tree['format']}' is not supported; send plain text (format=text)")
        source, target = _text_or_none(tree, "source"), _text_or_none(tree, "target")
        alternatives = tree.get("alternatives", 0)
        if isinstance(alternatives, str) and alternatives.isdecimal() and len(alternatives) <= DIGITS:
            alternatives = int(alternatives)
        if type(alternatives) is not int or not 0 <= alternatives < self.config.max_beam:
            raise malformed(f"alternatives must be a whole number from 0 to {self.config.max_beam - 1}")
        options = {"nbest": alternatives + 1} if alternatives else {}
        if source == AUTO:
            source = None if self.models.ignore_source(target) else self.models.only_source()
        names = source, target
        return self._of_texts(names, self.models.find(*names), tree["q"], "q", options), tree["source"] == AUTO

    def detected(self, tree: Mapping[str, Any]) -> str:
        """Return the language of a text, for clients of LibreTranslate: the only source language."""
        if not tree.get("q"):
            raise malformed("the request has no 'q'; send the text whose language to detect")
        return self.models.only_source()

    def opus(self, body: bytes) -> TranslationRequest:
        """Parse the form of OPUS-MT: ``from``, ``to`` and ``source``, the text."""
        tree = tree_of(body)
        for key in ("from", "to", "source"):
            if not isinstance(tree.get(key), str):
                raise malformed(f"the request has no string '{key}'; from, to and source are required")
        names = tree["from"], tree["to"]
        return self._of_texts(names, self.models.find(*names), tree["source"], "source", {})

    def opennmt(self, body: bytes) -> TranslationRequest:
        """Parse the form of OpenNMT: a list of ``src``, with the ``id`` of a model, its name or its number."""
        tree = _parsed(body)
        if not isinstance(tree, list) or not tree or not all(isinstance(item, dict) for item in tree):
            raise malformed('the request must be a list of objects: [{"src": "..."}]')
        if not all(isinstance(item.get("src"), str) for item in tree):
            raise malformed("each object needs a string as 'src'")
        ids = {json.dumps(item["id"]) for item in tree if "id" in item}
        if len(ids) > 1:
            raise malformed("all texts of a request must have the same 'id'")
        name = json.loads(ids.pop()) if ids else None
        if type(name) is int and 0 <= name < len(self.models.all):
            name = self.models.all[name].name
        model = self.models.find(name=None if name is None else str(name))
        return self._of_texts((None, None), model, [item["src"] for item in tree], "src", {})

    def _of_texts(
        self,
        names: tuple[str | None, str | None],
        model: ServedModel,
        value: object,
        key: str,
        options: Mapping[str, Any],
    ) -> TranslationRequest:
        """Return a request for texts of several lines, each of which is translated. ``names``: source and target language;
        None: those of the model."""
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise malformed(f"'{key}' must be a string or a list of strings")
        counts = tuple(text.count("\n") + 1 for text in texts)
        self._check_count(sum(counts))
        direction = _direction(model, *names)
        lines = tuple(Line(_clean(line), **direction) for text in texts for line in text.split("\n"))
        self._check_lines(model, lines)
        return TranslationRequest(model, lines, options, single=not isinstance(value, list), counts=counts)

    def _check_count(self, lines: int) -> None:
        """Call it before any work on single lines: a body may have hundreds of thousands."""
        if not lines:
            raise wrong("the request has no text to translate")
        if lines > self.config.max_lines:
            raise too_large(
                f"the request has {lines:,} lines, more than the maximum of {self.config.max_lines:,}; send fewer"
            )

    def _check_lines(self, model: ServedModel, lines: Sequence[Line]) -> None:
        limit = self.config.max_line_chars
        for number, line in enumerate(lines, 1):
            model.require(line, f"text {number}")
            constraints = (line.prefix, *line.include, *line.exclude)
            if max(len(line.text), sum(map(len, constraints))) > limit:
                raise too_large(f"text {number} has more than {limit:,} characters; send its sentences one by one")
            if len(constraints) - 1 > MOST_PHRASES:
                raise too_large(
                    f"text {number} has {len(constraints) - 1} phrases, more than {MOST_PHRASES}; send fewer"
                )


def _direction(model: ServedModel, source: str | None, target: str | None) -> dict[str, Any]:
    """Return the languages of each line, as a request names them to a model with several directions."""
    named = {"source_lang": source, "target_lang": target} if model.languages else {}
    return {key: name for key, name in named.items() if name and name != AUTO}


def _converted(key: str, hint: Any, value: object) -> Any:
    """Return the value of an option as its annotation says."""
    if value is None:
        raise wrong(f'"{key}" must not be null; omit it for the default')
    try:
        converted = convert(hint, value, origin="request", where=key)
    except WrongValue as error:
        text = as_typed(value) if isinstance(value, bool) else shown(value)
        raise wrong(wrong_value(key, text, value, error.hint)) from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise wrong(f'"{key}" must be a finite number')
    return converted


def _clean(text: str) -> str:
    """Clean a line like nmt-generate."""
    return text.removesuffix("\r").replace("\0", "\ufffd")


def tree_of(body: bytes) -> dict[str, Any]:
    """Parse a JSON object."""
    tree = _parsed(body)
    if not isinstance(tree, dict):
        raise malformed("the request must be a JSON object: {...}")
    return tree


def _parsed(body: bytes) -> Any:
    try:
        return _DECODER.decode(body.decode(json.detect_encoding(body), "surrogatepass"))
    except RecursionError:
        raise malformed("the request is not readable JSON: it is nested too deeply") from None
    except ValueError as error:
        raise malformed(f"the request is not JSON ({error})") from None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


_DECODER = json.JSONDecoder(parse_constant=_no_number)  # json.loads would make one for each request


def fields_of(body: bytes, kind: str) -> dict[str, Any]:
    """Return the fields of a JSON body or of a form; ``kind`` is the Content-Type."""
    media = kind.partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded" or body.lstrip().startswith(b"{"):
        return tree_of(body)  # curl declares every body as a form
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise malformed(f"the form cannot be read ({error})") from None
    tree: dict[str, Any] = {name: values[-1] for name, values in fields.items()}
    if len(fields.get("q", ())) > 1:
        tree["q"] = fields["q"]
    if isinstance(tree.get("q"), str):
        tree["q"] = tree["q"].replace("\r\n", "\n")
    return tree


def _text_or_none(tree: Mapping[str, Any], key: str) -> str | None:
    value = tree.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong(f'"{key}" must be a string')
    return value
