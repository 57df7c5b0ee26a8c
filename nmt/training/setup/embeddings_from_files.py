"""Embeddings of tokens from files, for new runs: word2vec's text format, or safetensors."""

from __future__ import annotations

import contextlib
import logging
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nmt.config.choices import WORD_START
from nmt.config.sections import TrainConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.text.lines import Reading
from nmt.data.vocabulary import Floats, Vocabulary
from nmt.errors import DataError, UsageError
from nmt.interface import EncoderDecoder
from nmt.models import models
from nmt.models.vocabulary_axes import vocabulary_axes
from nmt.storage.tensor_file import read_tensors

logger = logging.getLogger("nmt.training")

FORMATS = "give a text file in the format of word2vec, or a .safetensors file"
Rows = dict[int, Tensor]  # vectors by token id


def fill_embeddings(config: TrainConfig, model: EncoderDecoder, pair: LanguagePair, *, is_new: bool) -> None:
    """Copy the vectors of files to the embeddings of a new run's model, and freeze these rows if options say so."""
    options = config.parameters
    for side, path in (("source", options.source_embeddings), ("target", options.target_embeddings)):
        if path is None or not (is_new or options.freeze_embeddings):
            continue
        vocabulary: Vocabulary = getattr(pair, side).vocabulary
        weight = _embedding(config, model, pair, side)
        rows = _rows(Path(path), vocabulary, weight.size(1))
        ids = torch.tensor(sorted(rows), dtype=torch.int64, device=weight.device)
        if is_new:
            with torch.no_grad():
                weight[ids] = torch.stack([rows[number] for number in sorted(rows)]).to(weight)
            logger.info("%s of %s %s embeddings start from %s", f"{len(rows):,}", f"{len(weight):,}", side, path)
        if options.freeze_embeddings and weight.requires_grad:
            weight.register_hook(partial(torch.index_fill, dim=0, index=ids, value=0))  # type: ignore[no-untyped-call]


def _embedding(config: TrainConfig, model: EncoderDecoder, pair: LanguagePair, side: str) -> nn.Parameter:
    """Return the embedding matrix of the tokens of a side; a joint vocabulary has one matrix for both."""
    axes = vocabulary_axes(partial(models.build, config.model), pair.sizes)
    owners = dict(model.named_modules())
    for name, place in axes.items():
        path, _, own = name.rpartition(".")
        if isinstance(owners.get(path), nn.Embedding) and own == "weight" and (place.side == side or pair.shared):
            return model.get_parameter(name)
    raise UsageError(
        f"--{side}-embeddings: this {models.name_of(type(config.model))} has no embeddings of {side} tokens; omit the option"
    )


def _rows(path: Path, vocabulary: Vocabulary, width: int) -> Rows:
    rows = _of_safetensors(path, vocabulary) if path.suffix == ".safetensors" else _of_text(path, vocabulary)
    first = next(iter(rows.values()), None)
    if first is None:
        raise DataError(f"{path} has no vector for any token of the vocabulary; use vectors of this language and case")
    if len(first) != width:
        raise DataError(f"{path} has vectors of {len(first)} numbers, but this model needs vectors of {width}")
    return rows


def _of_safetensors(path: Path, vocabulary: Vocabulary) -> Rows:
    """Read the only matrix of a file, whose rows are in the order of the vocabulary."""
    matrices = [tensor for tensor in read_tensors(path).values() if tensor.dim() == 2]
    if len(matrices) != 1 or len(matrices[0]) != len(vocabulary):
        shapes = ", ".join(str(list(tensor.shape)) for tensor in matrices) or "none"
        raise DataError(
            f"{path} must hold one matrix with {len(vocabulary)} rows, one for each token; it has: {shapes}"
        )
    matrix = matrices[0].float()
    is_floating = matrices[0].is_floating_point()
    if not (is_floating and bool(matrix.isfinite().all())):
        fault = "NaN or infinity" if is_floating else f"numbers of type {matrices[0].dtype}".replace("torch.", "")
        raise DataError(f"{path} has {fault}; give a matrix of finite floating-point numbers, such as float32")
    return dict(enumerate(matrix))


def _of_text(path: Path, vocabulary: Vocabulary) -> Rows:
    """Read lines of a token and its numbers; word2vec's first line, two counts, is skipped. If tokens of the vocabulary mark
    the beginning of a word, and those of the file do not, the file has vectors of whole words."""
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    words = {piece.removeprefix(WORD_START): number for piece, number in ids.items() if piece.startswith(WORD_START)}
    of_tokens, of_words, is_marked, width = Rows(), Rows(), not words, 0
    for number, line in enumerate(Reading(advice=FORMATS).lines(path), 1):
        token, *numbers = (line or "").rstrip().split(" ")
        if number == 1 and len(numbers) == 1 and token.isdecimal():
            continue
        width = width or len(numbers)
        if len(numbers) != width or not numbers:
            expected = width or "numbers, separated by spaces"
            raise DataError(f"{path}:{number} has {len(numbers)} numbers after the token; expected {expected}")
        is_marked = is_marked or token.startswith(WORD_START)
        if token in ids or token in words:
            vector = torch.from_numpy(_vector(numbers, f"{path}:{number}"))
            for names, rows in ((ids, of_tokens), (words, of_words)):
                if token in names:
                    rows.setdefault(names[token], vector)
    return of_tokens if is_marked else of_words


def _vector(numbers: list[str], place: str) -> Floats:
    with contextlib.suppress(ValueError), np.errstate(over="ignore"):
        vector = np.array(numbers, dtype=np.float32)
        if np.isfinite(vector).all():
            return vector
    shown = " ".join(numbers)[:60]
    raise DataError(f"{place}: the vector '{shown}' must have finite numbers only; correct it, or omit this token")
