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


def _nullable(config: type) -> Iterator[tuple[str, Any, Any]]:
    """Yield the options of a dataclass, all null by default: name, type and field."""
    hints = typing.get_type_hints(config)
    for field in dataclasses.fields(config):
        facts = field.metadata
        kind = FlagKind.switch if hints[field.name] is bool else facts["kind"]
        yield field.name, hints[field.name] | None, option(None, help=facts["help"], flag=facts["flag"], kind=kind)


_NAME = option(None, help="beam, greedy or another one; null: as each model was validated", flag="--search")
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
    """nmt-serve: models in, translations over HTTP out."""

    command: ClassVar[str] = "serve"
    path: list[str] = flag(
        [], help="models to serve: run folders or checkpoints, several with commas; each may be several joined by ':'"
    )
    host: str = flag("127.0.0.1", help="address to listen on; 0.0.0.0: all of this machine")
    port: int = flag(8000, help="port to listen on; 0: a free one, which the log names")
    allowed_hosts: list[str] = flag(
        [],
        help="host names accepted besides loopback names, such as a proxy's; *: any; empty: no others, or any if --host is "
        "not a loopback address",
    )
    api_keys: str | None = flag(
        None, help="file with one API key per line; a POST request needs one of them; null: none"
    )
    search: ServedSearch = section(
        ServedSearch, help="the search, if a request does not set it; null: as each model was validated"
    )
    buffer_size: int = flag(128, help="lines that a process takes at a time, of all requests, and sorts by length")
    gather_ms: float = flag(
        3.0, help="milliseconds without a new line after which a free process takes those that wait"
    )
    max_beam: int = flag(20, help="widest beam, and most translations of a line, that a request may ask for")
    max_body_bytes: int = flag(2**20, help="largest request; a larger one is answered with status 413")
    max_line_chars: int = flag(10_000, help="longest line in characters; a longer one is answered with status 413")
    max_line_tokens: int = flag(8192, help="longest line in tokens; a longer one is answered with status 413")
    max_lines: int = flag(1000, help="most lines of a request; more are answered with status 413")
    max_answer_bytes: int = flag(2**24, help="largest answer; a request whose answer would be larger gets status 413")
    max_queue: int = flag(
        4000, help="maximum number of queued lines; beyond it, requests with more than an equal share get status 503"
    )
    max_requests: int = flag(1000, help="most requests at a time; further ones are answered with status 503")
    read_timeout: float = flag(10.0, help="seconds that a client may take to send a request; then status 408")
    timeout: float = flag(60.0, help="seconds that a request may take to be translated; then status 504")
    grace: float = flag(30.0, help="seconds that what was accepted may take after SIGTERM or Ctrl-C")
    web_page: bool = flag(True, help="a page to type in, at /")
    access_log: bool = flag(False, help="a line in the log for each request")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(
            "",
            buffer_size=self.buffer_size,
            max_beam=self.max_beam,
            max_body_bytes=self.max_body_bytes,
            max_lines=self.max_lines,
        )
        require_positive("", max_line_chars=self.max_line_chars, max_queue=self.max_queue, timeout=self.timeout)
        require_positive(
            "", max_line_tokens=self.max_line_tokens, max_requests=self.max_requests, read_timeout=self.read_timeout
        )
        require_positive("", max_answer_bytes=self.max_answer_bytes)
        require_not_negative("", gather_ms=self.gather_ms, grace=self.grace)
        refuse(*self._contradictions())

    def _contradictions(self) -> Refusals:
        yield not 0 <= self.port <= HIGHEST_PORT, f"port={self.port} is none of 0 .. {HIGHEST_PORT} (--port)"
        yield (
            self.max_lines > self.max_queue,
            f"max_lines={self.max_lines} is more than can wait; lower it, or raise max_queue={self.max_queue} (--max-queue)",
        )
