"""What goes wrong around a server: clients, signals, processes, limits."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nmt.errors import OutputError, UsageError
from nmt.models.recurrent.config import AttentionKind
from nmt.serving.config import ServeConfig
from nmt_cli import serve
from tests.commands import run_copy
from tests.serving.servers import PATIENCE, Server, running, until
from tests.tiny_models import some_lines, write_tiny_model

Translate = Callable[[list[str]], list[str]]
SLOW = ("--gather-ms", "400")  # lines wait so long that a test can do something meanwhile


def refused(*arguments: str | Path) -> tuple[int, str]:
    """Status and last line of a server that does not start."""
    done = run_copy("serve", "--cpu", *arguments, timeout=PATIENCE)
    assert done.stdout == b""
    return done.returncode, done.stderr.decode().splitlines()[-1]


def test_a_port_in_use_is_told_in_one_line(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, line = refused("--path", model, "--port", str(port))
    assert (status, line) == (
        73,
        f"nmt-serve: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port or --host",
    )


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ([], 2, "name the models to serve"),
        (["--path", "nowhere"], 66, "nowhere does not exist"),
        (["--path", "{model}", "--host", "192.0.2.1"], 73, "cannot listen on 192.0.2.1:8000: "),
        (["--path", "{model}", "--port", "0", "--search", "beem"], 2, "unknown search 'beem'"),
        (["--path", "{model}", "--port", "0", "--engine", "nothing"], 2, "nothing"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(
    model: Path, arguments: list[str], status: int, sentence: str
) -> None:
    found, line = refused(*(word.replace("{model}", str(model)) for word in arguments))
    assert (found, sentence in line) == (status, True), line
    assert line.startswith("nmt-serve: ")


def test_a_host_that_is_no_address_is_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(
        OutputError, match="--host nowhere is not an address of this machine: Name or service not known"
    ):
        serve.run(ServeConfig(path=[str(model)], host="nowhere"))


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "NEEDED", ("no_such_package",))
    with pytest.raises(UsageError, match=r"needs no_such_package: pip install 'nmt-toolkit\[serve\]'"):
        serve.run(ServeConfig(path=["x"]))


@pytest.mark.parametrize("chunked", [False, True])
def test_a_line_of_ten_megabytes_is_refused_and_the_connection_lives_on(server: Server, chunked: bool) -> None:
    line = b'{"text":"' + b"x" * 10_000_000 + b'"}'
    with server.connect() as client:
        if chunked:
            client.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            for begin in range(0, len(line), 2**20):
                part = line[begin : begin + 2**20]
                client.sendall(b"%x\r\n%s\r\n" % (len(part), part))
            client.sendall(b"0\r\n\r\n")
        else:
            client.sendall(
                b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(line) + line
            )
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
    assert server.translate("rot") == ["red"]


def test_a_client_that_is_slow_to_send_is_left(model: Path) -> None:
    """With what it sends of a body, of headers, and of nothing at all; the others are served meanwhile."""
    with running("--path", model, "--workers", "1", "--read-timeout", "1") as server:
        with server.connect() as body, server.connect() as head, server.connect() as silent:
            body.sendall(b'POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{"text"')
            head.sendall(b"POST /v1/translate HTTP/1.1\r\nHo")
            assert server.translate("rot") == ["red"]
            answer = b"".join(iter(lambda: body.recv(1000), b""))
            assert answer.startswith(b"HTTP/1.1 408 ") and b'was not received within 1 second"' in answer
            assert head.recv(1000) == silent.recv(1000) == b""


def test_lines_of_a_client_that_has_gone_are_dropped(model: Path) -> None:
    with running("--path", model, "--workers", "1", *SLOW) as server:
        body = json.dumps({"text": ["rot", "ein mann"]}).encode()
        with server.connect() as client:
            client.sendall(
                b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            until(lambda: server.metric("nmt_waiting_lines") == 2)
        until(lambda: server.metric("nmt_dropped_lines_total") == 2)
        assert server.metric("nmt_waiting_lines") == 0
        assert server.translate("rot") == ["red"]
        assert server.metric('nmt_lines_total{model="de-en"}') == 1


def test_a_full_queue_and_too_many_requests_are_told_with_when_to_come_again(model: Path) -> None:
    limits = ("--max-queue", "3", "--max-lines", "3", "--max-requests", "2")
    with running("--path", model, "--workers", "1", *SLOW, *limits) as server, ThreadPoolExecutor(3) as threads:
        first = threads.submit(server.translate, "rot", "rot", "rot")
        until(lambda: server.metric("nmt_waiting_lines") == 3)
        full = server.post("/v1/translate", {"text": ["rot", "rot"]})  # more than its share
        assert (full.status, full.headers["retry-after"]) == (503, "1") and "(3 lines)" in full.json["error"]
        assert first.result() == ["red"] * 3
        some = [threads.submit(server.translate, "rot") for _ in range(2)]
        until(lambda: server.metric("nmt_active_requests") == 2)
        assert "2 requests in progress" in server.post("/v1/translate", {"text": "rot"}).json["error"]
        assert [one.result() for one in some] == [["red"]] * 2


def test_what_takes_too_long_is_told(model: Path) -> None:
    with running("--path", model, "--workers", "1", "--timeout", "0.1", *SLOW) as server:
        answer = server.post("/v1/translate", {"text": "rot"})
        assert (answer.status, answer.json) == (
            504,
            {"error": "the request was not translated within 0.1 seconds; send fewer lines, or try again later"},
        )
        assert server.metric("nmt_dropped_lines_total") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_was_accepted_is_answered_after_a_signal(model: Path, expected: Translate, number: int) -> None:
    with running("--path", model, "--workers", "2", *SLOW) as server, ThreadPoolExecutor(20) as threads:
        lines = some_lines(20)
        asked = [threads.submit(server.translate, line) for line in lines]
        until(lambda: server.metric("nmt_active_requests") == 20)
        assert server.stop(number) == 0
        assert [text for one in asked for text in one.result()] == expected(lines)
        assert server.log[-1].endswith("stopped; all accepted requests were answered")
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_nothing_is_lost_or_wrong_when_a_server_is_stopped_under_load(model: Path, expected: Translate) -> None:
    """A connection may find the server gone, but what it was answered is whole and right."""
    ends: list[str] = []
    lines = some_lines(300)
    right = dict(zip(lines, expected(lines)))

    def client(seed: int) -> None:
        chance = random.Random(seed)
        while True:
            some = chance.sample(lines, 3)
            try:
                found = server.translate(*some)
            except OSError as error:
                ends.append(type(error).__name__)
                return
            if found != [right[line] for line in some]:
                ends.append(f"{some} became {found}")
                return

    with running("--path", model, "--workers", "2") as server:
        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(10)]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        status = server.stop()
        for thread in threads:
            thread.join(PATIENCE)
        assert status == 0
    gone = {"ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected", "BrokenPipeError"}
    assert len(ends) == 10 and set(ends) <= gone


def test_after_the_grace_a_server_goes_without_the_rest_and_says_so(model: Path) -> None:
    with running("--path", model, "--workers", "1", "--grace", "1") as server, ThreadPoolExecutor(1) as threads:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        asked = threads.submit(server.post, "/v1/translate", {"text": "rot"})
        until(lambda: server.metric("nmt_busy_workers") == 1)
        assert server.stop() == 75
        assert "1 request not finished within 1 second (" in server.log[-1]
        with contextlib.suppress(ConnectionError):
            assert asked.result().status >= 500


def test_lines_of_a_process_that_was_killed_are_translated_by_another(model: Path, expected: Translate) -> None:
    with running("--path", model, "--workers", "1") as server, ThreadPoolExecutor(5) as threads:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGSTOP)
        lines = some_lines(5)
        asked = [threads.submit(server.translate, line) for line in lines]
        until(lambda: server.metric("nmt_active_requests") == 5)
        os.kill(worker, signal.SIGKILL)
        assert [text for one in asked for text in one.result()] == expected(lines)
        assert server.metric("nmt_ended_workers_total") == server.metric("nmt_workers") == 1
        assert any("ended (SIGKILL); starting another one" in line for line in server.log)


def test_a_process_that_ends_while_nobody_asks_is_replaced(model: Path) -> None:
    with running("--path", model, "--workers", "1") as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        assert server.translate("rot") == ["red"]


def test_the_processes_end_with_a_server_that_is_killed(model: Path) -> None:
    with running("--path", model, "--workers", "2") as server:
        workers = server.workers()
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(PATIENCE)
        until(lambda: not any(Path(f"/proc/{worker}/cmdline").exists() for worker in workers))


def test_requests_are_logged_where_that_is_asked_for(model: Path) -> None:
    with running("--path", model, "--workers", "1", "--access-log", "--no-web-page") as server:
        assert server.ask("GET", "/").status == 404
        server.translate("rot")
        until(lambda: any("127.0.0.1 POST /v1/translate 200" in line for line in server.log))


def test_a_model_without_attention_says_so(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "plain", updates=1, attention=AttentionKind.none)
    with running("--path", model, "--workers", "1") as server:
        answer = server.post("/v1/translate", {"text": "rot", "alignment": "soft"})
        assert (
            answer.status == 422 and "alignment needs attention, which the model does not have" in answer.json["error"]
        )
        assert server.post("/v1/translate", {"text": "rot"}).status == 200


def test_where_processes_cannot_be_copied_each_loads_the_models_itself(model: Path) -> None:
    """As on a GPU."""
    before = "import nmt.serving.workers as workers; workers.possible = lambda: False"
    with running("--path", model, "--workers", "1", before=before) as server:
        assert server.translate("rot") == ["red"]
        (worker,) = [one for one in server.workers() if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]
        os.kill(worker, signal.SIGKILL)
        assert server.translate("ein mann") == ["a man"]
        assert server.stop() == 0
