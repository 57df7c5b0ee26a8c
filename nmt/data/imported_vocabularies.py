"""Lists of pieces as other toolkits store them, in the order of the ids there, their specials included."""

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
from nmt.errors import DataError, MissingInputError

FAIRSEQ_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # have ids 0-3 there, and stand in no file

_COUNTED = re.compile(r"(?P<piece>.+?) (?P<count>-?\d+)(?P<overwrite> #fairseq:overwrite)?", re.DOTALL)
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*"): *(\d+)')  # as Marian writes a piece and its id
_SAFE_LOADER: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every value is text: "no" is a piece, not False


def read_fairseq_dictionary(path: Path) -> list[str]:
    """The symbols of a dict.txt (a piece and its count on each line) by their ids in fairseq.

    What fairseq reads of text has the id of the last entry, where several have one spelling (#fairseq:overwrite). Those
    before it get names that text never has; the specials keep theirs. "madeupword0000" and the like, which fill the list
    up, stand in the file.
    """
    symbols, lines = [*FAIRSEQ_SPECIALS], dict.fromkeys(FAIRSEQ_SPECIALS, 0)
    for number, line in enumerate(_lines(path), start=1):
        match = _COUNTED.fullmatch(line.rstrip())
        if match is None:
            raise DataError(f"{path}:{number}: {line[:60]!r} is not a piece and its count, as fairseq writes them")
        piece = match["piece"]
        if piece in lines and not match["overwrite"]:
            before = f"in line {lines[piece]}" if lines[piece] else "as a special symbol"
            raise DataError(
                f"{path}:{number}: {piece!r} is there already, {before}; fairseq allows that only where the line ends in "
                f"#fairseq:overwrite"
            )
        symbols.append(piece)
        lines[piece] = number
    return _told_apart(symbols)


def _told_apart(symbols: list[str]) -> list[str]:
    """All but the last of several symbols of one spelling under names of their own, with spaces, as no text has them."""
    last = {symbol: number for number, symbol in enumerate(symbols)}
    for number, symbol in enumerate(symbols):
        if number >= len(FAIRSEQ_SPECIALS) and last[symbol] != number:
            names = (f"{symbol} overwritten {count}" for count in itertools.count(1))
            symbols[number] = next(name for name in names if name not in last)
            last[symbols[number]] = number
    return symbols


def read_marian_vocabulary(path: Path) -> list[str]:
    """The pieces of a vocabulary of Marian: a sentencepiece model (.spm), a mapping of pieces to ids (.yml, .yaml or .json),
    or a list with a piece on each line."""
    if is_sentencepiece(path):
        with damage_named(path):
            model = sentencepiece.SentencePieceProcessor(model_proto=read_foreign_model(path))
        return _checked(path, model.id_to_piece(list(range(model.vocab_size()))))
    if path.suffix in (".yml", ".yaml", ".json"):
        return _in_order(path, _mapping(path))
    lines = _lines(path)
    if "" in lines:
        raise DataError(f"{path}:{lines.index('') + 1} is empty; a vocabulary of Marian has a piece on each line")
    return _checked(path, lines)


def is_sentencepiece(path: Path) -> bool:
    """Whether Marian takes a vocabulary for a sentencepiece model."""
    return path.suffix in (".spm", ".model")


def read_huggingface_vocabulary(path: Path) -> list[str]:
    """The pieces of a vocab.json: a mapping of pieces to ids."""
    try:
        return _in_order(path, json.loads(_text(path)))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error})") from None


def read_ctranslate2_vocabulary(path: Path) -> list[str]:
    """The pieces of a ..._vocabulary.json: a list."""
    try:
        pieces = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: it is not JSON ({error})") from None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise DataError(f"{path} is damaged: it is no list of pieces")
    return _checked(path, pieces)


def _mapping(path: Path) -> Any:
    """A mapping in YAML. Marian writes one line for each piece, whose reading by the library takes a minute."""
    text = _text(path)
    lines = [line for line in text.split("\n") if line.strip()]
    matches = [_QUOTED.fullmatch(line.rstrip()) for line in lines]
    try:
        if all(matches):
            with contextlib.suppress(json.JSONDecodeError):  # YAML has escapes that JSON has not
                pairs = [(json.loads(match[1]), int(match[2])) for match in matches if match]
                return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs
        tree = yaml.load(text, _SAFE_LOADER)  # builds lists, dicts and text only
        return {piece: int(number) for piece, number in tree.items()}
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError):
        raise DataError(f"{path} is damaged: it is no mapping of pieces to ids") from None


def _in_order(path: Path, ids: Any) -> list[str]:
    """The pieces by their ids, which must be 0, 1, 2, ..."""
    whole = isinstance(ids, Mapping) and all(isinstance(piece, str) for piece in ids)
    if not whole or not all(type(number) is int for number in ids.values()):
        raise DataError(f"{path} is damaged: it is no mapping of pieces to ids, each piece once")
    pieces = sorted(ids, key=ids.__getitem__)
    for expected, piece in enumerate(pieces):
        if ids[piece] != expected:
            raise DataError(
                f"{path} has no piece with id {expected}, or two with id {ids[piece]}; ids must have no gaps"
            )
    return _checked(path, pieces)


def _checked(path: Path, pieces: list[str]) -> list[str]:
    if not pieces:
        raise DataError(f"{path} is empty")
    twice, count = Counter(pieces).most_common(1)[0]
    if count > 1:
        raise DataError(f"{path} holds {twice!r} twice; each piece once")
    try:
        "".join(pieces).encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{path} is damaged: a piece holds {error.object[error.start]!r}, which is no character"
        ) from None
    return pieces


def _lines(path: Path) -> list[str]:
    """Only a line feed ends a line: a piece may hold any other character."""
    lines = _text(path).split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise MissingInputError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is damaged: byte {error.start} is not UTF-8") from None
