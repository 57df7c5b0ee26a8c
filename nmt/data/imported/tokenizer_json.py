"""A tokenizer.json of Hugging Face, turned into the sentencepiece model that it was made of.

transformers 5 saves the tokenizers of NLLB, mBART-50 and T5 only in this form. The sentencepiece model is a message of
protocol buffers; the numbers of its fields are those of sentencepiece_model.proto.
"""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import DataError
from nmt.storage.reading import read_mapping

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6  # types of tokens
_KINDS = {"Unigram": 1, "BPE": 2}
_SPACES = {"Replace", "Strip"}  # normalizers that sentencepiece applies too


@dataclass(frozen=True)
class TokenizerJson:
    """The ids of all tokens, and a sentencepiece model."""

    ids: Mapping[str, int]
    model: bytes

    @classmethod
    def read(cls, path: Path) -> TokenizerJson:
        try:
            return cls._of(read_mapping(path))
        except (KeyError, TypeError, ValueError, AttributeError, struct.error) as error:
            raise DataError(f"{path} is damaged, or not a tokenizer of NLLB, mBART-50 or T5: {error!r}") from None

    @classmethod
    def _of(cls, tree: Mapping[str, Any]) -> TokenizerJson:
        model, normalizer, added = tree["model"], tree.get("normalizer") or {}, _added(tree)
        steps = {step["type"]: step for step in normalizer.get("normalizers", [normalizer] if normalizer else [])}
        if other := steps.keys() - _SPACES - {"Precompiled"}:
            raise ValueError(f"normalizer {min(other)}")
        table = base64.b64decode(steps["Precompiled"]["precompiled_charsmap"]) if "Precompiled" in steps else b""
        scores = _scores(model)
        ids = {
            **(model["vocab"] if isinstance(model["vocab"], dict) else dict(zip(scores, itertools.count()))),
            **added,
        }
        pieces = [("<unk>", 0.0, _UNKNOWN), ("<s>", 0.0, _CONTROL), ("</s>", 0.0, _CONTROL)]
        special = {*added, "<unk>", "<s>", "</s>", "<pad>"}
        kinds = {f"<0x{number:02X}>": _BYTE for number in range(256) if model.get("byte_fallback")}
        pieces += [(token, score, kinds.get(token, _NORMAL)) for token, score in scores.items() if token not in special]
        return cls(ids, _message(pieces, _KINDS[model["type"]], table, in_bytes=bool(kinds)))


def added_tokens(path: Path) -> dict[str, int]:
    """Return the ids of the added tokens of a tokenizer.json."""
    try:
        return _added(read_mapping(path))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error!r}") from None


def _added(tree: Mapping[str, Any]) -> dict[str, int]:
    return {str(token["content"]): int(token["id"]) for token in tree.get("added_tokens", [])}


def _scores(model: Mapping[str, Any]) -> dict[str, float]:
    """Return the score of each token in the order of ids. In byte-pair encoding, earlier merges have higher scores."""
    if model["type"] == "Unigram":
        return {str(token): float(score) for token, score in model["vocab"]}
    merges = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    ranks = {token: rank for rank, token in enumerate(dict.fromkeys(map("".join, merges)))}
    return {token: -float(ranks.get(token, len(ranks))) for token in sorted(model["vocab"], key=model["vocab"].get)}


def _message(pieces: Iterable[tuple[str, float, int]], kind: int, table: bytes, *, in_bytes: bool) -> bytes:
    """Write the model: tokens (field 1), options of training (2), normalization (3). ``in_bytes``: unknown text is."""
    parts = [
        _field(1, _field(1, token.encode()) + b"\x15" + struct.pack("<f", score) + b"\x18" + _varint(number))
        for token, score, number in pieces
    ]
    training = b"\x18" + _varint(kind) + _varint(35 << 3) + _varint(in_bytes)
    return b"".join([*parts, _field(2, training), _field(3, _field(2, table))])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, lowest first; the highest bit says that another byte follows."""
    content = bytearray()
    while number > 127:
        content.append(number & 127 | 128)
        number >>= 7
    return bytes([*content, number])
