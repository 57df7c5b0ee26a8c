"""Sentencepiece models with fewer tokens. They cut text that needed a dropped token into smaller tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from itertools import pairwise

import sentencepiece

from nmt.data.tokenizers.sentencepiece import SentencePieceTokenizer
from nmt.data.tokenizers.sentencepiece_list import SentencePieceList
from nmt.data.vocabulary import SPECIALS

_PIECES = 1  # field of a model in sentencepiece_model.proto; the first field of a piece is its text


def needed_tokens(tokenizer: SentencePieceTokenizer, tokens: Set[str]) -> set[str]:
    """Return ``tokens``, those that the same cuts of text need, and those that all characters need."""
    scores, vocabulary = tokenizer.scores(), tokenizer.vocabulary.pieces[len(SPECIALS) :]
    model = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model_bytes())
    symbols = set(model.id_to_piece(list(range(model.vocab_size())))).difference(scores)  # bytes, special tokens, tags
    characters = {piece for piece in vocabulary if len(piece) == 1}
    # the vocabulary of an imported model may lack a character that longer tokens contain
    rare = {piece for piece in vocabulary if piece in scores and not characters.issuperset(piece)}
    needed = {*tokens, *symbols, *characters, *rare}
    if tokenizer.is_kind("bpe"):
        needed.update(*(_merges(piece, scores) for piece in needed & scores.keys()))
    return needed


def without_tokens(tokenizer: SentencePieceTokenizer, dropped: Set[str]) -> SentencePieceTokenizer:
    """Return a tokenizer without some of its tokens; the others keep their order."""
    kept = (
        whole
        for number, content, whole in _fields(tokenizer.model_bytes())
        if number != _PIECES or next(_fields(content))[1].decode("utf-8") not in dropped
    )
    model = b"".join(kept)
    if isinstance(tokenizer, SentencePieceList):
        pieces = (piece for piece in tokenizer.vocabulary.pieces[len(SPECIALS) :] if piece not in dropped)
        return SentencePieceList(tokenizer.config, model, pieces)
    return SentencePieceTokenizer(tokenizer.config, model)


def _merges(piece: str, scores: Mapping[str, float]) -> list[str]:
    """Return the tokens that byte-pair encoding makes on its way from characters to a token."""
    parts, made = [*piece], list[str]()
    while True:
        pairs = (left + right for left, right in pairwise(parts))
        known = [(scores[pair], -place) for place, pair in enumerate(pairs) if pair in scores]
        if not known:
            return made
        place = -max(known)[1]  # the highest score, and of equal ones the first
        parts[place : place + 2] = ["".join(parts[place : place + 2])]
        made.append(parts[place])


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield fields of protocol buffers as long as they hold text or messages: number, content, and the whole field."""
    place = 0
    while place < len(message):
        begin = place
        key, place = _varint(message, place)
        length, place = _varint(message, place)
        content = message[place : place + length]
        place += length
        yield key >> 3, content, message[begin:place]


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, lowest first, and the place after it."""
    number = shift = 0
    while message[place] > 127:
        number |= (message[place] & 127) << shift
        place, shift = place + 1, shift + 7
    return number | message[place] << shift, place + 1
