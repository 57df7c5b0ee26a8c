"""nmt-average-checkpoints: the mean of several checkpoints."""

from __future__ import annotations

from nmt.config.sections import AverageConfig
from nmt.training.averaging import average_checkpoints
from nmt_cli.launch import launch


def run(config: AverageConfig) -> None:
    """Write the average and print its folder."""
    print(average_checkpoints(config))


def main() -> None:
    launch("average_checkpoints", AverageConfig, run)


if __name__ == "__main__":
    main()
