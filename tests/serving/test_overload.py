"""Requests just inside every limit, from clients that stay and that leave, beside the usual requests of one client."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import threading
import time
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from typing import Any

import pytest

from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.sentencepiece import BpeConfig, SentencePieceBuilder
from nmt.serving.config import ServeConfig
from tests.serving.servers import Server, running, until
from tests.tiny_models import write_tiny_model

LIMITS = ServeConfig()
# Search steps of a larger model, which other work on this machine does not slow down.
SLOW_STEPS = """
import time
from nmt.engines.native import NativeDecoding
step = NativeDecoding.step
def slow(self, *arguments):
    time.sleep(0.004 + 0.0001 * self.sentences * self.beam)
    return step(self, *arguments)
NativeDecoding.step = slow
"""
LINE = "rot " * (LIMITS.max_line_chars // 4)  # 2,500 tokens
MANY = LIMITS.max_body_bytes // (len(LINE) + 4)
LETTERS = "abcde" * (LIMITS.max_line_chars // 5)  # 8,001 tokens of the model "letters", which knows "ab"
LONG = {"text": "rot", "min_length": 1000, "max_length": 1000}
# About 4 MB of JSON with soft alignments of 20 hypotheses. The digits, and so the size, differ by processor.
ALIGNED = {"text": "rot " * 200, "min_length": 150, "max_length": 150}
HOSTILE: dict[str, dict[str, Any]] = {
    "long lines": {"text": [LINE] * MANY},
    "long words": {"source": "fr", "text": [LETTERS] * MANY},
    "wide beams": {"text": ["rot schnee " * 60] * LIMITS.max_lines, "beam": LIMITS.max_beam, "nbest": LIMITS.max_beam},
    "long translations": {"text": [LONG] * LIMITS.max_lines},
    "phrases": {"text": [{"text": "rot", "include": ["two dogs run"] * 60}] * (LIMITS.max_lines // 2)},
    "many lines": {"text": ["zwei hunde laufen " * 50] * LIMITS.max_lines},
    "prefixes": {"text": [{"text": "rot", "prefix": "red " * 1000}] * 200},
    "hard alignments": {"text": [ALIGNED] * 50, "beam": LIMITS.max_beam, "nbest": LIMITS.max_beam, "alignment": "hard"},
    "soft alignments": {"text": [ALIGNED] * 3, "beam": LIMITS.max_beam, "nbest": LIMITS.max_beam, "alignment": "soft"},
}
HEAD = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
USUAL = ("ein mann", "zwei hunde laufen", "schnee rot")


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose subword tokens are single letters and "ab"."""
    learned = SentencePieceBuilder(BpeConfig(vocab_size=4 + len(" abcdexyz") + 1)).train(
        ["xab yab zab c d e"] * 10, seed=1
    )
    pair = LanguagePair("fr", "en", learned, learned, shared=True)
    (ids,) = pair.source.encode([LETTERS])
    assert 0.95 * LIMITS.max_line_tokens < len(ids) <= LIMITS.max_line_tokens, pair.source.pieces(ids[:20].tolist())
    return write_tiny_model(
        tmp_path_factory.mktemp("served") / "letters", model="transformer", updates=0, words=(), pair=pair
    )


def body_of(tree: dict[str, Any]) -> bytes:
    body = json.dumps({"source": "de", **tree}, separators=(",", ":")).encode()
    assert len(body) <= LIMITS.max_body_bytes, len(body)
    return body


def times_of(server: Server, count: int, *, whole: bool = False) -> list[float]:
    """Return the seconds of each of ``count`` usual requests.

    Without ``whole``, the time of a request that needs no worker is subtracted: other work on the machine slows both down.
    """
    times = []
    for number in range(count):
        begin = time.perf_counter()
        server.translate(USUAL[number % len(USUAL)])
        seconds = time.perf_counter() - begin
        if not whole:
            begin = time.perf_counter()
            server.ask("GET", "/health")
            seconds -= time.perf_counter() - begin
        times.append(seconds)
    return times


@contextlib.contextmanager
def beset(
    server: Server,
    bodies: list[bytes],
    patiences: Sequence[float] = (5.0, 0.5),
    pause: float = 1.0,
    allowed: Set[bytes] = frozenset({b"", b"200", b"503"}),
) -> Iterator[list[bytes]]:
    """Send each body again and again, from a client that stays and from one that leaves after half a second.

    Yields the statuses of the answers so far.
    ``patiences``: seconds that each client waits. ``pause``: seconds between its requests; 1 is what Retry-After says.
    ``allowed``: statuses of the answers; empty if the client left before.
    """
    over, connections, statuses = threading.Event(), set[socket.socket](), list[bytes]()

    def client(body: bytes, patience: float) -> None:
        while not over.is_set():
            with contextlib.suppress(OSError), server.connect() as connection:
                connections.add(connection)
                connection.settimeout(patience)
                connection.sendall(HEAD % len(body) + body)
                statuses.append(connection.recv(2**16)[9:12])
                while connection.recv(2**16):
                    pass
                over.wait(pause)
                connections.discard(connection)

    threads = [threading.Thread(target=client, args=(body, patience)) for body in bodies for patience in patiences]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for connection in [*connections]:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join()
    assert allowed.issuperset(statuses), set(statuses)


ALONE = [pytest.param([name], id=name, marks=pytest.mark.nightly) for name in HOSTILE]


@pytest.mark.parametrize("kinds", [pytest.param(list(HOSTILE), id="all"), *ALONE])
def test_usual_requests_stay_fast_beside_requests_just_inside_every_limit(
    model: Path, letters: Path, kinds: list[str]
) -> None:
    with running("--path", f"{model},{letters}", "--workers", "2", before=SLOW_STEPS) as server:
        usual = statistics.median(times_of(server, 5))
        with beset(server, [body_of(HOSTILE[kind]) for kind in kinds]):
            until(lambda: server.ask("GET", "/health").json["busy_workers"] == 2)
            beside = times_of(server, 8)
            told = server.ask("GET", "/health").json
            oldest = server.metric("nmt_oldest_request_seconds")
        assert statistics.median(beside) < max(1.0, 2 * usual) and max(beside) < 5, (beside, usual)
        assert (told["status"], told["busy_workers"]) == ("ready", 2) and told["oldest_request_seconds"] > 0.3
        assert oldest > 0.3
        until(lambda: server.metric("nmt_busy_workers") == 0, "the end of work that nobody waits for")


def test_usual_requests_stay_fast_beside_each_kind_of_request_just_inside_a_limit(model: Path, letters: Path) -> None:
    """The same for each kind alone, with fewer requests; at night each kind has a server to itself."""
    slow = dict[str, list[float]]()
    with running("--path", f"{model},{letters}", "--workers", "2", before=SLOW_STEPS) as server:
        usual = statistics.median(times_of(server, 5))
        for kind, tree in HOSTILE.items():
            with beset(server, [body_of(tree)], pause=0.0):
                until(lambda: server.ask("GET", "/health").json["busy_workers"] > 0)
                beside = times_of(server, 4)
            if statistics.median(beside) >= max(1.0, 2 * usual):
                slow[kind] = beside
            until(lambda: server.metric("nmt_active_requests") == 0)
    assert slow == {}, usual


FLOODS = {
    "too many lines": (body_of({"text": ["a"] * (LIMITS.max_body_bytes // 4 - 20)}), b"413"),
    "slow to parse": (b'{"text":[%s[]]}' % (b"[]," * (LIMITS.max_body_bytes // 3 - 10)), b"413"),
    "large answers": (body_of(HOSTILE["soft alignments"]), b"200"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_usual_requests_stay_fast_beside_ten_clients_that_never_pause(model: Path, flood: str) -> None:
    """The event loop is what they would occupy, so its share of each time counts here."""
    body, status = FLOODS[flood]
    with running("--path", model, "--workers", "2") as server:
        usual = statistics.median(times_of(server, 5, whole=True))
        beside = list[float]()
        with beset(server, [body], patiences=[30.0] * 10, pause=0.0, allowed={b"", status}) as answered:
            while len(beside) < 8 or answered.count(status) < 8:
                assert {b"", status}.issuperset(answered), set(answered)
                beside += times_of(server, 1, whole=True)
    assert statistics.median(beside) < max(1.0, 2 * usual) and max(beside) < 3, (beside, usual)


def test_an_answer_above_the_limit_is_refused(model: Path) -> None:
    with running("--path", model, "--workers", "1", "--max-answer-bytes", "2000") as server:
        lines = {"text": ["rot schnee"] * 20, "nbest": 5, "alignment": "soft"}
        answer = server.post("/v1/translate", lines)
        assert answer.status == 413 and answer.json["error"].startswith("the response has more than 2,000 bytes")
        assert server.translate("rot") == ["red"]


def keep_a_worker_busy(server: Server, client: socket.socket) -> None:
    body = body_of({"text": [LINE] * 3})
    client.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    until(lambda: server.metric("nmt_busy_workers") == 1)


def test_work_is_given_up_soon_after_its_client_has_left(model: Path) -> None:
    with running("--path", model, "--workers", "1", before=SLOW_STEPS) as server:
        with server.connect() as client:
            keep_a_worker_busy(server, client)
        begin = time.monotonic()
        until(lambda: server.metric("nmt_busy_workers") == 0)
        assert time.monotonic() - begin < 5
        assert server.metric("nmt_abandoned_lines_total") + server.metric("nmt_dropped_lines_total") == 3


def test_a_worker_in_the_middle_of_long_work_ends_soon_after_its_server_was_killed(model: Path) -> None:
    with running("--path", model, "--workers", "1", before=SLOW_STEPS) as server:
        with server.connect() as client:
            keep_a_worker_busy(server, client)
            (worker,) = server.workers()
            os.kill(server.process.pid, signal.SIGKILL)
            server.process.wait(20)
            begin = time.monotonic()
            until(lambda: not Path(f"/proc/{worker}/cmdline").exists())
            assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        ({"text": ["rot", "rot " * 51]}, "text 2: the text has 51 tokens, more than 50"),
        ({"text": "rot", "prefix": "red " * 1001}, "text 1: the prefix has 1,001 tokens, more than 1,000"),
    ],
)
def test_a_line_of_too_many_tokens_is_refused(model: Path, tree: dict[str, Any], sentence: str) -> None:
    with running("--path", model, "--workers", "1", "--max-line-tokens", "50") as server:
        answer = server.post("/v1/translate", tree)
        assert answer.status == 413 and answer.json["error"].startswith(sentence)
        assert server.translate("rot " * 50) and server.translate("rot") == ["red"]
