"""The options of nmt-serve."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.config.checks import Refusals, refuse, require_not_negative, require_positive
from nmt.config.common_options import EngineOptions, PluginOption
from nmt.config.option import FlagKind, flag, option, section
from nmt.config.roles import CommandConfig
from nmt.config.sections import DeviceSection
from nmt.config.translation import BatchOptions
from nmt.search.config import BeamConfig

HIGHEST_PORT = 65535
_POSITIVE = (
    "buffer_size max_beam max_body_bytes max_line_chars max_line_tokens max_lines max_answer_bytes max_queue max_requests "
    "read_timeout timeout"
).split()


def _nullable(config: type) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options of a dataclass, all null by default: name, type and field."""
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        facts = field.metadata
        kind = FlagKind.switch if hints[field.name] is bool else facts["kind"]
        help = f"{facts['help']}; null: as in validation"
        yield field.name, hints[field.name] | None, option(None, help=help, flag=facts["flag"], kind=kind)


_NAME = option(None, help="Search algorithm: beam, greedy or another; null: as in validation", flag="--search")
_SearchOptions: Any = dataclasses.make_dataclass(
    "_SearchOptions", [("name", str | None, _NAME), *_nullable(BeamConfig)], namespace={"__module__": __name__}
)


class ServedSearch(_SearchOptions):  # type: ignore[misc]
    """The search, if a request does not set it: its name, and the options of beam search. An option that is null is as each
    model was validated."""

    def options(self) -> dict[str, Any]:
        """Return the options that are not null, under the names that ``Translator`` knows them by."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["search"] = values.pop("name")
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class ServeConfig(DeviceSection, PluginOption, EngineOptions, BatchOptions, CommandConfig):
    """nmt-serve: translate over HTTP with one or several models."""

    command: ClassVar[str] = "serve"
    path: list[str] = flag(
        [], help="Models to serve: run folders or checkpoints, comma-separated; several joined by ':' form an ensemble"
    )
    host: str = flag("127.0.0.1", help="Address to listen on; 0.0.0.0: all addresses of this machine")
    port: int = flag(8000, help="Port to listen on; 0: any free port, shown in the log")
    allowed_hosts: list[str] = flag(
        [],
        help="Accepted host names besides loopback, such as a proxy's; *: any; empty: none, or any if "
        "--host is not loopback",
    )
    api_keys: str | None = flag(None, help="File with one API key per line, required in POST requests; null: no keys")
    search: ServedSearch = section(ServedSearch, help="defaults for requests")
    buffer_size: int = flag(
        128, help="Maximum number of lines, of all requests, that a process takes at once and sorts by length"
    )
    gather_ms: float = flag(
        3.0, help="Time without a new line, in milliseconds, before an idle process starts on the queued lines"
    )
    max_beam: int = flag(20, help="Maximum beam width, and maximum length of an n-best list, in a request")
    max_body_bytes: int = flag(2**20, help="Maximum request size in bytes; beyond it, status 413")
    max_line_chars: int = flag(10_000, help="Maximum line length in characters; beyond it, status 413")
    max_line_tokens: int = flag(8192, help="Maximum line length in tokens; beyond it, status 413")
    max_lines: int = flag(1000, help="Maximum number of lines per request; beyond it, status 413")
    max_answer_bytes: int = flag(2**24, help="Maximum response size in bytes; beyond it, status 413")
    max_queue: int = flag(
        4000, help="Maximum number of queued lines; if exceeded, requests above an equal share of it get status 503"
    )
    max_requests: int = flag(1000, help="Maximum number of concurrent requests; beyond it, status 503")
    read_timeout: float = flag(10.0, help="Maximum time for receiving a request, in seconds; beyond it, status 408")
    timeout: float = flag(60.0, help="Maximum time for translating a request, in seconds; beyond it, status 504")
    grace: float = flag(30.0, help="Maximum time for finishing accepted requests after SIGTERM or Ctrl-C, in seconds")
    web_page: bool = flag(True, help="Serve a page for typing text at /")
    access_log: bool = flag(False, help="Log one line per request")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive("", **{name: getattr(self, name) for name in _POSITIVE})
        require_not_negative("", gather_ms=self.gather_ms, grace=self.grace)
        refuse(*self._contradictions())

    def _contradictions(self) -> Refusals:
        yield not 0 <= self.port <= HIGHEST_PORT, f"port={self.port} must be from 0 to {HIGHEST_PORT} (--port)"
        yield (
            self.max_lines > self.max_queue,
            f"max_lines={self.max_lines} is more than max_queue={self.max_queue}; lower --max-lines or raise "
            "--max-queue",
        )
