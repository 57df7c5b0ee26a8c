"""nmt-generate: lines of text, or a split of a corpus, in; translations out, in the same order.

Standard output (or ``--output``) carries translations only. Everything else, fairseq's closing line with the score of a
corpus split among it, goes to the log on standard error.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.allocator import arrange_memory

if TYPE_CHECKING:
    from nmt.config.generation import GenerateConfig


def run(config: GenerateConfig) -> None:
    from nmt.storage.run_folder import resolve, split_paths

    for path in split_paths(config.path):
        if not Path(path).exists():
            resolve(path)  # says what is missing before anything is loaded
    from nmt_cli.generate_job import translate

    translate(config)


def main() -> None:
    arrange_memory("nmt_cli.generate")  # may start the command once more: what is imported before is imported twice
    import nmt.search  # noqa: F401 - its options are known from here on
    from nmt.config.generation import GenerateConfig
    from nmt_cli.launch import launch

    launch("generate", GenerateConfig, run)


if __name__ == "__main__":
    main()
