"""The process of a live page, which nmt-train and nmt-visualize start (``--watch``; ``nmt/reporting/live_page.py``)."""

from __future__ import annotations

import argparse
import signal
import socket
from pathlib import Path

from nmt.watching.server import PageServer


def main() -> None:
    parser = argparse.ArgumentParser(prog="nmt_cli.watching", description="Serve the live page of runs")
    parser.add_argument("--socket", type=int, required=True, help="Number of an inherited socket that listens")
    parser.add_argument("--parent", type=int, help="Process with which the page ends")
    parser.add_argument("--over", default="updates", help="Horizontal axis of the curves")
    parser.add_argument("--smoothing", type=float, default=0.0, help="Smoothing of the training loss curve")
    parser.add_argument("path", nargs="+", type=Path, help="Run folder, or folder of a sweep")
    options = parser.parse_args()
    settings = {"over": options.over, "smoothing": options.smoothing}
    server = PageServer(socket.socket(fileno=options.socket), options.path, options.parent, **settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.end())
    server.serve()
