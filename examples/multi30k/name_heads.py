"""What the attention heads of a trained model do: each is described in figures, and those that one word describes are drawn.

    python examples/multi30k/name_heads.py runs/multi30k_raw/run val.en val.de heads.svg --draw "Two dogs are running ..."

Sentences and their translations are read from two files, gzip-compressed or not. Of each head, over all pieces that look:

    distance   from where the piece stands to where it looks, in pieces: the mean over the weights
    entropy    of a row of weights, in bits: 0 where one piece gets everything
    diagonal   share of the weight within one piece of where the piece stands; between two languages of the place that is as
               far along in the other sentence
    does       what most of its weight goes to, of the things that have a name (see NAMED), and the share of the weight

The table on standard output is sorted by that last share. Of each kind of attention the head with the largest share is
drawn, for the sentence --draw.
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
    """The piece so many places after the one that looks."""
    return lambda rows, columns: np.eye(rows, len(columns), places, dtype=bool)


def marks(*pieces: str) -> Callable[[int, Columns], Mask]:
    """Certain pieces, wherever they stand."""
    return lambda rows, columns: np.tile([piece.strip("\u2581") in pieces for piece in columns], (rows, 1))


def own_word(rows: int, columns: Columns) -> Mask:
    """The other pieces of the word that the piece belongs to."""
    word = np.cumsum(np.isin(np.arange(len(columns)), starts_of_words(columns)))
    return (word[:, None] == word) & ~np.eye(rows, len(columns), dtype=bool)


def same_place(rows: int, columns: Columns) -> Mask:
    """Within one piece of the place that is as far along in the other sentence."""
    return np.abs(along(rows, len(columns))) <= 1


def apart(rows: int, columns: int) -> Figures:
    """How far each column is behind the place of each row, of one sentence [rows, columns]."""
    return (np.arange(columns) - np.arange(rows)[:, None]).astype(np.float64)


def along(rows: int, columns: int) -> Figures:
    """The same of two sentences, where places are those that are as far along [rows, columns]."""
    places = np.arange(rows) * ((columns - 1) / max(1, rows - 1))
    return np.arange(columns) - places[:, None]


# By kind of attention: what a head may do, by its name.
NAMED: dict[str, dict[str, Callable[[int, Columns], Mask]]] = {
    "encoder": {
        "the piece before": offset(-1),
        "the piece itself": offset(0),
        "the piece after": offset(1),
        "two pieces before": offset(-2),
        "two pieces after": offset(2),
        "the rest of the word": own_word,
        "the end of the sentence": marks("</s>"),
        "full stop and comma": marks(".", ","),
    },
    "decoder": {
        "the last piece written": offset(0),
        "the one before it": offset(-1),
        "the begin of the sentence": marks("<s>"),
    },
    "cross": {
        "the same place in the source": same_place,
        "the end of the source": marks("</s>"),
        "full stop and comma": marks(".", ","),
    },
}


@dataclass(frozen=True)
class Head:
    """A head in figures; layer and number count from 1."""

    kind: str
    layer: int
    number: int
    distance: float
    entropy: float
    diagonal: float
    does: str
    share: float


def heads(sentences: Sequence[SentenceAttention]) -> Iterator[Head]:
    """All heads of the model that these sentences went through; of empty ones it has no weights."""
    sentences = [one for one in sentences if one.source]
    if not sentences:
        raise DataError("there is no sentence to look at, only empty lines")
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
    """The sum of each row of ``maps`` [L, H, R, C] times ``factors`` [R, C], and the mean of all rows [L, H]."""
    total: Figures = np.sum([(weights * factor).sum((2, 3)) for weights, factor in zip(maps, factors)], axis=0)
    return total / sum(weights.shape[2] for weights in maps)


def best_of_each_kind(ranked: Sequence[Head]) -> list[Head]:
    """Of heads that are sorted by their share, the first of each kind."""
    return [next(head for head in ranked if head.kind == kind) for kind in NAMED]


def draw(model: str, found: Sequence[Head], sentence: str, output: Path) -> None:
    """The heads side by side, for one sentence and its translation."""
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
    parser.add_argument("sources", type=Path, help="sentences, one a line")
    parser.add_argument("translations", type=Path, help="their translations, line for line")
    parser.add_argument("output", type=Path, help="picture to write, .svg or .png")
    parser.add_argument("--lines", type=int, default=200, help="so many sentences are looked at (200)")
    parser.add_argument("--draw", help="the sentence to draw; default: the first of the file that is not empty")
    arguments = parser.parse_args()
    if arguments.lines < 1:
        parser.error(f"--lines must be at least 1, not {arguments.lines}")
    if arguments.draw is not None and not arguments.draw.strip():
        parser.error("--draw names no sentence; leave it out for the first of the file")
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
