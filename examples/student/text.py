"""Process lines of text between the commands of the pipeline: split a corpus, choose hypotheses, drop pairs.

    python text.py split --source train.en.gz --target train.de.gz --target-lines 5000 --source-lines 5000 --output .
    python text.py choose --nbest nbest.jsonl --references train.de --by bleu --output distilled.en distilled.de
    python text.py reversed --source distilled.en --target distilled.de --output reversed.jsonl
    python text.py drop --scores scores.jsonl --share 0.05 --source all.en --target all.de --output kept.en kept.de

Every file is UTF-8 with one sentence per line. Input files can be compressed (.gz, .xz, .zst).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.bleu import BLEU

from nmt.errors import DataError, NMTError, OutputError, UsageError, quantity
from nmt.pipelines.text import lines_of, write_rows


def write(path: Path, lines: Iterable[str]) -> None:
    write_rows(([line] for line in lines), path)


def parallel(*paths: Path) -> list[tuple[str, ...]]:
    """Return the lines of several files as tuples. A file that is longer or shorter than the first one is an error."""
    texts = [list(lines_of(path)) for path in paths]
    for path, text in zip(paths, texts):
        if len(text) != len(texts[0]):
            raise DataError(f"{path} has {quantity(len(text), 'line')}, but {paths[0]} has {len(texts[0]):,}")
    return list(zip(*texts))


def hypotheses_of(path: Path, key: str, kind: type | tuple[type, ...]) -> Iterator[tuple[str, list[Any]]]:
    """Yield each source in JSON lines of nmt-generate, with the field ``key`` of each of its hypotheses."""
    for number, line in enumerate(lines_of(path), 1):
        try:
            found = json.loads(line)
            source, values = found["source"], [one[key] for one in found["hypotheses"]]
            if not isinstance(source, str) or not all(isinstance(value, kind) for value in values):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}:{number} is not a line of nmt-generate --format jsonl") from None
        yield source, values


def split(arguments: argparse.Namespace) -> None:
    """Split a corpus into training pairs, source-only lines and target-only lines.

    The target-only lines are from the last pairs, the source-only lines from the pairs before them. A file of
    monolingual text replaces such lines; then no pairs are set aside for them.
    """
    pairs = parallel(arguments.source, arguments.target)[: arguments.lines or None]
    of_source = arguments.source_lines if arguments.only_source is None else 0
    of_target = arguments.target_lines if arguments.only_target is None else 0
    count = len(pairs) - of_target - of_source
    if count < 1:
        raise UsageError(
            f"{arguments.source} has only {quantity(len(pairs), 'line')}, but {of_target:,} and {of_source:,} are to be set "
            f"aside; set fewer aside"
        )
    end = count + of_source
    only_source, only_target = [pair[0] for pair in pairs[count:end]], [pair[1] for pair in pairs[end:]]
    if arguments.only_source is not None:
        only_source = list(lines_of(arguments.only_source))
    if arguments.only_target is not None:
        only_target = list(lines_of(arguments.only_target))
    source, target = arguments.languages
    write(arguments.output / f"train.{source}", (pair[0] for pair in pairs[:count]))
    write(arguments.output / f"train.{target}", (pair[1] for pair in pairs[:count]))
    for language, lines in ((source, only_source), (target, only_target)):
        whole = list(filter(str.strip, lines))
        short = [line for line in whole if arguments.longest == 0 or len(line) <= arguments.longest]
        if len(short) < len(whole):
            left_out = (
                f"{len(whole) - len(short):,} of {len(whole):,} lines are longer than {arguments.longest:,} characters"
            )
            print(f"only.{language}: {left_out}; skipped them", file=sys.stderr)
        write(arguments.output / f"only.{language}", short)


def choose(arguments: argparse.Namespace) -> None:
    """Choose the best translation of each line, by the search or by BLEU against the reference.

    BLEU follows Kim and Rush 2016, section 3.3. Only the first lines have references. A line without a translation is
    skipped.
    """
    references = [] if arguments.references is None else list(lines_of(arguments.references))
    chosen = []
    for number, (source, found) in enumerate(hypotheses_of(arguments.nbest, "text", str)):
        texts = list(filter(str.strip, found))
        if texts and arguments.by == "bleu" and number < len(references):
            texts = [nearest(texts, references[number])]
        chosen += [(source, texts[0])] if texts else []
    _write_pairs(arguments.output, chosen)


def nearest(texts: Sequence[str], reference: str) -> str:
    """Return the text with the highest smoothed sentence BLEU; the first one of equals."""
    bleu = BLEU(effective_order=True)
    return max(texts, key=lambda text: bleu.sentence_score(text, [reference]).score)


def reversed_pairs(arguments: argparse.Namespace) -> None:
    """Write the input of nmt-generate --score-reference, for a reverse model that scores each source."""
    pairs = parallel(arguments.source, arguments.target)
    lines = (json.dumps({"text": target, "reference": source}, ensure_ascii=False) for source, target in pairs)
    write(arguments.output, lines)


def drop(arguments: argparse.Namespace) -> None:
    """Drop the share of pairs with the lowest scores, and repeated pairs. The order stays."""
    if not 0 <= arguments.share < 1:
        raise UsageError(f"--share {arguments.share:g} must be at least 0 and less than 1")
    pairs = parallel(arguments.source, arguments.target)
    scores = [max(found, default=-math.inf) for _, found in hypotheses_of(arguments.scores, "score", (float, int))]
    if len(scores) != len(pairs):
        raise DataError(f"{arguments.scores} has {quantity(len(scores), 'score')} for {quantity(len(pairs), 'pair')}")
    lowest = set(sorted(range(len(pairs)), key=scores.__getitem__)[: int(arguments.share * len(pairs))])
    kept = dict.fromkeys(pair for number, pair in enumerate(pairs) if number not in lowest)
    print(f"kept {len(kept):,} of {len(pairs):,} pairs, {len(lowest):,} had the lowest scores", file=sys.stderr)
    _write_pairs(arguments.output, list(kept))


def _write_pairs(outputs: Sequence[Path], pairs: Sequence[tuple[str, ...]]) -> None:
    write_rows(pairs, *outputs)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Process lines of text between the commands of the pipeline.")
    commands = made.add_subparsers(dest="command", required=True)

    def command(name: str, function: Any, *files: str, outputs: int = 1) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=function.__doc__.split("\n")[0])
        added.set_defaults(function=function)
        for file in files:
            added.add_argument(f"--{file}", type=Path, required=True, help="input file")
        added.add_argument("--output", type=Path, required=True, nargs=None if outputs == 1 else outputs, help="output")
        return added

    one = command("split", split, "source", "target")
    one.add_argument(
        "--languages", nargs=2, required=True, metavar=("SOURCE", "TARGET"), help="suffixes of the output files"
    )
    one.add_argument("--lines", type=int, default=0, help="number of first pairs to use; 0: all (0)")
    one.add_argument("--source-lines", type=int, default=0, help="pairs of which only the source is used (0)")
    one.add_argument("--target-lines", type=int, default=0, help="pairs of which only the target is used (0)")
    one.add_argument("--longest", type=int, default=0, help="maximum characters of monolingual lines; 0: no limit (0)")
    one.add_argument("--only-source", type=Path, help="monolingual text instead of --source-lines")
    one.add_argument("--only-target", type=Path, help="monolingual text instead of --target-lines")
    one = command("choose", choose, "nbest", outputs=2)
    one.add_argument("--references", type=Path, help="references of the first lines")
    one.add_argument("--by", choices=("search", "bleu"), default="search", help="criterion of the choice (search)")
    command("reversed", reversed_pairs, "source", "target")
    one = command("drop", drop, "scores", "source", "target", outputs=2)
    one.add_argument("--share", type=float, default=0.05, help="share of pairs to drop (0.05)")
    return made


def main() -> None:
    made = parser()
    arguments = made.parse_args()
    try:
        arguments.function(arguments)
    except NMTError as error:
        print(f"{made.prog} {arguments.command}: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        print(f"{made.prog} {arguments.command}: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(OutputError.exit_status)


if __name__ == "__main__":
    main()
