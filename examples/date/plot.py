"""Draw two pictures of the LSTM: the learning curve of its run, and the attention of the decoder for a few dates.

    python examples/date/plot.py lstm-demo/run lstm-demo/averaged lstm-demo "4th of July 1976" "7/4/76"

Writes ``learning_curve.svg`` (from the log of the run folder) and ``attention.svg`` (from the model and these dates)
into the last folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from nmt import Translator
from nmt.config.choices import AlignmentKind
from nmt.config.translation import TranslationOptions
from nmt.errors import NMTError, UsageError
from nmt.plotting import AttentionPanel, plot_attention, plot_learning_curve

END = "\u23ce"  # label of eos, which the model reads and writes as a separate token


def attention_panels(translator: Translator, lines: Sequence[str]) -> list[AttentionPanel]:
    """Return one panel per line, with the tokens of source and output as the model sees them."""
    panels = []
    for translation in translator.hypotheses(lines, TranslationOptions(print_alignment=AlignmentKind.soft)):
        best = translation.hypotheses[0]
        if best.attention is None:
            raise UsageError("this model has no attention to draw")
        weights = best.attention
        title = f"{translation.source} \u2192 {best.text}"
        panels.append(AttentionPanel([*translation.source_pieces, END], [*best.pieces, END], weights, title))
    return panels


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw a run's learning curve and attention maps.")
    parser.add_argument("run", type=Path, help="run folder of nmt-train")
    parser.add_argument("model", type=Path, help="run folder or checkpoint that translates the dates")
    parser.add_argument("output", type=Path, help="folder for the pictures")
    parser.add_argument("date", nargs="+", help="dates to draw, one per argument")
    arguments = parser.parse_args()
    curve, attention = arguments.output / "learning_curve.svg", arguments.output / "attention.svg"
    try:
        plot_learning_curve(arguments.run / "log.jsonl", curve, title="Date task, LSTM with attention")
        translator = Translator.load(arguments.model, device="cpu")
        plot_attention(attention_panels(translator, arguments.date), attention)
    except NMTError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    print(f"learning curve: {curve}")
    print(f"attention maps: {attention}")


if __name__ == "__main__":
    main()
