"""What clients send becomes lines for a model: in our own form, and in those of LibreTranslate, OPUS-MT and OpenNMT."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from nmt.config.choices import AlignmentKind
from nmt.config.serving import ServeConfig
from nmt.errors import DataError, did_you_mean
from nmt.serving.models import AUTO, Model, Models
from nmt.serving.refusals import Refused, malformed, too_large, wrong
from nmt.translation.lines import Line, line_of

LONGEST_ASKED = 1000  # pieces that a request may ask a translation to have
_OF_A_TEXT = ("prefix", "include", "exclude", "min_length", "max_length", "tag")
_SEARCH = {
    "search": str,
    "beam": int,
    "lenpen": float,
    "length_penalty": str,
    "no_repeat_ngram_size": int,
}
_KEYS = ("text", "source", "target", "model", "nbest", "scores", "alignment", *_SEARCH, *_OF_A_TEXT)
LARGEST, DIGITS = 2**53, 15  # of whole numbers that floats hold, and that anybody asks for
_SEARCHES = ("beam", "greedy")  # what is drawn at random could not be repeated


@dataclass(frozen=True)
class Asked:
    """Lines to translate, all in the same way."""

    model: Model
    lines: tuple[Line, ...]
    options: Mapping[str, Any] = field(default_factory=dict)  # of the search, under the names of ``Translator``
    alignment: AlignmentKind = AlignmentKind.none
    scores: bool = False
    single: bool = False  # one text was given, not a list
    counts: tuple[int, ...] = ()  # lines of each text, where texts have several

    @property
    def way(self) -> tuple[object, ...]:
        """What lines have in common that are translated together."""
        return (self.model.name, self.alignment, tuple(sorted(self.options.items())))


@dataclass(frozen=True)
class Reader:
    """Reads requests for these models, within the limits of a server."""

    models: Models
    config: ServeConfig

    def own(self, body: bytes) -> Asked:
        """Our own form: docs/serving.md has it."""
        tree = tree_of(body)
        for key in tree:
            if key not in _KEYS:
                raise wrong(f"there is no '{key}'{did_you_mean(key, _KEYS)}; there are: {', '.join(_KEYS)}")
        model = self.models.find(*(_text_or_none(tree, key) for key in ("source", "target", "model")))
        kind = _text_or_none(tree, "alignment") or AlignmentKind.none.value
        if kind not in AlignmentKind.__members__:
            raise wrong(f"alignment '{kind}' is none of {', '.join(AlignmentKind.__members__)}")
        scores = tree.get("scores", False)
        if not isinstance(scores, bool):
            raise wrong('"scores" must be true or false')
        given = tree.get("text")
        single = not isinstance(given, list)
        of_text = {key: tree[key] for key in _OF_A_TEXT if key in tree}
        if of_text and not single:
            raise wrong(f'"{next(iter(of_text))}" is for a single text; of several, give objects: {{"text": ..., ...}}')
        texts = given if isinstance(given, list) else [given]
        lines = [self._line(text, of_text, f"text {number}") for number, text in enumerate(texts, 1)]
        asked = Asked(model, self._limited(lines), self._options(tree), AlignmentKind[kind], scores, single)
        return asked

    def _line(self, given: object, more: Mapping[str, object], where: str) -> Line:
        tree = {"text": given} if isinstance(given, str) else given
        try:
            line = line_of({**tree, **more} if isinstance(tree, dict) else tree, where)
        except DataError as error:
            raise wrong(str(error)) from None
        if line.reference:
            raise wrong(f"{where}: references are not scored here; leave out reference")
        if "\n" in line.text:
            raise wrong(f"{where} has a line break; give its lines as a list of texts")
        if max(line.min_length or 0, line.max_length or 0) > LONGEST_ASKED:
            raise wrong(f"{where}: min_length and max_length may be {LONGEST_ASKED} at most")
        return replace(line, text=_clean(line.text))

    def _options(self, tree: Mapping[str, object]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, kind in _SEARCH.items():
            if key in tree:
                value = tree[key]
                if kind is float and type(value) is int:
                    value = float(value) if abs(value) <= LARGEST else math.inf
                if type(value) is not kind or value == math.inf:
                    raise wrong(f'"{key}" must be {({int: "a whole number", float: "a number", str: "a text"})[kind]}')
                found[key] = value
        if found.get("search", "beam") not in _SEARCHES:
            raise wrong(f"search '{found['search']}' is none of {', '.join(_SEARCHES)}, which a request may choose")
        nbest = tree.get("nbest", 1)
        for key, value in (("nbest", nbest), ("beam", found.get("beam", 1))):
            if type(value) is not int or not 1 <= value <= self.config.max_beam:
                raise wrong(f'"{key}" must be a whole number from 1 to {self.config.max_beam}')
        return found | ({"nbest": nbest} if nbest != 1 else {})

    def libretranslate(self, body: bytes, kind: str) -> tuple[Asked, bool]:
        """``q`` (a text or several), ``source`` (perhaps "auto": the second value), ``target``, ``alternatives``; JSON or a
        form, as ``kind`` says."""
        tree = _fields_of(body, kind)
        for key in ("q", "source", "target"):
            if not tree.get(key):
                raise malformed(f"the request has no '{key}'; q, source and target are needed")
        if tree.get("format", "text") != "text":
            raise malformed(f"format '{tree['format']}' is not offered; send plain text (format=text)")
        source, target = _text_or_none(tree, "source"), _text_or_none(tree, "target")
        alternatives = tree.get("alternatives", 0)
        if isinstance(alternatives, str) and alternatives.isdecimal() and len(alternatives) <= DIGITS:
            alternatives = int(alternatives)
        if type(alternatives) is not int or not 0 <= alternatives < self.config.max_beam:
            raise malformed(f"alternatives must be a whole number from 0 to {self.config.max_beam - 1}")
        options = {"nbest": alternatives + 1} if alternatives else {}
        if source == AUTO:
            source = self.models.only_source()
        return self._of_texts(self.models.find(source, target), tree["q"], "q", options), tree["source"] == AUTO

    def detected(self, body: bytes, kind: str) -> str:
        """The language of a text, for LibreTranslate's clients: the only one there is."""
        if not _fields_of(body, kind).get("q"):
            raise malformed("the request has no 'q', the text whose language is asked for")
        return self.models.only_source()

    def opus(self, body: bytes) -> Asked:
        """OPUS-MT's: ``from``, ``to`` and ``source``, the text."""
        tree = tree_of(body)
        for key in ("from", "to", "source"):
            if not isinstance(tree.get(key), str):
                raise malformed(f"the request has no '{key}'; from, to and source are needed, each a text")
        return self._of_texts(self.models.find(tree["from"], tree["to"]), tree["source"], "source", {})

    def opennmt(self, body: bytes) -> Asked:
        """That of OpenNMT's servers: a list of ``src``, with the ``id`` of a model, its name or its number."""
        tree = _parsed(body)
        if not isinstance(tree, list) or not tree or not all(isinstance(one, dict) for one in tree):
            raise malformed('the request must be a list of objects: [{"src": "..."}]')
        if not all(isinstance(one.get("src"), str) for one in tree):
            raise malformed("each object needs a 'src', the text")
        ids = {json.dumps(one["id"]) for one in tree if "id" in one}
        if len(ids) > 1:
            raise malformed("all texts of a request must have the same 'id'")
        name = json.loads(ids.pop()) if ids else None
        if type(name) is int and 0 <= name < len(self.models.all):
            name = self.models.all[name].name
        model = self.models.find(name=None if name is None else str(name))
        return self._of_texts(model, [one["src"] for one in tree], "src", {})

    def _of_texts(self, model: Model, given: object, key: str, options: Mapping[str, Any]) -> Asked:
        """Texts of several lines, each line of which is translated."""
        texts: list[Any] = given if isinstance(given, list) else [given]
        if not all(isinstance(text, str) for text in texts):
            raise malformed(f"'{key}' must be a text or a list of texts")
        parted = [text.split("\n") for text in texts]
        lines = self._limited([Line(_clean(line)) for part in parted for line in part])
        counts = tuple(map(len, parted))
        return Asked(model, lines, options, single=not isinstance(given, list), counts=counts)

    def _limited(self, lines: Sequence[Line]) -> tuple[Line, ...]:
        if not lines:
            raise wrong("there is no text to translate")
        if len(lines) > self.config.max_lines:
            raise too_large(f"{len(lines):,} lines are more than the {self.config.max_lines:,} that a request may have")
        limit = self.config.max_line_chars
        for number, line in enumerate(lines, 1):
            parts = (line.text, line.prefix, *line.include, *line.exclude)
            if any(len(part) > limit for part in parts):
                raise too_large(f"text {number} has more than {limit:,} characters; send its sentences one by one")
        return tuple(lines)


def _clean(text: str) -> str:
    """As nmt-generate reads lines."""
    return text.removesuffix("\r").replace("\0", "\ufffd")


def tree_of(body: bytes) -> dict[str, Any]:
    """A JSON object."""
    tree = _parsed(body)
    if not isinstance(tree, dict):
        raise malformed("the request must be a JSON object: {...}")
    return tree


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_number)
    except RecursionError:
        raise malformed("the request is no JSON that can be read: it is nested too deeply") from None
    except ValueError as error:
        raise malformed(f"the request is no JSON ({error})") from None


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


def _fields_of(body: bytes, kind: str) -> dict[str, Any]:
    """JSON, or the fields of a form, as ``kind`` (Content-Type) says."""
    media = kind.partition(";")[0].strip().lower()
    if media.startswith("multipart/"):
        sentence = "send JSON or an application/x-www-form-urlencoded form, not parts"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, sentence)
    if media != "application/x-www-form-urlencoded" or body.lstrip().startswith(b"{"):  # curl calls everything a form
        return tree_of(body)
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=100)
    except ValueError as error:
        raise malformed(f"the form cannot be read ({error})") from None
    found: dict[str, Any] = {name: values[-1] for name, values in fields.items()}
    if len(fields.get("q", ())) > 1:
        found["q"] = fields["q"]
    if isinstance(found.get("q"), str):
        found["q"] = found["q"].replace("\r\n", "\n")
    return found


def _text_or_none(tree: Mapping[str, Any], key: str) -> str | None:
    value = tree.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong(f'"{key}" must be a text')
    return value
