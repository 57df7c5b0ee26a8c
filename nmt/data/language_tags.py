"""Language tags: a token before each source that names the target language.

Johnson et al. 2017, "Google's Multilingual Neural Machine Translation System" (arXiv:1611.04558): one model for several
directions, without other changes. The tag ``de`` is the token ``<2de>``; in models of other toolkits it may be ``>>de<<`` or
``__de__``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from nmt.config.choices import WORD_START
from nmt.data.vocabulary import UNK, Ids, Vocabulary
from nmt.errors import UsageError

_SHAPES = ("<2{}>", ">>{}<<", "__{}__")
# Placeholders such as "__URL__" have underscores too: there a tag must be a language code.
_CODES = (".+", ".+", "[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")
_SHAPE = re.compile("|".join(shape.format(f"({code})") for shape, code in zip(_SHAPES, _CODES)))


def piece_of(tag: str) -> str:
    """Return the token of a tag in vocabularies made by nmt."""
    return _SHAPES[0].format(tag)


def is_tag(piece: str) -> bool:
    return _SHAPE.fullmatch(piece) is not None


def tags_of(vocabulary: Vocabulary) -> list[str]:
    """Return the tags of a vocabulary."""
    matches = map(_SHAPE.fullmatch, vocabulary.pieces)
    return [next(filter(None, match.groups())) for match in matches if match is not None]


def tag_id(vocabulary: Vocabulary, tag: str) -> int:
    """Return the id of a tag, also if it is spelled as its token."""
    for piece in (*(shape.format(tag) for shape in _SHAPES), *([tag] if is_tag(tag) else [])):
        if (number := vocabulary.id(piece)) != UNK:
            return number
    known = tags_of(vocabulary)
    there_are = f"there are: {', '.join(known)}" if known else "it has no tags"
    raise UsageError(f"the source vocabulary has no token for the tag {tag!r}; {there_are}")


def split_tag(ids: Ids, vocabulary: Vocabulary) -> tuple[Ids, Ids]:
    """Split a sentence into its tag (or none), with a space token before it, and the rest."""
    pieces = [vocabulary.pieces[number] for number in ids[:2].tolist()]
    space = int(pieces[:1] == [WORD_START])  # sentencepiece puts it before a symbol that begins a line
    count = space + 1 if any(map(is_tag, pieces[space : space + 1])) else 0
    return ids[:count], ids[count:]


def tagged(sentences: Sequence[Ids], tag: Ids) -> list[Ids]:
    """Put the id of a tag, or none, before each sentence that is not empty."""
    return [np.concatenate([tag, ids]) if len(ids) and len(tag) else ids for ids in sentences]
