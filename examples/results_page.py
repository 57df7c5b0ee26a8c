"""The page that compares the results of the examples with published figures; ``results.py page`` writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results import Result

OTHERS = "a system of others"  # setting of a published figure without a system in this project; the page omits it
REPOSITORY = "https://github.com/nmt-toolkit/nmt/blob/main"

# Order of the page. Other experiments follow in alphabetical order.
EXPERIMENTS = (
    "Table 1",
    "Table 2",
    "Table 3",
    "Table 4",
    "Figures 3-5",
    "Positional encoding",
)

HEAD = """# Reproduce published results

This page compares published figures with those that the examples of this project measured. Unless a row names another
source, tables and figures are those of "Attention Is All You Need" (Vaswani et al. 2017). Figures 1 and 2 of that paper
are drawings of the model; `nmt/models/transformer/transformer.py` and `nmt/models/transformer/attention.py` implement it.

Few rows repeat the experiment of the paper. Most train a small model on two processor cores for minutes, while the paper
used eight GPUs for days.

- The column "setting" states data, sizes and updates of our experiment.
- The column "difference" is empty if the two figures do not measure the same thing.
- "Not run" marks experiments that need other hardware or data. Some of these rows state a forecast of the training time.
- The column "time, machine" refers to the machines by letters. The notes below the table explain times, machines and
  scores.
- The column "commit, date" says when the figure was recorded. The example has the command.
"""

TAIL = """## Generate this page

Do not edit this page by hand: it is generated from the files `examples/*/results.json`. The script of an example writes
a `results.json` into its output folder. The first command copies that file into the folder of the example. The second
command generates this page:

<!-- not run: would change the results that are stored in the examples -->
```bash
python examples/results.py keep runs/parsing/results.json parsing
python examples/results.py page docs/results/reproduction.md
```

## Next

- [Current figures](index.md): scores, speed and memory of this toolkit
- [Compare systems](../how-to/compare.md): confidence intervals and significance tests
- [Examples](https://github.com/nmt-toolkit/nmt/blob/main/examples/README.md): all experiments and their commands
"""

COLUMNS = (
    "table or figure",
    "row",
    "measure",
    "published",
    "ours",
    "difference",
    "setting",
    "time, machine",
    "commit, date",
    "example",
)


def page(results: Sequence[tuple[str, Result]]) -> str:
    """Return the page: one table of all results, each with a link to its example."""
    results = [one for one in results if one[1].was_run or one[1].setting != OTHERS]
    order = {name: place for place, name in enumerate(EXPERIMENTS)}
    ordered = sorted(results, key=lambda one: (order.get(one[1].experiment, len(order)), *_name(one, order)))
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    machines = sorted({result.hardware for _, result in results if result.hardware})
    letters = {machine: chr(ord("A") + number) for number, machine in enumerate(machines)}
    lines += [f"| {' | '.join(_row(example, result, letters))} |" for example, result in ordered]
    signatures = sorted({result.signature for _, result in results if result.signature})
    notes = [
        "Times are wall times of training, validation included, summed over all runs of a row. Most runs shared their "
        "core with other programs. The number after ± is the standard deviation over the runs."
    ]
    if machines:
        named = [f"{letter} is {machine}" for machine, letter in letters.items()]
        notes.append(
            f"Machines, all shared with other programs: {'; '.join(named)}. Hardware threads are counted as cores. "
            "[Current figures](index.md) describes the machines."
        )
    if signatures:
        notes.append("Signatures of the scores: " + ", ".join(f"`{signature}`" for signature in signatures) + ".")
    return "\n".join([HEAD, *lines, "", *[f"{note}\n" for note in notes], TAIL])


def _name(one: tuple[str, Result], order: dict[str, int]) -> tuple[str]:
    """Return the sort key of an experiment that is not in the paper; the others keep the order of their files."""
    return ("" if one[1].experiment in order else one[1].experiment,)


def _row(example: str, result: Result, letters: Mapping[str, str]) -> list[str]:
    setting = [result.setting] if result.setting else []
    setting += [f"{result.parameters:,} parameters"] if result.parameters else []
    setting += [f"{result.updates:,} updates"] if result.updates else []
    setting += [f"mean of {result.runs} runs"] if result.runs > 1 else []
    ours = "not run" if result.ours is None else f"{result.ours:,.6g}"
    if result.spread is not None:
        ours += f" ± {result.spread:.2g}"
    if result.picture:
        ours = f"[picture](../{result.picture})"
    published = "" if result.published is None else f"{result.published:,.6g}"
    difference = ""
    if result.comparable and result.ours is not None and result.published is not None:
        difference = f"{round(result.ours - result.published, 6):+,.6g}"
    time = [] if result.minutes is None else [f"{result.minutes:,.4g} min" + " in all" * (result.runs > 1)]
    time += [letters[result.hardware]] if result.hardware else []
    recorded = [f"`{result.commit}`"] if result.commit else []
    recorded += [result.date] if result.date else []
    where = f"[{example}]({REPOSITORY}/examples/{example}/README.md)"
    cells = (
        result.experiment,
        result.row,
        result.metric,
        published,
        ours,
        difference,
        "; ".join(setting),
        ", ".join(time),
        ", ".join(recorded),
        where,
    )
    return [_cell(cell) for cell in cells]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
