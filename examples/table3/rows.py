"""The rows of Table 3 of "Attention Is All You Need": their options, published figures and numbers of parameters.

    python examples/table3/rows.py [--pieces 37000] [--results FILE]

Prints the table at the paper's sizes: the options that turn ``recipe=vaswani_base`` (or ``vaswani_big``) into each
row, and its exact number of parameters next to the published one, which is rounded to millions. --results stores the
counts with a published figure in a file, see examples/results.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from results import Result, add_all

from nmt.data.vocabulary import VocabularySizes
from nmt.errors import NMTError, UsageError
from nmt.models import models
from nmt.models.transformer.config import TransformerConfig

PIECES = 37_000  # "about 37,000" (section 5.1), one vocabulary for both languages


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Published figures are perplexity and BLEU on the development set newstest2013, and millions of parameters in some
    rows.
    """

    part: str
    says: str
    recipe: str  # recipe of the miniature, miniatures/conf/recipe/table3_*.yaml
    options: str  # changes of the base model, at the paper's sizes
    perplexity: float
    bleu: float
    millions: float | None = None
    base: str = "vaswani_base"

    @property
    def title(self) -> str:
        """Name of the row in files of results."""
        return f"{self.part}: {self.says}"


ROWS = (
    Row("base", "6 layers, width 512", "base", "", 4.92, 25.8, 65),
    Row("A", "1 head of 512", "a_1_head", "model.num_heads=1 model.d_k=512 model.d_v=512", 5.29, 24.9),
    Row("A", "4 heads of 128", "a_4_heads", "model.num_heads=4 model.d_k=128 model.d_v=128", 5.00, 25.5),
    Row("A", "16 heads of 32", "a_16_heads", "model.num_heads=16 model.d_k=32 model.d_v=32", 4.91, 25.8),
    Row("A", "32 heads of 16", "a_32_heads", "model.num_heads=32 model.d_k=16 model.d_v=16", 5.01, 25.4),
    Row("B", "keys of 16", "b_keys_16", "model.d_k=16", 5.16, 25.1, 58),
    Row("B", "keys of 32", "b_keys_32", "model.d_k=32", 5.01, 25.4, 60),
    Row("C", "2 layers", "c_2_layers", "model.encoder_layers=2 model.decoder_layers=2", 6.11, 23.7, 36),
    Row("C", "4 layers", "c_4_layers", "model.encoder_layers=4 model.decoder_layers=4", 5.19, 25.3, 50),
    Row("C", "8 layers", "c_8_layers", "model.encoder_layers=8 model.decoder_layers=8", 4.88, 25.5, 80),
    Row("C", "width 256", "c_width_256", "model.d_model=256 model.d_k=32 model.d_v=32", 5.75, 24.5, 28),
    Row("C", "width 1024", "c_width_1024", "model.d_model=1024 model.d_k=128 model.d_v=128", 4.66, 26.0, 168),
    Row("C", "inner width 1024", "c_inner_1024", "model.d_ff=1024", 5.12, 25.4, 53),
    Row("C", "inner width 4096", "c_inner_4096", "model.d_ff=4096", 4.75, 26.2, 90),
    Row("D", "dropout 0", "d_dropout_0", "model.dropout=0", 5.77, 24.6),
    Row("D", "dropout 0.2", "d_dropout_2", "model.dropout=0.2", 4.95, 25.5),
    Row("D", "label smoothing 0", "d_smoothing_0", "criterion.label_smoothing=0", 4.67, 25.3),
    Row("D", "label smoothing 0.2", "d_smoothing_2", "criterion.label_smoothing=0.2", 5.47, 25.7),
    Row("E", "learned positions", "e_learned", "model.positions=learned model.max_positions=256", 4.92, 25.7),
    Row("big", "width 1024, dropout 0.3", "big", "", 4.33, 26.4, 213, "vaswani_big"),
)


def parameters(row: Row, pieces: int = PIECES) -> int:
    """Return the exact number of parameters with a joint vocabulary of ``pieces`` tokens.

    Source, target and output share one embedding matrix.
    """
    config = TransformerConfig()
    if row.base == "vaswani_big":
        config = TransformerConfig(d_model=1024, d_ff=4096, num_heads=16)
    for word in row.options.split():
        key, value = word.split("=")
        part, name = key.split(".")
        if part == "model":
            setattr(config, name, type(getattr(config, name))(value) if name == "positions" else yaml.safe_load(value))
    with torch.device("meta"):
        model = models.build(config, VocabularySizes(pieces, pieces, shared=True))
    return sum(parameter.numel() for parameter in model.parameters())


def table(rows: Sequence[Row], pieces: int) -> str:
    """Return the table in Markdown."""
    lines = ["| row | change | options | parameters | published | difference |", "|---|---|---|---|---|---|"]
    for row in rows:
        options = f"`recipe={row.base} {row.options}".rstrip() + "`"
        count = parameters(row, pieces)
        published = f"{row.millions:g} million" if row.millions else ""
        difference = f"{count / 1e6 - row.millions:+.1f} million" if row.millions else ""
        lines.append(f"| {row.part} | {row.says} | {options} | {count:,} | {published} | {difference} |")
    return "\n".join(lines)


def results(rows: Sequence[Row], pieces: int) -> Iterator[Result]:
    """Yield the counts of the rows with a published count."""
    for row in rows:
        if row.millions is not None:
            count = parameters(row, pieces)
            yield Result(
                "Table 3",
                row.title,
                "million parameters",
                ours=round(count / 1e6, 1),
                published=row.millions,
                comparable=True,
                setting=f"the paper's size, counted with {pieces:,} tokens",
                parameters=count,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Print Table 3 with exact numbers of parameters.")
    parser.add_argument("--pieces", type=int, default=PIECES, help=f"tokens of the joint vocabulary ({PIECES})")
    parser.add_argument("--results", type=Path, help="file of results (JSON) for the counts")
    given = parser.parse_args(arguments)
    try:
        if given.pieces < 5:
            raise UsageError(f"--pieces {given.pieces} is too few for a vocabulary; give at least 5")
        print(table(ROWS, given.pieces), flush=True)
        if given.results is not None:
            add_all(given.results, results(ROWS, given.pieces))
    except BrokenPipeError:  # the reader of the pipe ended early
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
