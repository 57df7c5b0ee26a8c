"""Language tags: a piece before each source that says into which language it is to be translated.

Johnson et al. 2017, "Google's Multilingual Neural Machine Translation System" (arXiv:1611.04558): one model for several
directions, and nothing else about it changes. The tag ``de`` is the piece ``<2de>``; in models of other toolkits it may be
``>>de<<`` or ``__de__``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from nmt.data.vocabulary import UNK, Ids, Vocabulary
from nmt.errors import UsageError

_SHAPES = ("<2{}>", ">>{}<<", "__{}__")
# Between underscores stand placeholders too, such as "__URL__": there a tag is the code of a language.
_CODES = (".+", ".+", "[a-z]{2,3}(?:[-_][A-Za-z]{2,4})?")
_SHAPE = re.compile("|".join(shape.format(f"({code})") for shape, code in zip(_SHAPES, _CODES)))
_SPACE = "\u2581"  # the piece that sentencepiece puts before a symbol at the beginning of a line


def piece_of(tag: str) -> str:
    """The piece that a vocabulary of ours has for a tag."""
    return _SHAPES[0].format(tag)


def is_tag(piece: str) -> bool:
    return _SHAPE.fullmatch(piece) is not None


def tags_of(vocabulary: Vocabulary) -> list[str]:
    """All that have a piece."""
    found = map(_SHAPE.fullmatch, vocabulary.pieces)
    return [next(filter(None, match.groups())) for match in found if match is not None]


def tag_id(vocabulary: Vocabulary, tag: str) -> int:
    """The id of a tag, or of a piece that is one."""
    for piece in (*(shape.format(tag) for shape in _SHAPES), *([tag] if is_tag(tag) else [])):
        if (number := vocabulary.id(piece)) != UNK:
            return number
    known = tags_of(vocabulary)
    there_are = f"there are: {', '.join(known)}" if known else "it has no tags"
    raise UsageError(f"the source vocabulary has no piece for the tag {tag!r}; {there_are}")


def apart(ids: Ids, vocabulary: Vocabulary) -> tuple[Ids, Ids]:
    """The tag that a sentence begins with, if it does, with the piece of a space that may stand before it; and the rest."""
    pieces = [vocabulary.pieces[number] for number in ids[:2].tolist()]
    space = int(pieces[:1] == [_SPACE])
    count = space + 1 if any(map(is_tag, pieces[space : space + 1])) else 0
    return ids[:count], ids[count:]


def tagged(sentences: Sequence[Ids], tag: Ids) -> list[Ids]:
    """With the id of a tag, or none, before each sentence that has any pieces."""
    return [np.concatenate([tag, ids]) if len(ids) and len(tag) else ids for ids in sentences]
