"""Throughput of nmt-serve next to nmt-generate, with the same model and lines, in turns.

    python benchmarks/serving_speed.py MODEL TEXT --clients 50 --lines-per-request 1 4 --rounds 3 --ours "--beam 4"

TEXT is plain or gzipped, one sentence a line. nmt-generate translates it at once. Then a server starts, and the
clients on this machine, each with a separate connection, share the lines; a client sends its next lines after an
answer. Start-up and loading do not count. The work of the clients counts, since they use the same cores. ``--ours``
has options for both commands. Prints a Markdown table: lines a second (the median of the rounds, and their range), the
median of the ratios to nmt-generate within a round, failed requests, answers that differ from nmt-generate's, and
seconds until an answer (median and 99th percentile).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from decoding_speed import SPEED, read
from training_speed import HERE

from nmt.errors import quantity

PATIENCE = 120.0  # time limit for starting a server, in seconds


@dataclass
class Row:
    """Measurements of a row of the table."""

    name: str
    speeds: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of each request
    failed: int = 0
    other: int = 0


def command(module: str, arguments: argparse.Namespace) -> list[str]:
    given = [sys.executable, "-m", f"nmt_cli.{module}", "--path", str(arguments.model), *arguments.ours.split()]
    return [*given, *(["--workers", str(arguments.workers)] if arguments.workers else [])]


def generate(arguments: argparse.Namespace, work: Path) -> tuple[float, list[str]]:
    """Return the lines per second that nmt-generate reports, and the translations."""
    output = work / "generated"
    line = [*command("generate", arguments), "--input", str(arguments.text), "--output", str(output), "--overwrite"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    done = subprocess.run([*line, "--progress", "lines"], capture_output=True, text=True, env=environment, check=False)
    found = re.findall(SPEED, done.stderr)
    if done.returncode or not found:
        sys.exit(f"nmt-generate failed with status {done.returncode}:\n{done.stderr[-3000:]}")
    return float(found[-1].replace(",", "")), read(output)


async def ask(port: int, texts: Sequence[str], at_a_time: int, work: Iterator[int], row: Row, found: list[str]) -> None:
    """Run one client: a connection that sends requests until no lines are left."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for begin in work:
        some = list(texts[begin : begin + at_a_time])
        body = json.dumps({"text": some}).encode()
        started = time.perf_counter()
        writer.write(b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        answer = json.loads(await reader.readexactly(length))
        row.seconds.append(time.perf_counter() - started)
        if head.split()[1] != b"200":
            row.failed += 1
            continue
        found[begin : begin + len(some)] = [one["text"] for one in answer["translations"]]
    writer.close()


def serve(arguments: argparse.Namespace, at_a_time: int, texts: Sequence[str], row: Row) -> list[str]:
    """Start a server, run the clients, and stop the server. Return the translations."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen([*command("serve", arguments), "--port", "0"], stderr=log, env=environment)
        try:
            port, limit = None, time.monotonic() + PATIENCE
            while port is None and server.poll() is None and time.monotonic() < limit:
                time.sleep(0.1)
                log.seek(0)
                port = re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read())
            if port is None:
                log.seek(0)
                sys.exit(f"nmt-serve did not start:\n{log.read()[-3000:]}")
            found = [""] * len(texts)
            work = iter(range(0, len(texts), at_a_time))

            async def everybody() -> None:
                await asyncio.gather(
                    *(ask(int(port[1]), texts, at_a_time, work, row, found) for _ in range(arguments.clients))
                )

            started = time.perf_counter()
            asyncio.run(everybody())
            row.speeds.append(len(texts) / (time.perf_counter() - started))
        finally:
            server.send_signal(signal.SIGTERM)
            status = server.wait(timeout=60)
    if status != 0:
        sys.exit(f"nmt-serve ended with status {status}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="run folder or checkpoint")
    parser.add_argument("text", type=Path, help="text to translate")
    parser.add_argument("--clients", type=int, default=50, help="number of clients (default: %(default)s)")
    parser.add_argument("--lines-per-request", type=int, nargs="+", default=[1], help="lines per request (default: 1)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default: %(default)s)")
    parser.add_argument("--workers", type=int, help="worker processes of both commands; default: chosen by them")
    parser.add_argument("--ours", default="", help="options of both commands")
    arguments = parser.parse_args()
    texts = read(arguments.text)
    alone = Row("nmt-generate")
    rows = [
        Row(f"{arguments.clients} clients, {quantity(count, 'line')} per request")
        for count in arguments.lines_per_request
    ]
    with tempfile.TemporaryDirectory() as work:
        for _ in range(arguments.rounds):
            speed, expected = generate(arguments, Path(work))
            alone.speeds.append(speed)
            print(f"nmt-generate: {speed:.0f} lines/s", file=sys.stderr)
            for count, row in zip(arguments.lines_per_request, rows):
                found = serve(arguments, count, texts, row)
                row.other += sum(one != other for one, other in zip(found, expected))
                print(f"{row.name}: {row.speeds[-1]:.0f} lines/s", file=sys.stderr)
    print(
        "| | lines/s | rounds | share of nmt-generate | failed | different text | seconds, median | 99th percentile |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for row in (alone, *rows):
        ratio = statistics.median(mine / theirs for mine, theirs in zip(row.speeds, alone.speeds))
        middle, rounds = f"{statistics.median(row.speeds):.0f}", f"{min(row.speeds):.0f} to {max(row.speeds):.0f}"
        waits = sorted(row.seconds) or [0.0]
        slowest = waits[min(len(waits) - 1, len(waits) * 99 // 100)]
        told = f"{row.failed} | {row.other} | {statistics.median(waits):.3f} | {slowest:.3f}"
        print(f"| {row.name} | {middle} | {rounds} | {ratio:.2f} | {told} |")


if __name__ == "__main__":
    main()
