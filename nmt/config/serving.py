"""The options of nmt-serve."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from nmt.config.checks import Rules, refuse, require_not_negative, require_positive
from nmt.config.choices import NumberFormat
from nmt.config.option import flag, option, section, user_dir_option
from nmt.config.roles import CommandConfig
from nmt.config.sections import DeviceConfig

HIGHEST_PORT = 65535


@dataclass
class ServedSearch:
    """How translations are found where a request does not say it. What is null here is as each model was validated."""

    name: str | None = option(
        None, help="beam, greedy or another one; null: as each model was validated", flag="--search"
    )
    beam_size: int | None = option(None, help="hypotheses kept per sentence", flag="--beam")
    length_penalty: str | None = flag(None, help="log-probabilities are divided by: gnmt or power (fairseq's)")
    lenpen: float | None = flag(None, help="exponent of the length penalty")
    max_len_a: float | None = flag(None, help="longest translation in pieces: max_len_a * source length + max_len_b")
    max_len_b: float | None = flag(None, help="see max_len_a")
    no_repeat_ngram: int | None = option(
        None, help="no n-gram of this many pieces stands twice in a translation", flag="--no-repeat-ngram-size"
    )

    def given(self) -> dict[str, Any]:
        """Those that are not null, under the names that ``Translator`` knows them by."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["search"] = values.pop("name")
        return {name: value for name, value in values.items() if value is not None}


@dataclass
class ServeConfig(CommandConfig):
    """nmt-serve: models in, translations over HTTP out."""

    path: list[str] = flag(
        [], help="models to serve: run folders or checkpoints, several with commas; each may be several joined by ':'"
    )
    host: str = flag("127.0.0.1", help="address to listen on; 0.0.0.0: all of this machine")
    port: int = flag(8000, help="port to listen on; 0: a free one, which the log names")
    search: ServedSearch = section(ServedSearch, help="how translations are found where a request does not say it")
    dtype: NumberFormat | None = flag(
        None,
        help="numbers that weights are kept in: float32, bfloat16, float16 or int8 (on a CPU); default: as --precision says",
    )
    engine: str = flag("auto", help="what translates: torch, native (C, on a CPU), one of a plugin, or auto")
    workers: int | None = flag(
        None, help="processes that translate, each with one thread; null: one a thread, and a single one on a GPU"
    )
    batch_size: int | None = flag(None, help="largest number of sentences in a batch")
    max_tokens: int | None = flag(None, help="largest batch in source pieces; null: as nmt-generate chooses")
    buffer_size: int = flag(128, help="lines that a process takes at a time, of all requests, and sorts by length")
    gather_ms: float = flag(
        3.0, help="milliseconds without a new line after which a free process takes those that wait"
    )
    max_source_length: int = flag(1024, help="most pieces of a source that are translated at once")
    max_beam: int = flag(20, help="widest beam, and most translations of a line, that a request may ask for")
    max_body_bytes: int = flag(2**20, help="largest request; a larger one is answered with status 413")
    max_line_chars: int = flag(10_000, help="longest line in characters; a longer one is answered with status 413")
    max_lines: int = flag(1000, help="most lines of a request; more are answered with status 413")
    max_queue: int = flag(4000, help="most lines that wait; what would be more is answered with status 503")
    max_requests: int = flag(1000, help="most requests at a time; further ones are answered with status 503")
    read_timeout: float = flag(10.0, help="seconds that a client may take to send a request; then status 408")
    timeout: float = flag(60.0, help="seconds that a request may take to be translated; then status 504")
    grace: float = flag(30.0, help="seconds that what was accepted may take after SIGTERM or Ctrl-C")
    web_page: bool = flag(True, help="a page to type in, at /")
    access_log: bool = flag(False, help="a line in the log for each request")
    device: DeviceConfig = section(DeviceConfig, help="where the work is done")
    user_dir: str | None = user_dir_option()

    def __post_init__(self) -> None:
        require_positive("", workers=self.workers, batch_size=self.batch_size, max_tokens=self.max_tokens)
        require_positive("", buffer_size=self.buffer_size, max_source_length=self.max_source_length)
        require_positive("", max_beam=self.max_beam, max_body_bytes=self.max_body_bytes, max_lines=self.max_lines)
        require_positive("", max_line_chars=self.max_line_chars, max_queue=self.max_queue, timeout=self.timeout)
        require_positive("", max_requests=self.max_requests, read_timeout=self.read_timeout)
        require_not_negative("", gather_ms=self.gather_ms, grace=self.grace)
        refuse(*self._contradictions())

    def _contradictions(self) -> Rules:
        yield not 0 <= self.port <= HIGHEST_PORT, f"port={self.port} is none of 0 .. {HIGHEST_PORT} (--port)"
        yield (
            self.max_lines > self.max_queue,
            f"max_lines={self.max_lines} is more than can wait; lower it, or raise max_queue={self.max_queue} (--max-queue)",
        )
