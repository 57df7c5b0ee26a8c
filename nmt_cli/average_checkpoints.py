"""nmt-average-checkpoints: the mean of several checkpoints."""

from __future__ import annotations

from nmt.config.commands import AverageConfig
from nmt.config.sections import LOSSES, metric_of
from nmt.scoring import scorers
from nmt_cli.launch import launch


def run(config: AverageConfig) -> None:
    """Write the average. Print its scores and those of the averaged checkpoints, then its folder."""
    if config.metric is not None and (metric := metric_of(config.metric)) not in LOSSES:
        scorers.config_class(metric)  # a misspelt one is refused before anybody waits for torch
    from nmt.averaging import average_checkpoints, table

    average = average_checkpoints(config)
    if average.scores:
        print(*table(average.scores), sep="\n")
    print(average.folder)


def main() -> None:
    launch(AverageConfig, run)


if __name__ == "__main__":
    main()
