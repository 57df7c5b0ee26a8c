"""Describe the attention heads of a trained model in figures, and draw the clearest head of each kind of attention.

    python examples/multi30k/name_heads.py runs/multi30k_raw/run val.en val.de heads.svg --draw "Two dogs are running ..."

Reads sentences and their translations from two files, plain or gzip-compressed. Figures of a head, over all attending
tokens:

    distance   mean distance from the attending to the attended token in tokens, weighted by attention
    entropy    entropy of a row of weights in bits; 0: one token gets all weight
    diagonal   share of the weight within one token of the attending token; in cross attention, within one token of the
               same relative position in the other sentence
    does       named target (see NAMED) that gets the most weight
    share      share of the weight on that target

The table on standard output is sorted by share. The picture shows the head with the largest share of each kind of
attention, for the sentence --draw.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

import nmt
from nmt.data.text.lines import Reading
from nmt.errors import DataError, NMTError, UsageError
from nmt.plotting import LinesPanel, plot_attention_lines
from nmt.reporting.sentence_attention import SentenceAttention, starts_of_words

Mask = npt.NDArray[np.bool_]  # [rows, columns]
Figures = npt.NDArray[np.float64]
Columns = Sequence[str]


def offset(places: int) -> Callable[[int, Columns], Mask]:
    """Return the mask of the token ``places`` positions after the attending token."""
    return lambda rows, columns: np.eye(rows, len(columns), places, dtype=bool)


def marks(*pieces: str) -> Callable[[int, Columns], Mask]:
    """Return the mask of certain tokens, at any position."""
    return lambda rows, columns: np.tile([piece.strip("\u2581") in pieces for piece in columns], (rows, 1))


def own_word(rows: int, columns: Columns) -> Mask:
    """Return the mask of the other tokens in the word of the attending token."""
    word = np.cumsum(np.isin(np.arange(len(columns)), starts_of_words(columns)))
    return (word[:, None] == word) & ~np.eye(rows, len(columns), dtype=bool)


def same_place(rows: int, columns: Columns) -> Mask:
    """Return the mask of tokens within one token of the same relative position in the other sentence."""
    return np.abs(along(rows, len(columns))) <= 1


def apart(rows: int, columns: int) -> Figures:
    """Return the signed distance from each row to each column in one sentence. [rows, columns]"""
    return (np.arange(columns) - np.arange(rows)[:, None]).astype(np.float64)


def along(rows: int, columns: int) -> Figures:
    """Return the signed distance from the relative position of each row to each column of the other sentence.

    [rows, columns]
    """
    places = np.arange(rows) * ((columns - 1) / max(1, rows - 1))
    return np.arange(columns) - places[:, None]


# Targets of attention by kind of attention: their name and their mask.
NAMED: dict[str, dict[str, Callable[[int, Columns], Mask]]] = {
    "encoder": {
        "the token before": offset(-1),
        "the token itself": offset(0),
        "the token after": offset(1),
        "two tokens before": offset(-2),
        "two tokens after": offset(2),
        "the rest of the word": own_word,
        "the end of the sentence": marks("</s>"),
        "full stop and comma": marks(".", ","),
    },
    "decoder": {
        "the last token written": offset(0),
        "the one before it": offset(-1),
        "the start of the sentence": marks("<s>"),
    },
    "cross": {
        "the same place in the source": same_place,
        "the end of the source": marks("</s>"),
        "full stop and comma": marks(".", ","),
    },
}


@dataclass(frozen=True)
class Head:
    """The figures of a head; layer and number count from 1."""

    kind: str
    layer: int
    number: int
    distance: float
    entropy: float
    diagonal: float
    does: str
    share: float


def heads(sentences: Sequence[SentenceAttention]) -> Iterator[Head]:
    """Yield all heads of the model that computed the attention of these sentences. Empty sentences are skipped."""
    sentences = [one for one in sentences if one.source]
    if not sentences:
        raise DataError("the text has only empty lines; give sentences")
    if lacking := [kind for kind in NAMED if kind not in sentences[0].weights]:
        raise UsageError(f"the model has no attention of this kind: {', '.join(lacking)}; name a Transformer")
    for kind, named in NAMED.items():
        maps = [one.weights[kind].astype(np.float64) for one in sentences]  # [L, H, R, C] each
        sides = [(len(one.rows(kind)), one.columns(kind)) for one in sentences]
        far = [
            np.abs(along(rows, len(columns)) if kind == "cross" else apart(rows, len(columns)))
            for rows, columns in sides
        ]
        distance = mean_over_rows(maps, far)
        diagonal = mean_over_rows(maps, [away <= 1 for away in far])
        entropy = mean_over_rows(
            [-weights * np.log2(np.maximum(weights, 1e-12)) for weights in maps], [1.0] * len(maps)
        )
        shares = {name: mean_over_rows(maps, [mask(*side) for side in sides]) for name, mask in named.items()}
        for layer, head in np.ndindex(distance.shape):
            share, does = max((float(table[layer, head]), name) for name, table in shares.items())
            figures = (float(table[layer, head]) for table in (distance, entropy, diagonal))
            yield Head(kind, layer + 1, head + 1, *figures, does, share)


def mean_over_rows(maps: Sequence[Figures], factors: Sequence[npt.ArrayLike]) -> Figures:
    """Sum each row of ``maps`` [L, H, R, C] times ``factors`` [R, C], and return the mean over all rows. [L, H]"""
    total: Figures = np.sum([(weights * factor).sum((2, 3)) for weights, factor in zip(maps, factors)], axis=0)
    return total / sum(weights.shape[2] for weights in maps)


def best_of_each_kind(ranked: Sequence[Head]) -> list[Head]:
    """Return the first head of each kind. ``ranked``: heads sorted by share."""
    return [next(head for head in ranked if head.kind == kind) for kind in NAMED]


def draw(model: str, found: Sequence[Head], sentence: str, output: Path) -> None:
    """Draw the heads next to each other, for one sentence and its translation."""
    (one,) = nmt.attention(model, [sentence])
    panels = []
    for head in found:
        weights = one.weights[head.kind][head.layer - 1]
        title = f"{head.kind} {head.layer}.{head.number}: {head.does}"
        rows, columns = one.rows(head.kind), one.columns(head.kind)
        panels.append(LinesPanel(rows, columns, weights[[head.number - 1]], [head.number], len(weights), title))
    plot_attention_lines(panels, output)


def main() -> None:
    parser = argparse.ArgumentParser(description="Describe the attention heads of a model, and draw three of them.")
    parser.add_argument("model", help="run folder or checkpoint")
    parser.add_argument("sources", type=Path, help="sentences, one per line")
    parser.add_argument("translations", type=Path, help="their translations, line for line")
    parser.add_argument("output", type=Path, help="picture to write, .svg or .png")
    parser.add_argument("--lines", type=int, default=200, help="number of sentences to read (200)")
    parser.add_argument("--draw", help="sentence to draw; default: the first non-empty one of the file")
    arguments = parser.parse_args()
    if arguments.lines < 1:
        parser.error(f"--lines must be at least 1, not {arguments.lines}")
    if arguments.draw is not None and not arguments.draw.strip():
        parser.error("--draw is empty; omit it for the first sentence of the file")
    try:
        sources, translations = (
            [line or "" for line in islice(Reading().lines(path), arguments.lines)]
            for path in (arguments.sources, arguments.translations)
        )
        ranked = sorted(heads(nmt.attention(arguments.model, sources, translations)), key=lambda head: -head.share)
        print(
            "| attention | layer | head | distance | entropy | diagonal | does | share |\n|---|---|---|---|---|---|---|---|"
        )
        for head in ranked:
            figures = f"{head.distance:.1f} | {head.entropy:.2f} | {head.diagonal:.2f}"
            print(f"| {head.kind} | {head.layer} | {head.number} | {figures} | {head.does} | {head.share:.2f} |")
        draw(
            arguments.model,
            best_of_each_kind(ranked),
            arguments.draw or next(filter(str.strip, sources)),
            arguments.output,
        )
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
