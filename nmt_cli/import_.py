"""nmt-import: models of other toolkits become model folders of ours."""

from __future__ import annotations

from nmt.config.exchange import ImportConfig
from nmt_cli.launch import launch


def run(config: ImportConfig) -> None:
    """Write the folders; print them, one a line."""
    from nmt.formats.importing import import_model

    for folder in import_model(config):
        print(folder)


def main() -> None:
    launch("import_", ImportConfig, run)


if __name__ == "__main__":
    main()
