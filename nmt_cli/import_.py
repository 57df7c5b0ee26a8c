"""nmt-import: models of other toolkits become model folders of ours."""

from __future__ import annotations

from nmt.config.exchange import ImportConfig
from nmt.progress import show_splits
from nmt_cli.launch import launch


def run(config: ImportConfig) -> None:
    """Write the folders; print them, one a line."""
    from nmt.formats.importing import import_model

    with show_splits(config.progress) as show:
        folders = import_model(config, show)
    for folder in folders:
        print(folder)


def main() -> None:
    launch(ImportConfig, run)


if __name__ == "__main__":
    main()
