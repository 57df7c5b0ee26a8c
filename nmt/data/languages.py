"""Languages of a multilingual model: the tokens that name them, and where the model reads these tokens.

A source may begin with the token of its own language (M2M100, NLLB, mBART-50) or of the target language (Johnson et al.
2017, "Google's Multilingual Neural Machine Translation System", arXiv:1611.04558). A translation may begin with the token of
the target language: the search forces it, and the text does not contain it. In vocabularies made by nmt, the token of ``de``
is ``<2de>``; in models of other toolkits it may be ``>>de<<``, ``__de__``, or the code itself.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from nmt.config.choices import WORD_START
from nmt.data.vocabulary import Ids, Vocabulary
from nmt.errors import UsageError

_SHAPES = ("<2{}>", ">>{}<<", "__{}__")
# Placeholders such as "__URL__" have underscores too: there a tag must be a language code.
_CODES = (".+", ".+", "[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")
_SHAPE = re.compile("|".join(shape.format(f"({code})") for shape, code in zip(_SHAPES, _CODES)))
_LISTED = 20  # most languages that a message lists
STORED = "pair.json of the model"
_CLOSE = 0.6  # similarity of a code that a message suggests, by difflib


class SourceToken(Enum):
    """The language whose token begins each source."""

    none = "none"
    source = "source"
    target = "target"


@dataclass(frozen=True)
class LanguageTokens:
    """Tokens that name the languages of a model, and where the model reads them."""

    tokens: Mapping[str, str] = field(hash=False)  # language code -> token of the vocabulary
    source: SourceToken = SourceToken.target
    target: bool = False  # whether each translation begins with the token of the target language
    trained: tuple[str, ...] = ()  # directions of the training text, such as "en-de"; empty: unknown
    zero_shot: tuple[str, ...] = ()  # directions that were validated without training text

    def plain(self) -> dict[str, Any]:
        """Return the tree that ``pair.json`` stores."""
        directions = {"trained": [*self.trained], "zero_shot": [*self.zero_shot]}
        tree = {"tokens": dict(self.tokens), "source": self.source.value, "target": self.target}
        return tree | {name: listed for name, listed in directions.items() if listed}

    @classmethod
    def of_plain(cls, tree: object) -> LanguageTokens:
        """Return the tokens of a stored tree. A wrong tree raises ``ValueError``."""
        required, optional = {"tokens", "source", "target"}, {"trained", "zero_shot"}
        if not isinstance(tree, dict) or not required <= tree.keys() <= required | optional:
            raise ValueError("languages must have the keys tokens, source and target")
        tokens = tree["tokens"]
        if not isinstance(tokens, dict) or not all(isinstance(token, str) for token in tokens.values()):
            raise ValueError("languages.tokens must map language codes to tokens")
        directions = {name: tuple(map(str, tree[name])) for name in optional & tree.keys()}
        return cls(tokens, SourceToken(tree["source"]), tree["target"] is True, **directions)

    @property
    def read(self) -> tuple[Mapping[str, str], SourceToken, bool]:
        """How a model reads the languages: models with the same can form an ensemble."""
        return self.tokens, self.source, self.target

    def code(self, name: str) -> str | None:
        """Return the code of a language that is named by its code or its token; None if there is none."""
        if name in self.tokens:
            return name
        return next((code for code, token in self.tokens.items() if token == name), None)

    def known(self, name: str) -> str:
        """Return the code of a language that is named by its code or its token, or empty. Refuse one that is missing."""
        code = self.code(name) if name else ""
        if code is None:
            raise self.refusal(name)
        return code

    def refusal(self, name: str, place: str = STORED) -> UsageError:
        """Return the error for a language that the model lacks. ``place``: see ``listed``."""
        codes = [*self.tokens]
        near = [code for code in codes if code.startswith(name)]
        if not near:  # scripts and countries do not make languages similar
            beginnings = {_beginning(code): code for code in reversed(codes)}
            matches = difflib.get_close_matches(_beginning(name), beginnings, 3, _CLOSE)
            near = [beginnings[match] for match in matches]
        hint = f" (did you mean {' or '.join(near[:3])}?)" if near else ""
        return UsageError(f"the model has no language '{name}'{hint}; it has {listed(codes, place)}")


class NoDirection(UsageError):
    """A request for a model of several languages does not name the languages that the model reads."""


@dataclass(frozen=True)
class Direction:
    """A direction of translation: its languages, and the ids of their tokens."""

    source_lang: str
    target_lang: str
    source: Ids = field(default_factory=lambda: np.array([], dtype=np.int64))  # before each source: one id or none
    target: tuple[int, ...] = ()  # before each translation: one id or none

    @property
    def names(self) -> tuple[str, str]:
        return self.source_lang, self.target_lang


def _beginning(code: str) -> str:
    return re.split("[_-]", code)[0]


def listed(codes: Sequence[str], place: str) -> str:
    """Return a list of languages for a message, shortened if it is long; ``place`` has the whole list."""
    more = f" and {len(codes) - _LISTED:,} more ({place} lists all)" if len(codes) > _LISTED else ""
    return f"{', '.join(codes[:_LISTED])}{more}"


def piece_of(tag: str) -> str:
    """Return the token of a language in vocabularies made by nmt."""
    return _SHAPES[0].format(tag)


def is_tag(piece: str) -> bool:
    return _SHAPE.fullmatch(piece) is not None


def tags_of(vocabulary: Vocabulary) -> dict[str, str]:
    """Return the tokens of a vocabulary that have the shape of a language token, by language code."""
    matches = [match for match in map(_SHAPE.fullmatch, vocabulary.pieces) if match is not None]
    codes = [(match[match.lastindex or 0], match) for match in matches]
    ordered = sorted(codes, key=lambda pair: -(pair[1].lastindex or 0))  # the first shape of a code wins
    tokens = {code: match[0] for code, match in ordered}
    return {code: tokens[code] for code, _ in codes}


def split_tag(ids: Ids, vocabulary: Vocabulary) -> tuple[Ids, Ids]:
    """Split a sentence into its language token (or none), with a space token before it, and the rest."""
    pieces = [vocabulary.pieces[number] for number in ids[:2].tolist()]
    space = int(pieces[:1] == [WORD_START])  # sentencepiece puts it before a symbol that begins a line
    count = space + 1 if any(map(is_tag, pieces[space : space + 1])) else 0
    return ids[:count], ids[count:]


def tagged(sentences: Sequence[Ids], tag: Ids) -> list[Ids]:
    """Put a language token, or none, before each sentence that is not empty."""
    return [np.concatenate([tag, ids]) if len(ids) and len(tag) else ids for ids in sentences]
