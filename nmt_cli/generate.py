"""nmt-generate: lines of text, or a split of a corpus, in; translations out, in the same order.

Standard output (or ``--output``) carries translations only. Everything else, fairseq's closing line with the score of a
corpus split among it, goes to the log on standard error.
"""

from __future__ import annotations

import nmt.search  # noqa: F401 - its options are known from here on; torch is imported by what translates with it
from nmt.allocator import keep_few_kernels, keep_freed_memory
from nmt.config.commands import GenerateConfig
from nmt.hub import require_models
from nmt_cli.launch import launch


def check(config: GenerateConfig) -> None:
    """Check the options that need no model."""
    from nmt.engines import AUTO, engines
    from nmt.translation.options import TranslationMethod

    if config.engine != AUTO:
        engines.config_class(config.engine)  # refuses unknown names
    TranslationMethod.of(config)


def run(config: GenerateConfig) -> None:
    require_models(config.path)
    from nmt_cli.generate_job import translate

    translate(config)


def main() -> None:
    keep_freed_memory()
    keep_few_kernels()
    launch(GenerateConfig, run)


if __name__ == "__main__":
    main()
