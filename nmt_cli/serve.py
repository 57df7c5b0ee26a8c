"""nmt-serve: models in, translations over HTTP out, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import importlib.util

import nmt
import nmt.search
from nmt.allocator import keep_few_kernels, keep_freed_memory
from nmt.errors import UsageError
from nmt.hub import require_models
from nmt.serving.config import ServeConfig
from nmt_cli.launch import launch

NEEDED = ("starlette", "uvicorn")


def run(config: ServeConfig) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"nmt-serve needs {' and '.join(missing)}: pip install '{nmt.DISTRIBUTION}[serve]'")
    require_models(*config.path)
    from nmt.serving.server import serve

    serve(config)


def main() -> None:
    keep_freed_memory()
    keep_few_kernels()
    launch(ServeConfig, run)


if __name__ == "__main__":
    main()
