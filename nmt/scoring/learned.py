"""COMET and MetricX: neural metrics, run as commands of a separate environment.

Their packages are not imported, because they need other versions of our dependencies. A command runs once for all lines of
a system; resampled texts and parts of the text reuse the scores of its lines.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import math
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import Any

from nmt.errors import NMTError, UsageError, quantity
from nmt.scoring import SacreScorer, Scorer, TextOptions, scorers
from nmt.scoring.counted import Summary, metric_class, only, share

logger = logging.getLogger("nmt.score")

Triple = tuple[str, str, str]  # source, hypothesis, reference
Network = Callable[[Sequence[Triple]], list[float]]


@dataclass
class Learned(SacreScorer):
    """A scorer that also reads the sources; ``with_sources`` sets them."""


def with_sources(chosen: Mapping[str, Scorer], sources: Sequence[str] | None) -> dict[str, Scorer]:
    """Return scorers for lines with these sources. Without sources, refuse scorers that read them."""
    by_name: dict[str, Scorer] = {}
    for name, scorer in chosen.items():
        if not isinstance(scorer, Learned):
            by_name[name] = scorer
        elif sources is None:
            raise UsageError(f"the metric '{name}' needs the sources: --src FILE, or sources=lines")
        else:
            by_name[name] = replace(scorer, metric=scorer.metric.with_sources(sources))
    return by_name


@scorers.register("comet", make_dataclass("CometConfig", ()))
def comet(config: Any, text: TextOptions) -> Scorer:
    """COMET (Rei et al. 2020, 2022), times 100: the mean of comet-score over lines."""
    command = _command("NMT_COMET") or ["comet-score"]
    if shutil.which(command[0]) is None:
        raise UsageError(
            f"the metric 'comet' runs the program {command[0]}, which is not installed: pip install unbabel-comet in a "
            f"separate environment, and name its program: NMT_COMET=/path/to/bin/comet-score"
        )
    signature = {"model": _option(command, "--model"), "mean": "lines", "scale": "100"}
    metric = _metric_class()("COMET", "comet", functools.partial(_by_comet, command), signature, share)
    return Learned(metric, higher_is_better=True)


@scorers.register("metricx", make_dataclass("MetricxConfig", ()))
def metricx(config: Any, text: TextOptions) -> Scorer:
    """MetricX (Juraska et al. 2023, 2024): the mean over lines of predicted errors, 0 (best) to 25."""
    command = _command("NMT_METRICX")
    if not command or shutil.which(command[0]) is None:
        missing = f"the program {command[0]}, which is not installed" if command else "a command that NMT_METRICX names"
        raise UsageError(
            f"the metric 'metricx' runs {missing}: install MetricX (github.com/google-research/metricx) in a separate "
            f"environment, and name its command: NMT_METRICX='/path/to/bin/python -m metricx24.predict --tokenizer "
            f"google/mt5-xl --model_name_or_path google/metricx-24-hybrid-xl-v2p6 --max_input_length 1536 --batch_size 1'"
        )
    signature = {"model": _option(command, "--model_name_or_path"), "mean": "lines"}
    metric = _metric_class()("MetricX", "metricx", functools.partial(_by_metricx, command), signature, _mean)
    return Learned(metric, higher_is_better=False)


def _command(variable: str) -> list[str]:
    value = os.environ.get(variable, "")
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UsageError(f"{variable}={value} is not a valid command line: {error}") from None


def _mean(sums: Sequence[float]) -> tuple[float, str]:
    total, lines = sums
    return total / lines if lines else 0.0, ""


def _option(command: Sequence[str], name: str) -> str:
    """Return the value of an option in the command, for the signature."""
    for word, following in zip(command, (*command[1:], "")):
        if word == name or word.startswith(f"{name}="):
            return following if word == name else word.partition("=")[2]
    return "default"


def _by_comet(command: Sequence[str], triples: Sequence[Triple]) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="nmt-comet-") as name:
        folder = Path(name)
        for name, lines in zip(("source", "hypothesis", "reference"), zip(*triples)):
            # A carriage return within a line would end it there.
            text = "".join(line.replace("\r", " ") + "\n" for line in lines)
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        files = ["-s", folder / "source", "-t", folder / "hypothesis", "-r", folder / "reference"]
        output = _run([*command, *map(str, files), "--quiet", "--to_json", str(folder / "scores")], folder / "scores")
    return _read(command, lambda: [float(line["COMET"]) for lines in json.loads(output).values() for line in lines])


def _by_metricx(command: Sequence[str], triples: Sequence[Triple]) -> list[float]:
    with tempfile.TemporaryDirectory(prefix="nmt-metricx-") as folder:
        lines, scores = Path(folder, "lines.jsonl"), Path(folder, "scores.jsonl")
        rows = (dict(zip(("source", "hypothesis", "reference"), triple)) for triple in triples)
        lines.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        output = _run([*command, "--input_file", str(lines), "--output_file", str(scores)], scores)
    return _read(command, lambda: [float(json.loads(line)["prediction"]) for line in output.splitlines()])


def _run(command: Sequence[str], output: Path) -> str:
    """Run a command and return the content of its output file. The error has the last line that it printed."""
    try:
        process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise NMTError(f"{command[0]} cannot be started: {error.strerror}") from None
    if process.returncode or not output.is_file():
        printed = (process.stdout + b"\n" + process.stderr).decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(printed) if line.strip()), "no output")
        what = f"ended with status {process.returncode}" if process.returncode else "wrote no scores"
        raise NMTError(f"{command[0]} {what}: {last}")
    return output.read_text(encoding="utf-8")


def _read(command: Sequence[str], scores: Callable[[], list[float]]) -> list[float]:
    try:
        values = scores()
        if not all(map(math.isfinite, values)):
            raise ValueError("a score is not finite")
        return values
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NMTError(f"cannot read the scores that {command[0]} wrote: {error!r}") from None


@functools.cache
def _metric_class() -> Any:
    """Define the class at its first use: importing sacreBLEU is slow."""

    class OfTriples(metric_class()):  # type: ignore[misc]
        """The statistics come from a network, for all lines at once."""

        def __init__(
            self, name: str, metric: str, network: Network, signature: dict[str, str], summary: Summary
        ) -> None:
            super().__init__(name, _refuse_single_line, signature, str, summary)
            self._metric, self._network = metric, network
            self._sources: Sequence[str] | None = None
            self._known: dict[Triple, float] = {}  # shared by copies

        def with_sources(self, sources: Sequence[str]) -> OfTriples:
            other = copy.copy(self)
            other._sources = sources
            return other

        def _extract_corpus_statistics(self, hypotheses: Sequence[str], references: Any) -> list[list[float]]:
            if self._sources is None:
                raise UsageError(f"the metric '{self._metric}' needs the sources: nmt-score --src FILE")
            self._cache_references(references)  # sets the number of references
            answers = [only(several, self._metric) for several in zip(*references)]
            triples = list(zip(self._sources, hypotheses, answers))
            assert len(triples) == len(hypotheses), f"{len(self._sources)} sources of {len(hypotheses)} hypotheses"
            self._score([triple for triple in dict.fromkeys(triples) if triple not in self._known])
            return [[self._known[triple], 1.0] for triple in triples]

        def _score(self, triples: Sequence[Triple]) -> None:
            if not triples:
                return
            logger.info(f"{self.name} of {quantity(len(triples), 'line')}")
            scores = self._network(triples)
            if len(scores) != len(triples):
                raise NMTError(
                    f"{self.name} returned {quantity(len(scores), 'score')} for {quantity(len(triples), 'line')}"
                )
            self._known.update(zip(triples, scores))

    return OfTriples


def _refuse_single_line(hypothesis: str, references: Sequence[str]) -> list[float]:
    raise AssertionError("lines are scored together")
