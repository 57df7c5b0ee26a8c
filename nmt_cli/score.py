"""nmt-score: compare translations with references; figures and their signatures on standard output."""

from __future__ import annotations

import json
from collections.abc import Mapping

from nmt.config.choices import PairedTest, ScoreFormat
from nmt.config.commands import ScoreConfig
from nmt.progress import going_on
from nmt.scoring import Scorer, TextOptions
from nmt.scoring.learned import with_sources
from nmt.scoring.signs import LABELS, Signs, plain_signs, signs
from nmt.scoring.systems import (
    LIKELY,
    Certainty,
    Figure,
    check_readable,
    chosen_scorers,
    figures,
    figures_by_label,
    length_labels,
    plain_figures,
    sentence_scores,
)
from nmt.scoring.tables import table_lines
from nmt_cli.launch import launch
from nmt_cli.scored_text import STDIN, Texts, read_texts, warn

Figures = Mapping[str, Mapping[str, Figure]]  # by system and metric


def run(config: ScoreConfig) -> float:
    """Print all metrics; return the value of the first metric for the first system."""
    chosen = chosen_scorers(config.metrics, TextOptions(config.tokenize, config.lowercase, config.language))
    by_length = config.split_by == "length"
    texts = read_texts(config, None if by_length else config.split_by)
    systems, references = texts.systems, texts.references
    labels = length_labels(texts.sources or references[0]) if by_length else texts.labels or []
    check_readable(chosen, systems, dict(zip(config.ref, references)), texts.numbers)
    warn(config, systems, references)
    every = with_sources(chosen, texts.sources)
    if config.sentence:
        return _print_sentences(config, every, texts)
    certainty = Certainty(config.confidence, config.paired, config.resamples or 0)
    with going_on("scoring"):
        figures_of_parts = {"": figures(every, systems, references, certainty)}  # of the whole text; no label is empty
        figures_of_parts |= figures_by_label(chosen, systems, references, texts.sources, labels, certainty)
    sizes = {label: labels.count(label) if label else len(references[0]) for label in figures_of_parts}
    trouble = {name: signs(lines, references, texts.sources) for name, lines in systems.items()} if config.signs else {}
    if config.format is ScoreFormat.json:
        print(_as_json(config, sizes, figures_of_parts, trouble))
    else:
        plain = config.format is ScoreFormat.text and len(systems) == 1 and not labels
        lines = _as_lines(figures_of_parts[""]) if plain else _as_table(config, sizes, figures_of_parts)
        print(*lines, *(["", *_table_of_signs(config, trouble)] if trouble else []), sep="\n")
    return next(iter(next(iter(figures_of_parts[""].values())).values())).score.value


def main() -> None:
    launch(ScoreConfig, run)


def _print_sentences(config: ScoreConfig, chosen: Mapping[str, Scorer], texts: Texts) -> float:
    """Print the scores of each system for each line, after its line number in the files."""
    scores_of_systems = {
        (name, metric): sentence_scores(scorer, lines, texts.references)
        for name, lines in texts.systems.items()
        for metric, scorer in chosen.items()
    }
    if config.format is ScoreFormat.json:
        rows = [
            {
                "sys": _file(name),
                "metric": metric,
                "numbers": texts.numbers,
                "scores": [round(value, 4) for value in scores],
            }
            for (name, metric), scores in scores_of_systems.items()
        ]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        heads = [metric if len(texts.systems) == 1 else f"{name} {metric}" for name, metric in scores_of_systems]
        table = [
            [str(number), *(f"{value:.2f}" for value in row)]
            for number, row in zip(texts.numbers, zip(*scores_of_systems.values()), strict=True)
        ]
        if config.format is ScoreFormat.text:
            print(*("\t".join(row) for row in (["line", *heads], *table)), sep="\n")
        else:
            print(*table_lines(["line", *heads], table, config.format), sep="\n")
    first = next(iter(scores_of_systems.values()))
    return sum(first) / len(first)


def _as_lines(figures_of_systems: Figures) -> list[str]:
    """Return the scores of one system in sacreBLEU's format."""
    lines = []
    for figure in next(iter(figures_of_systems.values())).values():
        score, resampled = figure.score, ""
        if figure.interval is not None:
            resampled = f" (μ = {figure.mean:.2f} ± {figure.interval:.2f})"
        lines.append(f"{score.name}|{score.signature} = {score.value:.2f}{resampled} {score.detail}".rstrip())
    return lines


def _as_table(config: ScoreConfig, sizes: Mapping[str, int], figures_of_parts: Mapping[str, Figures]) -> list[str]:
    """Return a table with a row for each system and part, and the signatures below it."""
    of_parts, every = len(figures_of_parts) > 1, figures_of_parts[""]
    metrics = {metric: figure.score for metric, figure in next(iter(every.values())).items()}
    head = [*(["part", "lines"] if of_parts else []), "system", *(score.name for score in metrics.values())]
    rows = [
        [*([label or "all", str(sizes[label])] if of_parts else []), name, *map(_cell, figures.values())]
        for label, systems in figures_of_parts.items()
        for name, figures in systems.items()
    ]
    below = [f"{score.name}|{score.signature}" for score in metrics.values()]
    if config.paired is not PairedTest.none:
        below.append(f"p: probability of the difference to {next(iter(every))} by chance; *: below {LIKELY}")
    mark = "% " if config.format is ScoreFormat.latex else ""
    return [*table_lines(head, rows, config.format), "", *(f"{mark}{line}" for line in below)]


def _cell(figure: Figure) -> str:
    text = f"{figure.score.value:.2f}"
    if figure.interval is not None:
        text += f" ± {figure.interval:.2f}"
    if figure.p_value is not None:
        text += f" (p = {figure.p_value:.4f}){'*' * (figure.p_value < LIKELY)}"
    return text


def _as_json(
    config: ScoreConfig, sizes: Mapping[str, int], figures_of_parts: Mapping[str, Figures], trouble: Mapping[str, Signs]
) -> str:
    """Return an object for one system, or a list of objects for several."""
    parts = [
        {
            "sys": _file(name),
            "ref": list(config.ref),
            "lines": sizes[label],
            **({"part": label} if label else {}),
            "scores": plain_figures(figures),
            **({"signs": plain_signs(trouble[name])} if trouble and not label else {}),
        }
        for label, systems in figures_of_parts.items()
        for name, figures in systems.items()
    ]
    return json.dumps(parts[0] if len(parts) == 1 else parts, ensure_ascii=False, indent=2)


def _file(name: str) -> str | None:
    """Return the file name for JSON; None for standard input."""
    return None if name == STDIN else name


def _table_of_signs(config: ScoreConfig, trouble: Mapping[str, Signs]) -> list[str]:
    """Return a table of signs of trouble with a column for each system."""
    systems = trouble.values()
    ratios = ["-" if system.length_ratio is None else f"{system.length_ratio:.3f}" for system in systems]
    rows = [["length ratio", *ratios]]
    for sign in next(iter(systems)).counts():
        counts = [(system.counts()[sign], system.lines) for system in systems]
        rows.append([LABELS[sign], *(f"{count} ({100 * count / lines:.1f} %)" for count, lines in counts)])
    return table_lines(["sign of trouble", *trouble], rows, config.format)


if __name__ == "__main__":
    main()
