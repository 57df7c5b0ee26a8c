"""nmt-export: a model of ours becomes one of another toolkit."""

from __future__ import annotations

from nmt.config.exchange import ExportConfig
from nmt_cli.launch import launch


def run(config: ExportConfig) -> None:
    """Write the model, and print its folder and the address of its repository."""
    from nmt.formats.exporting import export_model

    comparison = export_model(config)
    for place in filter(None, (config.output, comparison.url)):
        print(place)


def main() -> None:
    launch(ExportConfig, run)


if __name__ == "__main__":
    main()
