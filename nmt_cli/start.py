"""Entry points of the console scripts: ``from nmt_cli.start import train`` is the function that runs ``nmt-train``.

Signals are handled before the command's own modules are imported, which takes most of a second.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable

from nmt_cli.process import leaving_on_signals


def __getattr__(command: str) -> Callable[[], None]:
    if command.startswith("__"):
        raise AttributeError(command)
    return functools.partial(_start, command)


def _start(command: str) -> None:
    with leaving_on_signals():
        importlib.import_module(f"nmt_cli.{command}").main()
