"""Vocabularies of other toolkits: tokens in the order of their ids, special ones included."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sentencepiece
import yaml

from nmt.data.tokenizers.sentencepiece_files import damage_named, read_foreign_model
from nmt.errors import DataError
from nmt.storage.reading import parse_yaml, read_file, read_json

FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0-3 in fairseq; dict.txt does not list them

_COUNTED = re.compile(r"(?P<piece>.+?) (?P<count>-?\d+)(?P<overwrite> #fairseq:overwrite)?", re.DOTALL)
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*"): *(\d+)')  # as Marian writes a piece and its id
_SAFE_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every value is text: "no" is a piece, not False


def read_fairseq_dictionary(path: Path) -> list[str]:
    """Read the symbols of a dict.txt (a token and its count on each line) by their ids in fairseq.

    If several entries have one spelling (#fairseq:overwrite), fairseq encodes text with the last of them. Earlier ones get
    names that never occur in text; special symbols keep theirs. Filler entries such as "madeupword0000" are in the file.
    """
    symbols, lines = [*FAIRSEQ_SPECIALS], dict.fromkeys(FAIRSEQ_SPECIALS, 0)
    for number, line in enumerate(_lines(path), start=1):
        match = _COUNTED.fullmatch(line.rstrip())
        if match is None:
            raise DataError(f"{path}:{number}: {line[:60]!r} is not a token and its count, as fairseq writes them")
        piece = match["piece"]
        if piece in lines and not match["overwrite"]:
            before = f"is also in line {lines[piece]}" if lines[piece] else "is a special symbol"
            raise DataError(
                f"{path}:{number}: {piece!r} {before}; fairseq allows that only if the line ends in #fairseq:overwrite"
            )
        symbols.append(piece)
        lines[piece] = number
    return _told_apart(symbols)


def _told_apart(symbols: list[str]) -> list[str]:
    """Rename all but the last of equal symbols, with spaces, which no token of text has."""
    last = {symbol: number for number, symbol in enumerate(symbols)}
    for number, symbol in enumerate(symbols):
        if number >= len(FAIRSEQ_SPECIALS) and last[symbol] != number:
            names = (f"{symbol} overwritten {count}" for count in itertools.count(1))
            symbols[number] = next(name for name in names if name not in last)
            last[symbols[number]] = number
    return symbols


def read_marian_vocabulary(path: Path) -> list[str]:
    """Read a vocabulary of Marian: a sentencepiece model (.spm), a mapping of tokens to ids (.yml, .yaml or .json), or a
    list with a token on each line."""
    if is_sentencepiece(path):
        with damage_named(path):
            model = sentencepiece.SentencePieceProcessor(model_proto=read_foreign_model(path))
        return _checked(path, model.id_to_piece(list(range(model.vocab_size()))))
    if path.suffix in (".yml", ".yaml", ".json"):
        return _in_order(path, _mapping(path))
    lines = _lines(path)
    if "" in lines:
        raise DataError(f"{path}:{lines.index('') + 1} is empty; a Marian vocabulary has a token on each line")
    return _checked(path, lines)


def is_sentencepiece(path: Path) -> bool:
    """Whether Marian takes a vocabulary for a sentencepiece model."""
    return path.suffix in (".spm", ".model")


def read_huggingface_vocabulary(path: Path) -> list[str]:
    """Read a vocab.json: a mapping of tokens to ids."""
    return _in_order(path, read_json(path))


def read_ctranslate2_vocabulary(path: Path) -> list[str]:
    """Read a ..._vocabulary.json: a list of tokens."""
    pieces = read_json(path)
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise DataError(f"{path} is damaged: it is not a list of tokens")
    return _checked(path, pieces)


def _mapping(path: Path) -> Any:
    """Read a mapping in YAML. Marian's one line for each token is parsed here, since the library needs a minute."""
    text = _text(path)
    lines = [line for line in text.split("\n") if line.strip()]
    matches = [_QUOTED.fullmatch(line.rstrip()) for line in lines]
    try:
        if all(matches):
            with contextlib.suppress(json.JSONDecodeError):  # YAML has escapes that JSON has not
                pairs = [(json.loads(match[1]), int(match[2])) for match in matches if match]
                return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs
        tree = parse_yaml(text.encode(), _SAFE_LOADER)  # builds lists, dicts and text only
        return {piece: int(number) for piece, number in tree.items()}
    except (ValueError, TypeError, AttributeError):
        raise DataError(f"{path} is damaged: it is not a mapping of tokens to ids") from None


def _in_order(path: Path, ids: Any) -> list[str]:
    """Sort tokens by their ids, which must be 0, 1, 2, ..."""
    whole = isinstance(ids, Mapping) and all(isinstance(piece, str) for piece in ids)
    if not whole or not all(type(number) is int for number in ids.values()):
        raise DataError(f"{path} is damaged: it is not a mapping of tokens to ids, each token once")
    pieces = sorted(ids, key=ids.__getitem__)
    for expected, piece in enumerate(pieces):
        if ids[piece] != expected:
            raise DataError(
                f"{path} has no token with id {expected}, or two with id {ids[piece]}; ids must have no gaps"
            )
    return _checked(path, pieces)


def _checked(path: Path, pieces: list[str]) -> list[str]:
    if not pieces:
        raise DataError(f"{path} is empty")
    twice, count = Counter(pieces).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path} holds {twice!r} twice; delete one of them")
    try:
        "".join(pieces).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{path} is damaged: a token holds {error.object[error.start]!r}, which is not a character"
        ) from None
    return pieces


def _lines(path: Path) -> list[str]:
    """Only a line feed ends a line: a token may contain any other character."""
    lines = _text(path).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _text(path: Path) -> str:
    try:
        return read_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: byte {error.start} is not UTF-8") from None
